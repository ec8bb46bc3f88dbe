"""Hints as arrays: masks, and whether each is preferred."""

from alignup.core.narrow.family cimport Family


cdef tuple narrow_arrays(const Family* family)
cdef tuple wide_arrays(list pairs)
cdef tuple checked_arrays(object masks, object preferred)
