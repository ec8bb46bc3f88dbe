"""Merge hint lists into the one best hint, without walking their product.

The definition is the kubelet's: take one hint from every list, AND the masks, call the result preferred if all
were preferred and all masks equal, and keep the best result by a total order. Under a total order only the set
of reachable results matters, and that set needs no product:

- preferred results are the masks that every list prefers (a preferred any-node hint joins any of them);
- reachable masks come from a product of sums over supersets, taken back at the end: a mask is reachable exactly
  if the number of permutations that AND to it is not zero.

Up to 8 nodes this happens here, over 256 masks at once; wider lists go to `alignup.core.wide.merge`. What the
policies make of the result is said in `alignup.topology_manager.policy`.
"""

from operator import index as as_whole

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, popcount
from alignup.core.narrow.family cimport Family, has, is_empty, sum_over_supersets, undo_sum_over_supersets
from alignup.core.hints cimport HintList, TopologyHint, hint_of
from alignup.core.narrow.tables cimport BY_SIZE, OF_SIZE, SIZE_STARTS
from alignup.core.wide.merge cimport Searched, search_best


cdef enum:
    MOST_LISTS = 64
    # Counts of permutations fit 64 bits for so many lists of 256 hints.
    LISTS_A_PRODUCT = 6


cdef inline bint fitter(uint64_t one, uint64_t other, const int64_t* distances) noexcept nogil:
    """Return whether `one` beats `other`: fewer nodes, then (when given) nearer to each other, then lower value."""
    cdef int one_count = popcount(one), other_count = popcount(other)
    if one_count != other_count:
        return one_count < other_count
    if distances != NULL and distances[one] != distances[other]:
        return distances[one] < distances[other]
    return one < other


cdef void keep_single_nodes(Family* family) noexcept nogil:
    """Keep the preferred hints of exactly one node, and the preferred any-node hint."""
    cdef int word, node
    cdef uint64_t singles[4]
    memset(singles, 0, sizeof(singles))
    for node in range(NARROW_NODES):
        singles[(1 << node) >> 6] |= (<uint64_t>1) << ((1 << node) & 63)
    for word in range(4):
        family.preferred[word] &= singles[word]
        family.other[word] = 0
    family.any_other = False


cdef int wanted_size(const Family* families, int count) noexcept nogil:
    """Return the largest of the lists' smallest mask sizes; lists without a masked hint do not count."""
    cdef int index, size, word, wanted = 0
    for index in range(count):
        for size in range(NARROW_NODES + 1):
            for word in range(4):
                if OF_SIZE[size][word] & (families[index].preferred[word] | families[index].other[word]):
                    break
            else:
                continue
            wanted = max(wanted, size)
            break
    return wanted


cdef Best best_preferred(const Family* families, int count, uint64_t full, const int64_t* distances) noexcept nogil:
    """Return the best mask that every list prefers."""
    cdef Best best
    cdef uint64_t common[4]
    cdef uint64_t named[4]
    cdef uint64_t merged
    cdef int index, word, mask
    cdef bint anywhere = True
    best.found = False
    best.preferred = True
    best.mask = 0
    memset(common, 0xFF, sizeof(common))
    memset(named, 0, sizeof(named))
    for index in range(count):
        anywhere = anywhere and families[index].any_preferred
        for word in range(4):
            named[word] |= families[index].preferred[word]
            if not families[index].any_preferred:
                common[word] &= families[index].preferred[word]
    if anywhere:
        best.found = True
        best.mask = full
    for word in range(4):
        common[word] &= named[word]
        if not common[word]:
            continue
        for mask in range(word * 64, word * 64 + 64):
            merged = <uint64_t>mask & full
            if merged and has(common, mask) and (not best.found or fitter(merged, best.mask, distances)):
                best.found = True
                best.mask = merged
    return best


cdef void count_permutations(const Family* family, uint64_t full, int nodes, uint64_t* counts) noexcept nogil:
    """Count, for each mask, the hints of a list whose mask includes it."""
    cdef int index, mask
    cdef uint64_t word
    memset(counts, 0, sizeof(uint64_t) << nodes)
    for index in range(4):
        word = family.preferred[index] | family.other[index]
        if not word:
            continue
        for mask in range(64):
            counts[<uint64_t>(index << 6 | mask) & full] += (word >> mask) & 1
    if family.any_preferred or family.any_other:
        counts[full] += 1
    sum_over_supersets(counts, nodes)


cdef void reach(const Family* families, int count, uint64_t full, int nodes, uint64_t* reached) noexcept nogil:
    """Make `reached[mask]` non-zero for each mask that some permutation ANDs to."""
    cdef uint64_t counts[NARROW_MASKS]
    cdef int index, mask, size = 1 << nodes
    for mask in range(size):
        reached[mask] = 1
    for index in range(count):
        count_permutations(&families[index], full, nodes, counts)
        for mask in range(size):
            reached[mask] *= counts[mask]
        if index % LISTS_A_PRODUCT == LISTS_A_PRODUCT - 1 and index + 1 < count:
            undo_sum_over_supersets(reached, nodes)
            for mask in range(size):
                reached[mask] = reached[mask] != 0
            sum_over_supersets(reached, nodes)
    undo_sum_over_supersets(reached, nodes)


