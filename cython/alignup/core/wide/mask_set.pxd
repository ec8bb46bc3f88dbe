"""A set of masks over up to 64 NUMA nodes."""

from libc.stdint cimport int64_t, uint64_t


cdef class MaskSet:
    cdef uint64_t* slots    # a mask in each, or 0
    cdef int64_t size
    cdef int64_t count
    cdef bint add(self, uint64_t mask) noexcept nogil
    cdef bint grow(self) noexcept nogil
