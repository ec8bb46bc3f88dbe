"""A set of masks over up to 64 NUMA nodes, to fold lists that were written out."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free


cdef class MaskSet:
    """Different masks, none of them empty: a hash table of powers of two, at most half full."""

    def __cinit__(self):
        self.size = 16
        self.slots = <uint64_t*>calloc(self.size, sizeof(uint64_t))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)

    cdef bint add(self, uint64_t mask) noexcept nogil:
        """Add a mask; return False if there is no memory for it."""
        cdef int64_t slot = mask * <uint64_t>0x9E3779B97F4A7C15 >> 20 & (self.size - 1)
        while self.slots[slot] and self.slots[slot] != mask:
            slot = (slot + 1) & (self.size - 1)
        if self.slots[slot]:
            return True
        self.slots[slot] = mask
        self.count += 1
        return 2 * self.count <= self.size or self.grow()

    cdef bint grow(self) noexcept nogil:
        cdef uint64_t* before = self.slots
        cdef int64_t slot, size = self.size
        cdef uint64_t* slots = <uint64_t*>calloc(2 * size, sizeof(uint64_t))
        if slots == NULL:
            return False
        self.slots, self.size, self.count = slots, 2 * size, 0
        for slot in range(size):
            if before[slot]:
                self.add(before[slot])
        free(before)
        return True
