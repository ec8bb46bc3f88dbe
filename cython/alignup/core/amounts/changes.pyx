"""Count the changes of a node, for readers of its amounts that do not take its lock."""

cimport cython

cdef extern from *:
    """
    #define alignup_set_odd(count, value) \
        (__atomic_store_n(count, value, __ATOMIC_RELAXED), __atomic_thread_fence(__ATOMIC_RELEASE))
    #define alignup_set_even(count, value) __atomic_store_n(count, value, __ATOMIC_RELEASE)
    """
    void set_odd "alignup_set_odd"(int64_t* count, int64_t value) noexcept nogil
    void set_even "alignup_set_even"(int64_t* count, int64_t value) noexcept nogil


@cython.final
cdef class Changes:
    """The count of the changes of a node; callers hold the node's lock."""

    def begin(self):
        """Note that a change begins, maybe within another one."""
        self.depth += 1
        if self.depth == 1:
            set_odd(&self.count, self.count + 1)

    def end(self):
        """Note that the change that began last is over."""
        self.depth -= 1
        if self.depth == 0:
            set_even(&self.count, self.count + 1)
