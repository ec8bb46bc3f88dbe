"""The masks of up to 8 NUMA nodes as a bit set of 256, and what can be computed over all of them at once.

A mask of 8 nodes is a uint8, so a set of masks is 256 bits and a sum for every mask is an array of 256. Which
masks hold an amount, which masks a product of hint lists can reach: each is one pass over such an array.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from alignup.core.bits cimport NARROW_MASKS, popcount


cdef struct Family:
    # Bit m stands for the set of nodes m; a hint is in exactly one of the two.
    uint64_t preferred[4]
    uint64_t other[4]
    # The hint without a mask: any node will do.
    bint any_preferred
    bint any_other


cdef inline bint has(const uint64_t* masks, int mask) noexcept nogil:
    return (masks[mask >> 6] >> (mask & 63)) & 1


cdef inline void put(uint64_t* masks, int mask) noexcept nogil:
    masks[mask >> 6] |= (<uint64_t>1) << (mask & 63)


cdef inline void drop(uint64_t* masks, int mask) noexcept nogil:
    masks[mask >> 6] &= ~((<uint64_t>1) << (mask & 63))


cdef inline void put_hint(Family* family, int mask, bint preferred) noexcept nogil:
    if preferred:
        put(family.preferred, mask)
    else:
        put(family.other, mask)


cdef inline bint is_empty(const Family* family) noexcept nogil:
    cdef int word
    for word in range(4):
        if family.preferred[word] | family.other[word]:
            return False
    return not (family.any_preferred or family.any_other)


cdef inline void sum_over_subsets(int64_t* values, int nodes) noexcept nogil:
    """Replace each value by the sum of the values of all subsets of its mask."""
    cdef int step = 1, start, offset, size = 1 << nodes
    while step < size:
        start = 0
        while start < size:
            for offset in range(start, start + step):
                values[offset + step] += values[offset]
            start += 2 * step
        step *= 2


cdef inline void sum_over_supersets(uint64_t* values, int nodes) noexcept nogil:
    """Replace each value by the sum of the values of all supersets of its mask."""
    cdef int step = 1, start, offset, size = 1 << nodes
    while step < size:
        start = 0
        while start < size:
            for offset in range(start, start + step):
                values[offset] += values[offset + step]
            start += 2 * step
        step *= 2


cdef inline void undo_sum_over_supersets(uint64_t* values, int nodes) noexcept nogil:
    """Undo `sum_over_supersets`."""
    cdef int step = 1, start, offset, size = 1 << nodes
    while step < size:
        start = 0
        while start < size:
            for offset in range(start, start + step):
                values[offset] -= values[offset + step]
            start += 2 * step
        step *= 2


cdef inline void keep_holding(
    uint8_t* keeps, int nodes, int count, const uint64_t* places, const int64_t* amounts, int64_t request
) noexcept nogil:
    """Clear `keeps[m]` for each mask m that does not reach enough of the amounts.

    An amount is reached by every mask that intersects its place, so a mask reaches everything but what lies
    wholly outside it. Without places amount i lies in node i.
    """
    cdef int64_t sums[NARROW_MASKS]
    cdef int64_t total = 0
    cdef int item, mask, size = 1 << nodes, full = (1 << nodes) - 1
    if places == NULL:
        sums[0] = 0
        for item in range(nodes):
            for mask in range(1 << item):
                sums[1 << item | mask] = sums[mask] + amounts[item]
        for mask in range(1, size):
            keeps[mask] &= sums[mask] >= request
        return
    for mask in range(size):
        sums[mask] = 0
    for item in range(count):
        if places[item] & full:
            sums[places[item] & full] += amounts[item]
            total += amounts[item]
    sum_over_subsets(sums, nodes)
    for mask in range(size):
        keeps[mask] &= total - sums[full & ~mask] >= request


cdef inline int smallest_count(const uint8_t* keeps, int size) noexcept nogil:
    """Return the size of the smallest non-empty mask that is kept, 0 if none is."""
    cdef int mask, count, best = 0
    for mask in range(1, size):
        if keeps[mask]:
            count = popcount(mask)
            if best == 0 or count < best:
                best = count
    return best
