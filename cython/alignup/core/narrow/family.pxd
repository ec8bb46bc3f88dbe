"""Bit operations over uint8 masks: sets of masks of up to 8 NUMA nodes, as 256 bits.

A mask of 8 nodes is a uint8, so a list of hints is 256 bits (`Family`), and the sums for all masks
are an array of 256. Which masks hold a request is one pass over that array; the cross product of
hint lists is in `merge.pyx` beside it.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, popcount


# Filled once, when the module is imported.
cdef uint8_t BY_SIZE[NARROW_MASKS]    # all masks, narrowest first, then by value: the order of ties
cdef int SIZE_STARTS[NARROW_NODES + 2]        # BY_SIZE[SIZE_STARTS[k]] is the first mask of k nodes
cdef uint64_t OF_SIZE[NARROW_NODES + 1][4]      # the set of the masks of each size


cdef struct Family:
    # Bit m stands for the set of nodes m. Computed masks are in one of the two; a caller may list
    # one in both.
    uint64_t preferred[4]
    uint64_t unpreferred[4]
    # The hint without a mask: any node will do.
    bint any_preferred
    bint any_unpreferred


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
        put(family.unpreferred, mask)


cdef inline void start_keeping(uint8_t* keeps, int size) noexcept nogil:
    """Keep every mask below `size`; `keeps` is 8 long at least, and 0 past its size."""
    memset(keeps, 0, 8)
    memset(keeps, 1, size)


cdef bint pack_family(
    Family* family, const uint8_t* keeps, int size, int preferred_size
) noexcept nogil
cdef void prefer_by_sockets(
    Family* family, int size, const uint64_t* sockets, int count, int required
) noexcept nogil


cdef inline void pack_masks(const uint8_t* keeps, int size, uint64_t* masks) noexcept nogil:
    """Pack `size` bytes, each 0 or 1, into a set of masks.

    `keeps` is at least 8 long, and 0 past its size.
    """
    cdef uint64_t eight
    cdef int mask
    memset(masks, 0, 4 * sizeof(uint64_t))
    for mask in range(0, size, 8):
        memcpy(&eight, keeps + mask, 8)
        # One multiplication gathers the lowest bits of eight bytes in the highest byte.
        masks[mask >> 6] |= (eight * <uint64_t>0x0102040810204080) >> 56 << (mask & 63)


cdef inline void cut(uint64_t* masks, int nodes) noexcept nogil:
    """Cut each mask of a set to the first `nodes` nodes, and drop the empty one."""
    cdef int node

    if nodes < 8:
        masks[0] |= masks[2]
        masks[1] |= masks[3]
        masks[2] = masks[3] = 0
    if nodes < 7:
        masks[0] |= masks[1]
        masks[1] = 0
    for node in range(5, nodes - 1, -1):
        masks[0] = (masks[0] | masks[0] >> (1 << node)) & (((<uint64_t>1) << (1 << node)) - 1)
    masks[0] &= ~<uint64_t>1


cdef inline bint is_empty(const Family* family) noexcept nogil:
    cdef int word
    for word in range(4):
        if family.preferred[word] | family.unpreferred[word]:
            return False
    return not (family.any_preferred or family.any_unpreferred)


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


cdef inline void keep_holding(
    uint8_t* keeps,
    int nodes,
    int count,
    const uint64_t* places,
    const int64_t* amounts,
    int64_t request,
) noexcept nogil:
    """Clear `keeps[m]` for each mask m that does not reach enough of the amounts.

    An amount is reached by every mask that intersects its place, so a mask reaches everything but
    what lies wholly outside it. Without places amount i lies in node i.
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
