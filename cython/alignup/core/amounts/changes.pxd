"""Tells whether the amounts of a node changed while they were read without its lock."""

from libc.stdint cimport int64_t


cdef extern from *:
    """
    /* A sequence lock: the count is odd while a change is under way. Amounts that were read between two looks at the
       same even count are those of one moment. */
    #define alignup_first_look(count) __atomic_load_n(count, __ATOMIC_ACQUIRE)
    #define alignup_second_look(count) (__atomic_thread_fence(__ATOMIC_ACQUIRE), \
        __atomic_load_n(count, __ATOMIC_RELAXED))
    """
    int64_t first_look "alignup_first_look"(const int64_t* count) noexcept nogil
    int64_t second_look "alignup_second_look"(const int64_t* count) noexcept nogil


cdef class Changes:
    cdef int64_t count
    cdef int depth
