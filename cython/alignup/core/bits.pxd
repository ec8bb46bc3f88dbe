"""Sets of up to 64 NUMA nodes as machine words.

Here are the helpers that every kernel inlines, and the two widths. Every module of the core is
compiled against this header, so it holds only what never changes.
"""

from libc.stdint cimport uint64_t


cdef enum:
    NARROW_NODES = 8        # so many nodes have 256 masks, which are looked at all at once
    NARROW_MASKS = 256
    WIDEST = 64             # NUMA nodes of a machine: a mask is one machine word


cdef extern from *:
    """
    /* Sets are read and written as little-endian words, here and in the modules of CPUs and
       devices. */
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "alignup needs a little-endian machine"
    #endif
    /* Without an instruction for it, as on x86-64 before -mpopcnt, the compiler's builtin is a call
       into a table. */
    static CYTHON_INLINE int count_ones(unsigned long long word) {
    #if defined(__POPCNT__) || defined(__aarch64__)
        return __builtin_popcountll(word);
    #else
        word -= (word >> 1) & 0x5555555555555555ULL;
        word = (word & 0x3333333333333333ULL) + ((word >> 2) & 0x3333333333333333ULL);
        word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
        return (int)((word * 0x0101010101010101ULL) >> 56);
    #endif
    }
    """
    int count_ones(unsigned long long) noexcept nogil
    int __builtin_ctzll(unsigned long long) noexcept nogil


cdef inline int popcount(uint64_t mask) noexcept nogil:
    """Return how many nodes are in the mask."""
    return count_ones(mask)


cdef inline int lowest(uint64_t mask) noexcept nogil:
    """Return the position of the lowest node; the mask must not be empty."""
    return __builtin_ctzll(mask)


cdef inline bint is_single(uint64_t mask) noexcept nogil:
    """Return whether the mask has exactly one node."""
    return mask != 0 and mask & (mask - 1) == 0


cdef inline uint64_t all_nodes(int count) noexcept nogil:
    """Return the mask of the first `count` nodes."""
    return ~<uint64_t>0 if count >= 64 else ((<uint64_t>1) << count) - 1
