"""Memory of compiled classes: zeroed blocks, and sets of words that a call needs for itself."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint64_t


cdef inline void* zeroed(size_t count, size_t size) except NULL:
    """Return zeroed memory for at least one item; `PyMem_Free` frees it."""
    cdef void* block = PyMem_Calloc(count if count else 1, size)
    if block is NULL:
        raise MemoryError
    return block


cdef inline uint64_t* room_for(int words, uint64_t* short, int short_words) except NULL:
    """Return room for so many words.

    It is that on the stack if it suffices, else memory that `leave` frees.
    """
    return short if words <= short_words else <uint64_t*>zeroed(words, sizeof(uint64_t))


cdef inline void leave(uint64_t* room, const uint64_t* short) noexcept:
    """Free what `room_for` returned."""
    if room is not short:
        PyMem_Free(room)
