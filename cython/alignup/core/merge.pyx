"""Merge hint lists into the one best hint, without walking their product.

The definition is the kubelet's: take one hint from every list, AND the masks, call the result
preferred if all were preferred and all masks equal, and keep the best result by a total order.
Under a total order only the set of reachable results matters, and that set needs no product. Up to
8 nodes it is found over 256 masks at once (`alignup.core.narrow.merge`), beyond by search
(`alignup.core.wide.merge`). How the policies use the result is said in
`alignup.topology_manager.policy`.
"""

from collections.abc import Mapping
from functools import partial
from operator import index as as_whole
from typing import NamedTuple

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES
from alignup.core.hints import IMPOSSIBLE, NO_PREFERENCE
from alignup.core.hints cimport HintList, TopologyHint, hint_of
from alignup.core.narrow.family cimport Family
from alignup.core.narrow.merge cimport (
    Best,
    keep_single_nodes,
    keep_single_nodes_as_written,
    merge_as_written,
    merge_families,
)
from alignup.core.wide.merge cimport Searched, search_best


cdef enum:
    MOST_LISTS = 64

# The sum over all pairs of 64 nodes fits 63 bits with room to spare. Firmware gives at most 255.
MOST_DISTANCE = 1 << 40


def flatten(providers_hints):
    """Return one packed list for each resource of each provider.

    The two special cases become hints here: a provider without hints, or a resource without a list,
    has no preference (`NO_PREFERENCE`); an empty list cannot be satisfied (`IMPOSSIBLE`), so that
    no result is preferred.

    Raises:
        TypeError: a provider's answer is no mapping, or what is in a list is no hint.
    """
    cdef list lists = []

    for resources in providers_hints:
        if not resources and (resources is None or isinstance(resources, Mapping)):
            lists.append(NO_PREFERENCE)
        elif type(resources) is dict:
            for resource, hints in (<dict>resources).items():
                lists.append(offered(resource, hints))
        elif isinstance(resources, Mapping):
            for resource, hints in resources.items():
                lists.append(offered(resource, hints))
        else:
            raise TypeError(
                f"expected a mapping of resources to hints, or None, got {resources!r} from a "
                "provider"
            )

    return lists


cdef HintList offered(object resource, object hints):
    """Return what a provider offers of a resource as a list that is not empty."""
    cdef HintList packed

    if hints is None:
        return NO_PREFERENCE
    if type(hints) is HintList:
        packed = hints
    else:
        try:
            packed = HintList(hints)
        except TypeError as error:
            raise TypeError(f"{error} as hints of {resource!r}") from error

    return IMPOSSIBLE if packed.has_no_hints() else packed


cdef tuple checked_rows(int numa_nodes, object distances):
    """Return the distances as tuples of whole numbers, a row for each node."""
    cdef tuple rows = tuple([tuple([as_whole(distance) for distance in row]) for row in distances])
    cdef list lengths = [len(row) for row in rows]

    if lengths != [numa_nodes] * numa_nodes:
        raise ValueError(
            f"expected {numa_nodes} rows of {numa_nodes} distances, got rows of {lengths}"
        )
    for row in rows:
        for distance in row:
            if not 0 <= distance <= MOST_DISTANCE:
                raise ValueError(f"expected distances of 0 to {MOST_DISTANCE}, got {distance}")
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


cdef Best merged(
    Family* families, int count, int nodes, const int64_t* sums, bint single_nodes, bint as_written
) noexcept nogil:
    """Return the best result of lists over up to 8 NUMA nodes.

    With `single_nodes` the lists are cut to these.
    """
    cdef int index

    if single_nodes:
        for index in range(count):
            if as_written:
                keep_single_nodes_as_written(&families[index])
            else:
                keep_single_nodes(&families[index])
    if as_written:
        return merge_as_written(families, count, nodes)
    return merge_families(families, count, nodes, sums)


class Merged(NamedTuple):
    """The best hints that `Merger.merge_many` found.

    These are three arrays with an entry for each group of lists.
    """

    masks: object
    preferred: object
    exact: object


