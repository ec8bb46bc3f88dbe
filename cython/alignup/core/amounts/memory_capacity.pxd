"""The Python class that owns what a machine has to give of memory."""

from libc.stdint cimport int64_t

from alignup.core.amounts.memory_state cimport MemoryLayout


cdef class MemoryCapacity:
    cdef MemoryLayout layout
    cdef readonly tuple types       # names of the types, sorted
    cdef dict numbers               # type name -> its number


cdef dict amounts_of(MemoryCapacity capacity, const int64_t* amounts)
