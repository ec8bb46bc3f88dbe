"""Amounts by NUMA node, compared, ordered and summed.

Every decision takes these steps many times. The sums over any set of up to 8 nodes come from two
small tables.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.bits cimport all_nodes, lowest


cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #define ALIGNUP_TWO(node) _mm_movemask_pd(_mm_castsi128_pd(_mm_sub_epi64( \
        _mm_loadu_si128((const __m128i*)(amounts + (node))), requests)))
    #endif
    /* The nodes that have less than is asked for, two at a time where the machine can. Amounts lie
       between 0 and 2**62, so that a difference does not overflow, and is negative exactly if
       something is missing. */
    static CYTHON_INLINE uint64_t nodes_below(const int64_t* amounts, int nodes, int64_t request) {
        uint64_t below = 0;
        int node = 0;
    #if defined(__SSE2__)
        const __m128i requests = _mm_set1_epi64x(request);
        if (nodes == 8) {
            return ALIGNUP_TWO(0) | ALIGNUP_TWO(2) << 2 | ALIGNUP_TWO(4) << 4 | ALIGNUP_TWO(6) << 6;
        }
        for (; node + 1 < nodes; node += 2) below |= (uint64_t)ALIGNUP_TWO(node) << node;
    #endif
        for (; node < nodes; node++) below |= (uint64_t)(amounts[node] < request) << node;
        return below;
    }
    /* Eight amounts in descending order, by the 19 comparisons of a sorting network: which amounts
       come is random to the processor, so a sort that branches on them would mostly wait for
       branches that were guessed wrong. */
    #define ALIGNUP_ORDER(i, j) do { \
        const int64_t first = ordered[i], second = ordered[j]; \
        ordered[i] = first < second ? second : first; \
        ordered[j] = first < second ? first : second; } while (0)
    static CYTHON_INLINE void order_eight(int64_t* ordered) {
        ALIGNUP_ORDER(0, 2); ALIGNUP_ORDER(1, 3); ALIGNUP_ORDER(4, 6); ALIGNUP_ORDER(5, 7);
        ALIGNUP_ORDER(0, 4); ALIGNUP_ORDER(1, 5); ALIGNUP_ORDER(2, 6); ALIGNUP_ORDER(3, 7);
        ALIGNUP_ORDER(0, 1); ALIGNUP_ORDER(2, 3); ALIGNUP_ORDER(4, 5); ALIGNUP_ORDER(6, 7);
        ALIGNUP_ORDER(2, 4); ALIGNUP_ORDER(3, 5);
        ALIGNUP_ORDER(1, 4); ALIGNUP_ORDER(3, 6);
        ALIGNUP_ORDER(1, 2); ALIGNUP_ORDER(3, 4); ALIGNUP_ORDER(5, 6);
    }
    #undef ALIGNUP_ORDER
    """
    uint64_t nodes_below(const int64_t* amounts, int nodes, int64_t request) noexcept nogil
    void order_eight(int64_t* ordered) noexcept nogil


cdef struct Halves:
    # The sum over a mask is low[mask & 15] + high[mask >> 4].
    int64_t low[16]
    int64_t high[16]


cdef inline int64_t sum_of(const Halves* halves, uint64_t mask) noexcept nogil:
    return halves.low[mask & 15] + halves.high[mask >> 4]


cdef inline void halve(const int64_t* amounts, int nodes, Halves* halves) noexcept nogil:
    """Sum the amounts of all masks of the four low nodes, and of the four high ones."""
    cdef int node, mask
    cdef int64_t amount

    halves.low[0] = halves.high[0] = 0
    for node in range(4):
        amount = amounts[node] if node < nodes else 0
        for mask in range(1 << node):
            halves.low[1 << node | mask] = halves.low[mask] + amount
        amount = amounts[node + 4] if node + 4 < nodes else 0
        for mask in range(1 << node):
            halves.high[1 << node | mask] = halves.high[mask] + amount


cdef inline void sort_amounts(const int64_t* amounts, int nodes, int64_t* ordered) noexcept nogil:
    """Write the amounts of up to 8 nodes in descending order; 0 past the last node."""
    cdef int node
    for node in range(8):
        ordered[node] = amounts[node] if node < nodes else 0
    order_eight(ordered)


cdef inline int least_count(const int64_t* ordered, int nodes, int64_t request) noexcept nogil:
    """Return how many of the amounts, the largest first, make up the request.

    It is more than there are if all of them do not.
    """
    cdef int64_t total = 0
    cdef int node, count = 0
    for node in range(nodes):
        count += total < request
        total += ordered[node]
    return count if request <= total else nodes + 1


cdef inline uint64_t nodes_with(const int64_t* amounts, int nodes, int64_t request) noexcept nogil:
    """Return the nodes that have as much by themselves."""
    return all_nodes(nodes) & ~nodes_below(amounts, nodes, request)


cdef inline int64_t sum_within(const int64_t* amounts, uint64_t mask) noexcept nogil:
    """Return what the nodes of a mask have together."""
    cdef int64_t total = 0
    while mask:
        total += amounts[lowest(mask)]
        mask &= mask - 1
    return total


cdef inline int64_t sum_of_all(const int64_t* amounts, int nodes) noexcept nogil:
    """Return what the first nodes have together."""
    cdef int64_t total = 0
    cdef int node
    for node in range(nodes):
        total += amounts[node]
    return total
