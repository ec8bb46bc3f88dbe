"""Sets of up to 64 NUMA nodes as machine words: the helpers that every kernel inlines, and the two widths.

Every module of the core is compiled against this header, so it holds only what never changes.
"""

from libc.stdint cimport uint64_t


cdef enum:
    NARROW_NODES = 8        # so many nodes have 256 masks, which are looked at all at once
    NARROW_MASKS = 256
    WIDEST = 64             # NUMA nodes of a machine: a mask is one machine word


cdef extern from *:
    int __builtin_popcountll(unsigned long long) noexcept nogil
    int __builtin_ctzll(unsigned long long) noexcept nogil


cdef inline int popcount(uint64_t mask) noexcept nogil:
    """Return how many nodes are in the mask."""
    return __builtin_popcountll(mask)


cdef inline int lowest(uint64_t mask) noexcept nogil:
    """Return the position of the lowest node; the mask must not be empty."""
    return __builtin_ctzll(mask)


cdef inline bint is_single(uint64_t mask) noexcept nogil:
    """Return whether the mask has exactly one node."""
    return mask != 0 and mask & (mask - 1) == 0


cdef inline uint64_t all_nodes(int count) noexcept nogil:
    """Return the mask of the first `count` nodes."""
    return ~<uint64_t>0 if count >= 64 else ((<uint64_t>1) << count) - 1
