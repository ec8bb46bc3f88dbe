"""Look into one described family of masks."""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.wide.family cimport WideFamily


cdef list sample_pairs(WideFamily family, int64_t limit)
cdef object total_of(WideFamily family)
cdef tuple best_of_family(WideFamily family, uint64_t inner)