cdef class Families:
    """The lists of many groups, copied side by side.

    Merging them needs no Python object.
    """

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
            raise ValueError(
                f"expected at most {MOST_LISTS} hint lists, got {len(lists)} in group {group}"
            )

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
        import numpy  # imported late: only arrays need it

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
        distances: None, or a row of distances for each node: masks of equal size are then
            compared by the sum of the distances between their nodes first
            (prefer-closest-numa-nodes).
        as_written: merge as KEP-693 and the article say: a result is preferred where all of its
            hints are, whatever masks they have; preferred ones come first, then the narrowest, then
            the mask of the smallest value. Single nodes are then kept whether they are preferred or
            not. Only up to 8 nodes, and without distances.

    Raises:
        ValueError: there is not a distance from each node to each, or what the documents do not
            have.

    Examples:
        >>> cpu = HintList([TopologyHint(BitMask([0]), True), TopologyHint(BitMask([1]), True)])
        >>> gpu = HintList([TopologyHint(BitMask([1]), True)])
        >>> merger = Merger(numa_nodes=2)
        >>> best = merger.merge([cpu, gpu])
        >>> best.affinity, best.preferred
        (BitMask([1]), True)
        >>> masks, preferred, exact = merger.merge_many([[cpu, gpu], [cpu]])
        >>> masks.tolist(), preferred.tolist()
        ([2, 1], [True, True])
    """

    cdef readonly int numa_nodes
    cdef readonly bint as_written
    cdef bint closest
    cdef tuple rows                 # the distances as they came, for copies
    cdef int64_t sums[NARROW_MASKS]
    # 64 x 64, beyond 8 nodes only: most nodes have few, and there are many nodes
    cdef int64_t* distances

    def __init__(self, numa_nodes, distances=None, *, bint as_written=False):
        cdef int row, column, mask
        cdef tuple rows = None

        if self.numa_nodes:
            raise TypeError("a Merger cannot be changed: make another")

        try:
            numa_nodes = as_whole(numa_nodes)
        except TypeError:
            raise TypeError(f"expected 1 to 64 NUMA nodes, got {numa_nodes!r:.80}") from None

        if not 1 <= numa_nodes <= 64:
            raise ValueError(f"expected 1 to 64 NUMA nodes, got {numa_nodes}")

        if distances is not None:
            rows = checked_rows(numa_nodes, distances)

        if as_written and (rows is not None or numa_nodes > NARROW_NODES):
            raise ValueError(
                f"expected at most {NARROW_NODES} NUMA nodes and no distances, "
                "as the documents have it"
            )

        self.numa_nodes = numa_nodes
        self.as_written = as_written
        self.closest = rows is not None
        self.rows = rows
        if not self.closest:
            return

        if numa_nodes > NARROW_NODES:
            self.distances = table_of(rows)
            return

        for mask in range(1 << self.numa_nodes):
            self.sums[mask] = 0
            for row in range(self.numa_nodes):
                for column in range(self.numa_nodes):
                    if mask >> row & 1 and mask >> column & 1:
                        self.sums[mask] += self.rows[row][column]

    def __dealloc__(self):
        free(self.distances)

    def __reduce__(self):
        return partial(Merger, as_written=self.as_written), (self.numa_nodes, self.rows)

    def merge(self, list lists not None, bint single_nodes=False):
        """Return the best hint of the product of the lists.

        Args:
            lists: HintList objects, at most 64.
            single_nodes: keep only preferred hints of one node or of any node, as
                single-numa-node does; the distances are then ignored.

        Raises:
            ValueError: there are more lists, or one names nodes beyond the machine where the
                documents are followed.
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
            best = merged(families, count, self.numa_nodes, sums, single_nodes, self.as_written)

        return hint_of(best.mask, False, best.preferred)

    def merge_many(self, groups, bint single_nodes=False):
        """Return the best hint of each of many groups of lists, as `merge` would, in one call.

        The masks of up to 8 nodes are merged without the GIL, so that other threads go on
        meanwhile.

        Args:
            groups: sequences of HintList objects, at most 64 in each.
            single_nodes: as for `merge`.

        Returns:
            Merged(masks, preferred, exact), an array entry for each group in its place: the mask
            (uint8 up to 8 NUMA nodes, else uint64; all nodes of the machine where nothing is in
            common), and as bool whether it is preferred, and whether no search ran into its limit.

        Raises:
            TypeError: a group holds something else than HintList objects.
            ValueError: a group has more than 64 lists.
        """
        cdef list batch = [list(lists) for lists in groups]
        cdef Results results = Results(len(batch))
        cdef Families families = Families(self.numa_nodes, batch)
        cdef const int64_t* sums = self.sums if self.closest and not single_nodes else NULL
        cdef Py_ssize_t group, place
        cdef int nodes = self.numa_nodes

        with nogil:
            for group in range(families.groups):
                place = families.starts[group]
                results.best[group] = merged(
                    families.all + place,
                    <int>(families.starts[group + 1] - place),
                    nodes,
                    sums,
                    single_nodes,
                    self.as_written,
                )

        for group in families.wide_groups:
            results.keep(group, self.merge_wide(batch[group], single_nodes))

        return results.merged("u1" if nodes <= NARROW_NODES else "u8")

    cdef TopologyHint merge_wide(self, list lists, bint single_nodes):
        cdef bint closest = self.closest and not single_nodes
        cdef int64_t* table = NULL
        cdef const int64_t* distances = NULL
        cdef Searched best

        if self.as_written:
            raise ValueError(f"expected hints over the {self.numa_nodes} NUMA nodes of the machine")

        if closest and self.distances == NULL:
            # Up to 8 nodes only a list that names nodes beyond the machine comes here.
            table = table_of(self.rows)
            distances = table
        elif closest:
            distances = self.distances

        try:
            best = search_best(lists, self.numa_nodes, single_nodes, distances)
        finally:
            free(table)

        cdef TopologyHint hint = hint_of(best.mask, False, best.preferred)
        hint.exact = best.exact
        return hint