cdef Best merge_families(const Family* families, int count, int nodes, const int64_t* distances) noexcept nogil:
    """Return the best result of the product of `count` lists on a machine of `nodes` nodes.

    Where nothing is preferred the size comes first: nearest to that of the neediest list's smallest mask from
    below, then above it.
    """
    cdef uint64_t reached[NARROW_MASKS]
    cdef uint64_t full = all_nodes(nodes)
    cdef int index, size, wanted
    cdef Best best
    best.found = False
    best.preferred = False
    best.mask = full
    for index in range(count):
        if is_empty(&families[index]):
            return best
    best = best_preferred(families, count, full, distances)
    if best.found:
        return best
    best.preferred = False
    best.mask = full
    wanted = wanted_size(families, count)
    reach(families, count, full, nodes, reached)
    for size in range(min(wanted, nodes), 0, -1):
        if best_of_size(reached, size, nodes, distances, &best.mask):
            return best
    for size in range(wanted + 1, nodes + 1):
        if best_of_size(reached, size, nodes, distances, &best.mask):
            return best
    return best


cdef bint best_of_size(
    const uint64_t* reached, int size, int nodes, const int64_t* distances, uint64_t* best
) noexcept nogil:
    """Find the best reached mask of a size: the nearest nodes when distances count, then the lowest value."""
    cdef int index, mask
    cdef bint found = False
    for index in range(SIZE_STARTS[size], SIZE_STARTS[size + 1]):
        mask = BY_SIZE[index]
        if mask >> nodes:
            break
        if reached[mask] and (not found or (distances != NULL and distances[mask] < distances[best[0]])):
            found = True
            best[0] = mask
            if distances == NULL:
                break
    return found


cdef tuple checked_rows(int numa_nodes, object distances):
    """Return the distances as tuples of whole numbers, a row for each node."""
    cdef tuple rows = tuple([tuple([as_whole(distance) for distance in row]) for row in distances])
    cdef list lengths = [len(row) for row in rows]
    if lengths != [numa_nodes] * numa_nodes:
        raise ValueError(f"expected {numa_nodes} rows of {numa_nodes} distances, got rows of {lengths}")
    return rows


cdef int64_t* table_of(tuple rows) except NULL:
    """Return the distances as `search_best` takes them; to be freed by the caller."""
    cdef int row, column
    cdef tuple distances
    cdef int64_t* table = <int64_t*>calloc(64 * 64, sizeof(int64_t))
    if table == NULL:
        raise MemoryError
    try:
        for row, distances in enumerate(rows):
            for column in range(len(distances)):
                table[row * 64 + column] = distances[column]
    except OverflowError:
        free(table)
        raise
    return table


cdef class Merger:
    """Merges hint lists on a machine of `numa_nodes` nodes.

    Args:
        numa_nodes: 1 to 64.
        distances: None, or a row of distances for each node: masks of equal size are then compared by the sum of
            the distances between their nodes first (prefer-closest-numa-nodes).

    Raises:
        ValueError: there is not a distance from each node to each.
    """

    cdef readonly int numa_nodes
    cdef bint closest
    cdef tuple rows                 # the distances as they came, for copies
    cdef int64_t sums[NARROW_MASKS]
    cdef int64_t* distances         # 64 x 64, beyond 8 nodes only: most nodes have few, and there are many nodes

    def __init__(self, int numa_nodes, distances=None):
        cdef int row, column, mask
        cdef tuple rows = None
        if not 1 <= numa_nodes <= 64:
            raise ValueError(f"expected 1 to 64 NUMA nodes, got {numa_nodes}")
        if distances is not None:
            rows = checked_rows(numa_nodes, distances)
        self.numa_nodes = numa_nodes
        self.closest = rows is not None
        self.rows = rows
        if not self.closest:
            return
        if numa_nodes > NARROW_NODES:
            free(self.distances)
            self.distances = NULL
            self.distances = table_of(rows)
            return
        for mask in range(1 << numa_nodes):
            self.sums[mask] = 0
            for row in range(numa_nodes):
                for column in range(numa_nodes):
                    if mask >> row & 1 and mask >> column & 1:
                        self.sums[mask] += self.rows[row][column]

    def __dealloc__(self):
        free(self.distances)

    def __reduce__(self):
        return Merger, (self.numa_nodes, self.rows)

    def merge(self, list lists not None, bint single_nodes=False):
        """Return the best hint of the product of the lists.

        Args:
            lists: HintList objects, at most 64.
            single_nodes: keep only preferred hints of one node or of any node, as single-numa-node does; the
                distances are then ignored.
        """
        cdef Family families[MOST_LISTS]
        cdef int index, count = len(lists)
        cdef bint narrow = self.numa_nodes <= NARROW_NODES
        cdef Best best
        cdef const int64_t* sums = self.sums if self.closest and not single_nodes else NULL
        if count > MOST_LISTS:
            raise ValueError(f"expected at most {MOST_LISTS} hint lists, got {count}")
        for index in range(count):
            families[index] = (<HintList?>lists[index]).family
            narrow = narrow and (<HintList>lists[index]).wide is None
        if not narrow:
            return self.merge_wide(lists, single_nodes)
        with nogil:
            if single_nodes:
                for index in range(count):
                    keep_single_nodes(&families[index])
            best = merge_families(families, count, self.numa_nodes, sums)
        return hint_of(best.mask, False, best.preferred)

    cdef TopologyHint merge_wide(self, list lists, bint single_nodes):
        cdef bint closest = self.closest and not single_nodes
        cdef int64_t* own = NULL
        cdef Searched best
        if closest and self.distances == NULL:
            # Up to 8 nodes only a list that names nodes beyond the machine comes here.
            own = table_of(self.rows)
        try:
            best = search_best(
                lists, self.numa_nodes, single_nodes, (own if own != NULL else self.distances) if closest else NULL
            )
        finally:
            free(own)
        cdef TopologyHint hint = hint_of(best.mask, False, best.preferred)
        hint.exact = best.exact
        return hint
