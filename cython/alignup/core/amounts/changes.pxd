"""Tells whether the amounts of a node changed while they were read without its lock."""

from libc.stdint cimport int64_t


cdef extern from *:
    """
    /* A sequence lock: the count is odd while a change is under way. Amounts that were read between
       two looks at the same even count are those of one moment. */
    #define alignup_first_look(count) __atomic_load_n(count, __ATOMIC_ACQUIRE)
    #define alignup_second_look(count) (__atomic_thread_fence(__ATOMIC_ACQUIRE), \
        __atomic_load_n(count, __ATOMIC_RELAXED))
    """
    int64_t first_look "alignup_first_look"(const int64_t* count) noexcept nogil
    int64_t second_look "alignup_second_look"(const int64_t* count) noexcept nogil


cdef class Changes:
    cdef int64_t count
    cdef int depth
    cdef void begin(self) noexcept
    cdef void end(self) noexcept


cdef class ManagerLock:
    cdef readonly Changes changes
    cdef object lock
    cdef long pid
    cdef double patience
    cdef bint is_changing
    cdef int take(self) except -1
    cdef int leave(self) except -1
    cdef int look_after_fork(self) except -1
    cdef int begin(self) except -1
    cdef object tried(self, work, undo, tuple args)
    cdef int settled(self, work, tuple args) except -1
