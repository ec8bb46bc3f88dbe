"""The Python class around one machine word that is a set of NUMA nodes."""

from libc.stdint cimport uint64_t


cdef class BitMask:
    cdef uint64_t word


cdef BitMask mask_of(uint64_t word)
