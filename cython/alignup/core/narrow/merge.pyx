"""Merge hint lists over up to 8 NUMA nodes.

The result is the narrowest preferred hint of their cross product, which nobody walks.

- Preferred results are the masks that every list prefers (a preferred any-node hint joins any of
  them).
- Reachable masks come from a product of sums over supersets, taken back at the end: a mask is
  reachable exactly if the number of permutations that AND to it is not zero.

Both are passes over 256 masks at once, in words of eight counts or in vector instructions.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, lowest, popcount
from alignup.core.narrow.family cimport OF_SIZE, Family, cut, is_empty, pack_masks, put


cdef enum:
    # Counts of permutations fit 32 bits for so many lists: each has at most 255 masks, and 255^4 <
    # 2^32.
    LISTS_A_PRODUCT = 4
    MOST_FAMILIES = 64          # as `Merger` takes lists
    EIGHTS = 32                 # so many words of eight counts, a byte each, count for every mask

# For each set of masks of three nodes (a byte, bit m for mask m): how many of its masks include
# mask m, one byte for each m in the order of memory.
cdef uint8_t SUPERSETS[NARROW_MASKS][8]


cdef void count_supersets() noexcept nogil:
    cdef int masks, subset, superset
    for masks in range(NARROW_MASKS):
        for subset in range(8):
            for superset in range(8):
                if subset & ~superset == 0:
                    SUPERSETS[masks][subset] += (masks >> superset) & 1


count_supersets()


cdef int target_size(const Family* families, int count) noexcept nogil:
    """Return the largest of the lists' smallest mask sizes.

    Lists without a masked hint do not count.
    """
    cdef int index, size, word, largest = 0
    cdef uint64_t masks

    for index in range(count):
        for size in range(NARROW_NODES + 1):
            masks = 0
            for word in range(4):
                masks |= OF_SIZE[size][word] & (
                    families[index].preferred[word] | families[index].unpreferred[word]
                )

            if masks:
                largest = max(largest, size)
                break

    return largest


cdef bint best_of_size(
    const uint64_t* masks, int size, const int64_t* distances, uint64_t* best
) noexcept nogil:
    """Find the best mask of one size in a set of masks.

    It is the nearest when distances count, then that of the lowest value.
    """
    cdef int word
    cdef uint64_t mask, rest
    cdef bint is_found = False

    for word in range(4):
        rest = masks[word] & OF_SIZE[size][word]
        while rest:
            mask = <uint64_t>word << 6 | lowest(rest)
            rest &= rest - 1
            if not is_found or distances[mask] < distances[best[0]]:
                is_found = True
                best[0] = mask

            if distances == NULL:
                return True

    return is_found


cdef Best best_preferred(
    const Family* families, int count, uint64_t full, const int64_t* distances
) noexcept nogil:
    """Return the best mask that every list prefers.

    It has the fewest nodes, the nearest to each other, and then the lowest value.
    """
    cdef Best best
    cdef uint64_t common[4]
    cdef uint64_t named[4]
    cdef int index, word, size, nodes = popcount(full)

    best.is_found = True           # until a list turns up that does not prefer any node
    best.preferred = True
    best.mask = full
    memset(common, 0xFF, sizeof(common))
    memset(named, 0, sizeof(named))
    for index in range(count):
        for word in range(4):
            named[word] |= families[index].preferred[word]

        if not families[index].any_preferred:
            best.is_found = False
            for word in range(4):
                common[word] &= families[index].preferred[word]

    for word in range(4):
        common[word] &= named[word]

    if not (common[0] | common[1] | common[2] | common[3]):
        return best

    cut(common, nodes)
    for size in range(1, nodes + 1):
        if best_of_size(common, size, distances, &best.mask):
            best.is_found = True
            break

    return best


cdef void count_including(const uint64_t* masks, int nodes, uint64_t* counts) noexcept nogil:
    """Count, for each mask, the masks of a set that include it.

    They are 255 at most, as the empty one is not in the set. Three nodes are looked up in a table,
    eight counts at a time; each further node adds the counts of the masks with it to those of the
    masks without, again eight in one addition of 64 bits.
    """
    cdef int index, start, step = 1, size = max(1 << nodes >> 3, 1)

    for index in range(size):
        memcpy(&counts[index], SUPERSETS[masks[index >> 3] >> (8 * (index & 7)) & 0xFF], 8)
    while step < size:
        start = 0
        while start < size:
            for index in range(start, start + step):
                counts[index] += counts[index + step]
            start += 2 * step
        step *= 2


cdef inline void take_back(uint32_t* counts, int size, int step) noexcept nogil:
    """Take the counts of the masks with one node from those of the same masks without it.

    The node has the value `step`.
    """
    cdef int start = 0, offset
    while start < size:
        for offset in range(start, start + step):
            counts[offset] -= counts[offset + step]
        start += 2 * step


cdef void keep_reached(uint32_t* counts, int nodes, uint64_t* reached) noexcept nogil:
    """Turn counts of permutations into the set of masks that some AND to exactly.

    The masks of the permutations that are counted for a mask all include it.
    """
    cdef uint8_t is_reached[NARROW_MASKS]
    cdef int mask, size = 1 << nodes

    # Each step is a constant, so that the compiler makes each pass one of vector instructions.
    if nodes >= 1:
        take_back(counts, size, 1)

    if nodes >= 2:
        take_back(counts, size, 2)

    if nodes >= 3:
        take_back(counts, size, 4)

    if nodes >= 4:
        take_back(counts, size, 8)

    if nodes >= 5:
        take_back(counts, size, 16)

    if nodes >= 6:
        take_back(counts, size, 32)

    if nodes >= 7:
        take_back(counts, size, 64)

    if nodes >= 8:
        take_back(counts, size, 128)

    memset(is_reached, 0, 8)
    for mask in range(size):
        is_reached[mask] = counts[mask] != 0

    pack_masks(is_reached, size, reached)
    reached[0] &= ~<uint64_t>1


cdef inline void multiply(
    const uint8_t* first,
    const uint8_t* second,
    const uint8_t* third,
    const uint8_t* fourth,
    int size,
    uint32_t* products,
) noexcept nogil:
    """Multiply the counts of four lists.

    They are multiplied in pairs, whose products fit 16 bits, and then the pairs.
    """
    cdef int mask
    cdef uint16_t first_pair, second_pair
    for mask in range(size):
        first_pair = <uint16_t>(first[mask] * second[mask])
        second_pair = <uint16_t>(third[mask] * fourth[mask])
        products[mask] = <uint32_t>first_pair * second_pair


cdef void reach(const Family* families, int count, int nodes, uint64_t* reached) noexcept nogil:
    """Make `reached` the set of masks that some permutation ANDs to; at least one list.

    Four lists at first, then three more at a time, together with the set that was reached before.
    """
    cdef uint64_t factors[LISTS_A_PRODUCT][EIGHTS]
    cdef uint32_t products[NARROW_MASKS]
    cdef uint64_t masks[4]
    cdef int index = 0, factor, word, full = (1 << nodes) - 1

    while index < count:
        factor = 0
        if index:
            count_including(reached, nodes, factors[0])
            factor = 1

        while factor < LISTS_A_PRODUCT:
            if index < count:
                for word in range(4):
                    masks[word] = (
                        families[index].preferred[word] | families[index].unpreferred[word]
                    )

                cut(masks, nodes)
                if families[index].any_preferred or families[index].any_unpreferred:
                    put(masks, full)

                count_including(masks, nodes, factors[factor])
                index += 1
            else:
                memset(factors[factor], 1, NARROW_MASKS)

            factor += 1

        multiply(
            <const uint8_t*>factors[0],
            <const uint8_t*>factors[1],
            <const uint8_t*>factors[2],
            <const uint8_t*>factors[3],
            full + 1,
            products,
        )
        keep_reached(products, nodes, reached)


cdef Best merge_families(
    const Family* families, int count, int nodes, const int64_t* distances
) noexcept nogil:
    """Return the best result of the product of `count` lists on a machine of `nodes` nodes.

    Where nothing is preferred, size decides first. The wanted size is the largest of the lists'
    smallest sizes: it is tried first, then smaller sizes downwards, then larger ones upwards.
    """
    cdef uint64_t reached[4]
    cdef uint64_t full = all_nodes(nodes)
    cdef int index, size, target
    cdef Best best

    best.is_found = False
    best.preferred = False
    best.mask = full
    for index in range(count):
        if is_empty(&families[index]):
            return best

    best = best_preferred(families, count, full, distances)
    if best.is_found:
        return best

    best.preferred = False
    target = target_size(families, count)
    reach(families, count, nodes, reached)
    for size in range(min(target, nodes), 0, -1):
        if best_of_size(reached, size, distances, &best.mask):
            return best

    for size in range(target + 1, nodes + 1):
        if best_of_size(reached, size, distances, &best.mask):
            return best

    return best


cdef Best merge_as_written(const Family* families, int count, int nodes) noexcept nogil:
    """Return the best result as KEP-693 and the article have it.

    A result is preferred where all of its hints are, whatever masks they have. Preferred ones come
    first, then the narrowest, then the mask of the smallest value; without any result it is all
    nodes, not preferred.
    """
    cdef Family preferred_families[MOST_FAMILIES]
    cdef uint64_t reached[4]
    cdef int index, size
    cdef bint all_prefer = True
    cdef Best best

    best.is_found = count == 0
    best.preferred = count == 0
    best.mask = all_nodes(nodes)
    if count == 0:
        return best

    for index in range(count):
        if is_empty(&families[index]):
            return best

        preferred_families[index] = families[index]
        memset(
            preferred_families[index].unpreferred, 0, sizeof(preferred_families[index].unpreferred)
        )
        preferred_families[index].any_unpreferred = False
        all_prefer = all_prefer and not is_empty(&preferred_families[index])

    if all_prefer:
        reach(preferred_families, count, nodes, reached)
        for size in range(1, nodes + 1):
            if best_of_size(reached, size, NULL, &best.mask):
                best.is_found = best.preferred = True
                return best

    reach(families, count, nodes, reached)
    for size in range(1, nodes + 1):
        if best_of_size(reached, size, NULL, &best.mask):
            best.is_found = True
            return best

    return best


cdef void keep_single_nodes_as_written(Family* family) noexcept nogil:
    """Keep the hints of exactly one node and the any-node hints.

    They are kept whether they are preferred or not.
    """
    cdef int word
    for word in range(4):
        family.preferred[word] &= OF_SIZE[1][word]
        family.unpreferred[word] &= OF_SIZE[1][word]


cdef void keep_single_nodes(Family* family) noexcept nogil:
    """Keep the preferred hints of exactly one node, and the preferred any-node hint."""
    cdef int word
    for word in range(4):
        family.preferred[word] &= OF_SIZE[1][word]
        family.unpreferred[word] = 0
    family.any_unpreferred = False
