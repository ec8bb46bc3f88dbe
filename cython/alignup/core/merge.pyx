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
from typing import NamedTuple

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, lowest, popcount
from alignup.core.narrow.family cimport Family, cut, is_empty, pack_masks, put
from alignup.core.narrow.tables cimport OF_SIZE, SUPERSETS
from alignup.core.hints cimport HintList, TopologyHint, hint_of
from alignup.core.wide.merge cimport Searched, search_best


cdef enum:
    MOST_LISTS = 64
    # Counts of permutations fit 32 bits for so many lists: each has at most 255 masks, and 255^4 < 2^32.
    LISTS_A_PRODUCT = 4
    EIGHTS = 32                 # so many words of eight counts, a byte each, count for every mask

# The sum over all pairs of 64 nodes fits 63 bits with room to spare. Firmware gives at most 255.
MOST_DISTANCE = 1 << 40


cdef int wanted_size(const Family* families, int count) noexcept nogil:
    """Return the largest of the lists' smallest mask sizes; lists without a masked hint do not count."""
    cdef int index, size, word, wanted = 0
    cdef uint64_t found
    for index in range(count):
        for size in range(NARROW_NODES + 1):
            found = 0
            for word in range(4):
                found |= OF_SIZE[size][word] & (families[index].preferred[word] | families[index].other[word])
            if found:
                wanted = max(wanted, size)
                break
    return wanted


cdef bint best_of_size(const uint64_t* masks, int size, const int64_t* distances, uint64_t* best) noexcept nogil:
    """Find the best mask of one size in a set of masks: the nearest when distances count, then the lowest value."""
    cdef int word
    cdef uint64_t mask, rest
    cdef bint found = False
    for word in range(4):
        rest = masks[word] & OF_SIZE[size][word]
        while rest:
            mask = <uint64_t>word << 6 | lowest(rest)
            rest &= rest - 1
            if not found or distances[mask] < distances[best[0]]:
                found = True
                best[0] = mask
            if distances == NULL:
                return True
    return found


cdef Best best_preferred(const Family* families, int count, uint64_t full, const int64_t* distances) noexcept nogil:
    """Return the best mask that every list prefers: the fewest nodes, the nearest to each other, the lowest value."""
    cdef Best best
    cdef uint64_t common[4]
    cdef uint64_t named[4]
    cdef int index, word, size, nodes = popcount(full)
    best.found = True           # until a list turns up that does not prefer any node
    best.preferred = True
    best.mask = full
    memset(common, 0xFF, sizeof(common))
    memset(named, 0, sizeof(named))
    for index in range(count):
        for word in range(4):
            named[word] |= families[index].preferred[word]
        if not families[index].any_preferred:
            best.found = False
            for word in range(4):
                common[word] &= families[index].preferred[word]
    for word in range(4):
        common[word] &= named[word]
    if not (common[0] | common[1] | common[2] | common[3]):
        return best
    cut(common, nodes)
    for size in range(1, nodes + 1):
        if best_of_size(common, size, distances, &best.mask):
            best.found = True
            break
    return best


