"""Hints as Python sees them, over packed families of masks."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from alignup.core.bitmask cimport BitMask
from alignup.core.narrow.family cimport Family
from alignup.core.wide.family cimport WideFamily


cdef class TopologyHint:
    cdef readonly BitMask affinity
    cdef readonly bint preferred
    cdef readonly bint exact


cdef class HintList:
    cdef Family family          # complete when `wide` is None; else only its any-node hints count
    cdef WideFamily wide
    cdef tuple listed_hints     # the hints in the order they came, when a caller listed them
    cdef tuple arrays(self)
    cdef bint has_no_hints(self)
    cdef list all_pairs(self)
    cdef list any_node_pairs(self, list pairs)
    cdef list all_wide_pairs(self)


cdef TopologyHint hint_of(uint64_t mask, bint is_any, bint preferred)
