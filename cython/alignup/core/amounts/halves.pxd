"""The sums of amounts over any set of up to 8 NUMA nodes, from two small tables."""

from libc.stdint cimport int64_t, uint64_t


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


cdef inline int sort_amounts(const int64_t* amounts, int nodes, int64_t* ordered) noexcept nogil:
    """Write the amounts in descending order; return how many there are."""
    cdef int node, place
    cdef int64_t amount
    for node in range(nodes):
        amount = amounts[node]
        place = node
        while place and ordered[place - 1] < amount:
            ordered[place] = ordered[place - 1]
            place -= 1
        ordered[place] = amount
    return nodes


cdef inline int least_count(const int64_t* ordered, int nodes, int64_t request) noexcept nogil:
    """Return how many of the amounts, the largest first, make up the request; more than there are if all do not."""
    cdef int count = 0
    while count < nodes and request > 0:
        request -= ordered[count]
        count += 1
    return count if request <= 0 else nodes + 1