cdef void count_including(const uint64_t* masks, int nodes, uint64_t* counts) noexcept nogil:
    """Count, for each mask, the masks of a set that include it: 255 at most, as the empty one is not in the set.

    Three nodes are looked up in a table, eight counts at a time; each further node adds the counts of the masks
    with it to those of the masks without, again eight in one addition of 64 bits.
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
    """Take the counts of the masks with one node (of value `step`) from those of the same masks without it."""
    cdef int start = 0, offset
    while start < size:
        for offset in range(start, start + step):
            counts[offset] -= counts[offset + step]
        start += 2 * step


cdef void keep_reached(uint32_t* counts, int nodes, uint64_t* reached) noexcept nogil:
    """Turn counts of permutations whose masks all include a mask into the set of masks that some AND to exactly."""
    cdef uint8_t some[NARROW_MASKS]
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
    memset(some, 0, 8)
    for mask in range(size):
        some[mask] = counts[mask] != 0
    pack_masks(some, size, reached)
    reached[0] &= ~<uint64_t>1


cdef inline void multiply(
    const uint8_t* first, const uint8_t* second, const uint8_t* third, const uint8_t* fourth, int size,
    uint32_t* products,
) noexcept nogil:
    """Multiply the counts of four lists: in pairs, whose products fit 16 bits, and then the pairs."""
    cdef int mask
    cdef uint16_t one, other
    for mask in range(size):
        one = <uint16_t>(first[mask] * second[mask])
        other = <uint16_t>(third[mask] * fourth[mask])
        products[mask] = <uint32_t>one * other


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
                    masks[word] = families[index].preferred[word] | families[index].other[word]
                cut(masks, nodes)
                if families[index].any_preferred or families[index].any_other:
                    put(masks, full)
                count_including(masks, nodes, factors[factor])
                index += 1
            else:
                memset(factors[factor], 1, NARROW_MASKS)
            factor += 1
        multiply(
            <const uint8_t*>factors[0], <const uint8_t*>factors[1], <const uint8_t*>factors[2],
            <const uint8_t*>factors[3], full + 1, products,
        )
        keep_reached(products, nodes, reached)


cdef Best merge_families(const Family* families, int count, int nodes, const int64_t* distances) noexcept nogil:
    """Return the best result of the product of `count` lists on a machine of `nodes` nodes.

    Where nothing is preferred the size comes first: nearest to that of the neediest list's smallest mask from
    below, then above it.
    """
    cdef uint64_t reached[4]
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
    wanted = wanted_size(families, count)
    reach(families, count, nodes, reached)
    for size in range(min(wanted, nodes), 0, -1):
        if best_of_size(reached, size, distances, &best.mask):
            return best
    for size in range(wanted + 1, nodes + 1):
        if best_of_size(reached, size, distances, &best.mask):
            return best
    return best


cdef void keep_single_nodes(Family* family) noexcept nogil:
    """Keep the preferred hints of exactly one node, and the preferred any-node hint."""
    cdef int word
    for word in range(4):
        family.preferred[word] &= OF_SIZE[1][word]
        family.other[word] = 0
    family.any_other = False


cdef tuple checked_rows(int numa_nodes, object distances):
    """Return the distances as tuples of whole numbers, a row for each node."""
    cdef tuple rows = tuple([tuple([as_whole(distance) for distance in row]) for row in distances])
    cdef list lengths = [len(row) for row in rows]
    if lengths != [numa_nodes] * numa_nodes:
        raise ValueError(f"expected {numa_nodes} rows of {numa_nodes} distances, got rows of {lengths}")
    for row in rows:
        for distance in row:
            if abs(distance) > MOST_DISTANCE:
                raise ValueError(f"expected distances of at most {MOST_DISTANCE}, got {distance}")
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


class Merged(NamedTuple):
    """The best hints that `Merger.merge_many` found: three arrays with an entry for each group of lists."""

    masks: object
    preferred: object
    exact: object


cdef class Families:
    """The lists of many groups, copied side by side, so that merging them needs no Python object."""

    cdef Py_ssize_t groups
    cdef Py_ssize_t* starts         # the lists of group g: from starts[g] to starts[g + 1]
    cdef Family* all
    cdef list wide_groups           # the groups that need a search; they have no lists here

    def __cinit__(self, int numa_nodes, list batch):
        cdef Py_ssize_t group, count = 0
        cdef list lists
        self.wide_groups = []
        self.groups = len(batch)
        for lists in batch:
            count += len(lists)
        self.starts = <Py_ssize_t*>calloc(self.groups + 1, sizeof(Py_ssize_t))
        self.all = <Family*>calloc(count + 1, sizeof(Family))
        if self.starts == NULL or self.all == NULL:
            raise MemoryError
        for group in range(self.groups):
            self.starts[group + 1] = self.starts[group]
            self.copy_lists(group, batch[group], numa_nodes <= NARROW_NODES)

    cdef int copy_lists(self, Py_ssize_t group, list lists, bint narrow) except -1:
        cdef Py_ssize_t place = self.starts[group]
        if len(lists) > MOST_LISTS:
            raise ValueError(f"expected at most {MOST_LISTS} hint lists, got {len(lists)} in group {group}")
        for hints in lists:
            if not isinstance(hints, HintList):
                raise TypeError(f"expected HintList objects, got {hints!r} in group {group}")
            self.all[place] = (<HintList>hints).family
            narrow = narrow and (<HintList>hints).wide is None
            place += 1
        if narrow:
            self.starts[group + 1] = place
        else:
            self.wide_groups.append(group)
        return 0

    def __dealloc__(self):
        free(self.starts)
        free(self.all)


cdef class Results:
    """The best hint of each group."""

    cdef Py_ssize_t count
    cdef Best* best
    cdef bytearray exact

    def __cinit__(self, Py_ssize_t count):
        self.count = count
        self.exact = bytearray(b"\x01") * count
        self.best = <Best*>calloc(count + 1, sizeof(Best))
        if self.best == NULL:
            raise MemoryError

    cdef void keep(self, Py_ssize_t group, TopologyHint hint) except *:
        self.best[group].mask = hint.affinity.word
        self.best[group].preferred = hint.preferred
        self.exact[group] = hint.exact

    def merged(self, dtype):
        """Return the arrays."""
        import numpy  # only who asks for arrays pays for it

        cdef Py_ssize_t group
        cdef uint64_t* masks
        cdef char* preferred
        cdef bytearray words = bytearray(8 * self.count), flags = bytearray(self.count)
        masks = <uint64_t*>PyByteArray_AS_STRING(words)
        preferred = PyByteArray_AS_STRING(flags)
        for group in range(self.count):
            masks[group] = self.best[group].mask
            preferred[group] = self.best[group].preferred != 0
        return Merged(
            numpy.ndarray(self.count, "u8", words).astype(dtype),
            numpy.ndarray(self.count, "?", flags),
            numpy.ndarray(self.count, "?", self.exact),
        )

    def __dealloc__(self):
        free(self.best)


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
        if self.numa_nodes:
            raise TypeError("a Merger cannot be changed: make another")
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

    def merge_many(self, groups, bint single_nodes=False):
        """Return the best hint of each of many groups of lists, as `merge` would, in one call.

        The masks of up to 8 nodes are merged without the GIL, so that other threads go on meanwhile.

        Args:
            groups: sequences of HintList objects, at most 64 in each.
            single_nodes: as for `merge`.

        Returns:
            Merged(masks, preferred, exact), an array entry for each group in its place: the mask (uint8 up to 8
            NUMA nodes, else uint64; all nodes of the machine where nothing is in common), and as bool whether it is
            preferred, and whether no search ran into its limit.

        Raises:
            TypeError: a group holds something else than HintList objects.
            ValueError: a group has more than 64 lists.
        """
        cdef list batch = [list(lists) for lists in groups]
        cdef Results results = Results(len(batch))
        cdef Families families = Families(self.numa_nodes, batch)
        cdef const int64_t* sums = self.sums if self.closest and not single_nodes else NULL
        cdef Py_ssize_t group, place
        cdef int index, nodes = self.numa_nodes
        with nogil:
            for group in range(families.groups):
                place = families.starts[group]
                if single_nodes:
                    for index in range(<int>(families.starts[group + 1] - place)):
                        keep_single_nodes(&families.all[place + index])
                results.best[group] = merge_families(
                    families.all + place, <int>(families.starts[group + 1] - place), nodes, sums
                )
        for group in families.wide_groups:
            results.keep(group, self.merge_wide(batch[group], single_nodes))
        return results.merged("u1" if nodes <= NARROW_NODES else "u8")

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
