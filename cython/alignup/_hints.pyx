"""Hints and packed lists of hints, and the doors through which providers make them.

Which hint wins is decided in `_merge`.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memset

from alignup._bitmask cimport all_nodes, lowest, mask_of, popcount
from alignup._family cimport (
    NARROW_MASKS, NARROW_NODES, has, is_empty, keep_holding, put_hint, smallest_count,
)
from alignup._cover cimport smallest_described
from alignup._listing cimport best_of_family, sample_pairs, total_of
from alignup._wide cimport Description, described_family, holds, listed_family, prefers

MAX_NUMA_NODES = 64
# A described list of more hints than this is sampled, never walked.
MOST_HINTS = 65536
SEARCH_STEPS = 5_000_000


cdef TopologyHint hint_of(uint64_t mask, bint is_any, bint preferred):
    cdef TopologyHint hint = TopologyHint.__new__(TopologyHint)
    hint.affinity = None if is_any else mask_of(mask)
    hint.preferred = preferred
    return hint


cdef class TopologyHint:
    """A set of NUMA nodes a request could be satisfied from, and whether that is as good as the machine allows.

    `affinity` None means any node.

    >>> TopologyHint(BitMask([0]), True)
    TopologyHint(BitMask([0]), True)
    """

    __match_args__ = ("affinity", "preferred")

    def __init__(self, BitMask affinity, bint preferred):
        self.affinity = affinity
        self.preferred = preferred

    def __eq__(self, other):
        if not isinstance(other, TopologyHint):
            return NotImplemented
        return self.preferred == (<TopologyHint>other).preferred and self.affinity == (<TopologyHint>other).affinity

    def __hash__(self):
        return hash((self.affinity, self.preferred))

    def __repr__(self):
        return f"TopologyHint({self.affinity!r}, {self.preferred})"

    def __reduce__(self):
        return TopologyHint, (self.affinity, self.preferred)


cdef class HintList:
    """An immutable sequence of hints, packed so that a merge touches no Python object.

    A list made from hints keeps their order; lists that providers compute are in ascending order, narrowest
    first. An empty list means that the resource cannot be satisfied.

    >>> HintList([TopologyHint(BitMask([0]), True), TopologyHint(BitMask([0, 1]), False)])[1]
    TopologyHint(BitMask([0, 1]), False)
    """

    def __init__(self, hints=()):
        cdef TopologyHint hint
        cdef list masks = [], preferred = []
        self.given = tuple(hints)
        for item in self.given:
            if not isinstance(item, TopologyHint):
                raise TypeError(f"expected TopologyHint objects, got {item!r}")
            hint = item
            if hint.affinity is None:
                if hint.preferred:
                    self.family.any_preferred = True
                else:
                    self.family.any_other = True
            else:
                masks.append(hint.affinity.word)
                preferred.append(hint.preferred)
        if masks and max(masks) >= NARROW_MASKS:
            self.wide = listed_family(masks, preferred)
            return
        for mask, is_preferred in zip(masks, preferred):
            put_hint(&self.family, mask, is_preferred)

    @staticmethod
    def empty():
        """Return the list without hints: the resource cannot be satisfied anywhere."""
        return HintList.__new__(HintList)

    cdef bint holds_nothing(self):
        if self.given is not None:
            return len(self.given) == 0
        if self.wide is None:
            return is_empty(&self.family)
        return not self.wide.described and self.wide.listed_count == 0

    def pairs(self):
        """Return (mask as an int or None for any node, preferred) for each hint, in the order of iteration."""
        cdef TopologyHint hint
        cdef list found = []
        cdef int mask
        if self.given is not None:
            for item in self.given:
                hint = item
                found.append((None if hint.affinity is None else hint.affinity.word, bool(hint.preferred)))
            return found
        if self.wide is not None:
            return self.any_node_pairs(self.all_wide_pairs())
        for mask in range(NARROW_MASKS):
            if has(self.family.preferred, mask):
                found.append((mask, True))
            elif has(self.family.other, mask):
                found.append((mask, False))
        found.sort(key=narrowest_first)
        return self.any_node_pairs(found)

    cdef list any_node_pairs(self, list found):
        """Add the hints without a mask at the end."""
        if self.family.any_preferred:
            found.append((None, True))
        if self.family.any_other:
            found.append((None, False))
        return found

    cdef list all_wide_pairs(self):
        total = total_of(self.wide)
        if total is None or total > MOST_HINTS:
            count = "too many to count" if total is None else total
            raise OverflowError(f"expected at most {MOST_HINTS} hints to walk through, got {count}; use sample()")
        return sample_pairs(self.wide, total)

    def total(self):
        """Return how many hints there are, None when there are too many to count.

        Beyond 8 NUMA nodes a list may describe more hints than can be walked; `len` and iteration then raise
        OverflowError, and `sample` shows some.
        """
        if self.given is not None or self.wide is None:
            return len(self)
        total = total_of(self.wide)
        return None if total is None else total + self.family.any_preferred + self.family.any_other

    def sample(self, int limit):
        """Return the first `limit` hints; of a described list that are the narrowest."""
        if self.given is not None or self.wide is None:
            return self.hints()[:limit]
        pairs = self.any_node_pairs(sample_pairs(self.wide, limit))
        return tuple([hint_of(mask or 0, mask is None, preferred) for mask, preferred in pairs[:limit]])

    def best(self):
        """Return (mask, preferred) of the best hint with a mask, None if there is none.

        Best: preferred ones first, then the narrowest.
        """
        return self.best_containing(0)

    def best_containing(self, uint64_t inner):
        """Return the same as `best`, among the hints whose mask includes `inner`."""
        cdef list found
        if self.wide is not None and self.given is None:
            return best_of_family(self.wide, inner)
        found = [
            (not preferred, popcount(mask), mask)
            for mask, preferred in self.pairs()
            if mask is not None and (<uint64_t>mask) & inner == inner
        ]
        if not found:
            return None
        other, _, mask = min(found)
        return mask, not other

    def __len__(self):
        return len(self.given) if self.given is not None else len(self.pairs())

    def __bool__(self):
        return not self.holds_nothing()

    def __iter__(self):
        return iter(self.hints())

    def __getitem__(self, index):
        return self.hints()[index]

    def __contains__(self, hint):
        return hint in self.hints()

    def hints(self):
        """Return the hints as a tuple of objects."""
        if self.given is not None:
            return self.given
        return tuple([hint_of(mask or 0, mask is None, preferred) for mask, preferred in self.pairs()])

    def __eq__(self, other):
        if not isinstance(other, HintList):
            return NotImplemented
        return self.pairs() == other.pairs()

    def __hash__(self):
        return hash(tuple(self.pairs()))

    def __repr__(self):
        return f"HintList({list(self.hints())!r})"

    def __reduce__(self):
        return HintList, (self.hints(),)


cdef tuple narrowest_first(tuple pair):
    return popcount(pair[0]), pair[0]


cdef bint is_single(uint64_t mask) noexcept nogil:
    return mask != 0 and mask & (mask - 1) == 0


cdef void check_nodes(int numa_nodes) except *:
    if not 1 <= numa_nodes <= MAX_NUMA_NODES:
        raise ValueError(f"expected 1 to {MAX_NUMA_NODES} NUMA nodes, got {numa_nodes}")


cdef void keep_all_demands(uint8_t* keeps, int numa_nodes, object demands) except *:
    cdef uint64_t places[NARROW_MASKS]
    cdef int64_t amounts[NARROW_MASKS]
    cdef int count, index
    memset(keeps, 1, 1 << numa_nodes)
    keeps[0] = 0
    for given_places, given_amounts, request in demands:
        count = len(given_amounts)
        if count > NARROW_MASKS or (given_places is None and count != numa_nodes):
            raise ValueError(f"expected amounts for {numa_nodes} NUMA nodes, got {count}")
        index = 0
        for amount in given_amounts:
            amounts[index] = amount
            index += 1
        if given_places is None:
            keep_holding(keeps, numa_nodes, count, NULL, amounts, request)
            continue
        index = 0
        for place in given_places:
            places[index] = place
            index += 1
        keep_holding(keeps, numa_nodes, count, places, amounts, request)


def smallest_size(int numa_nodes, demands, uint64_t universe):
    """Return how many nodes the smallest subset of `universe` that holds every demand has; 0 if none does.

    Args:
        numa_nodes: how many NUMA nodes the machine has, 1 to 64.
        demands: (places, amounts, request) triples, as for `feasible_hints`.
        universe: the mask of the nodes that may be used.

    Raises:
        ValueError: the counts do not fit together.
    """
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int mask
    check_nodes(numa_nodes)
    if numa_nodes > NARROW_NODES:
        return wide_smallest_size(numa_nodes, demands, universe)
    keep_all_demands(keeps, numa_nodes, demands)
    for mask in range(1 << numa_nodes):
        if mask & ~universe:
            keeps[mask] = 0
    return smallest_count(keeps, 1 << numa_nodes)


cdef int wide_smallest_size(int numa_nodes, object demands, uint64_t universe) except -1:
    cdef WideFamily family = described_family(numa_nodes, demands, universe, (), 0, (), -1)
    cdef int64_t steps = SEARCH_STEPS
    return max(smallest_described(&family.description, &steps), 0)


def feasible_hints(
    int numa_nodes, demands, *, uint64_t universe, int preferred_size, touching=(), sockets=(),
    int preferred_sockets=-1, uint64_t alone=0, groups=(), extra=(),
):
    """Return every mask from which all demands can be met, as a packed list.

    Args:
        numa_nodes: how many NUMA nodes the machine has, 1 to 64; bit i of a mask is node i.
        demands: (places, amounts, request) triples; amount i is reached by every mask that intersects place i
            (places None: amount i lies in node i), and a mask must reach `request` units of each.
        universe: nodes that may be combined freely.
        preferred_size: how many nodes a preferred mask has.
        touching: masks each of which must be intersected.
        sockets: the nodes of each socket, for `preferred_sockets`.
        preferred_sockets: masks that touch exactly so many sockets are preferred too; -1: no such rule.
        alone: nodes that may also be used on their own.
        groups: masks that may also be used, as a whole.
        extra: masks that are accepted whatever they hold.

    Raises:
        ValueError: the counts do not fit together.
    """
    cdef uint8_t keeps[NARROW_MASKS]
    cdef HintList found = HintList.__new__(HintList)
    cdef uint64_t touched
    cdef int mask, size = 1 << numa_nodes if numa_nodes <= NARROW_NODES else 0
    check_nodes(numa_nodes)
    if not size:
        found.wide = wide_feasible(
            numa_nodes, demands, universe, preferred_size, touching, sockets, preferred_sockets, alone, groups, extra
        )
        return found
    keep_all_demands(keeps, numa_nodes, demands)
    for place in touching:
        touched = place
        for mask in range(size):
            keeps[mask] &= mask & touched != 0
    keep_shapes(keeps, size, universe, alone, groups)
    for place in extra:
        keeps[<int>place & (size - 1)] = 1
    mark(&found.family, keeps, size, preferred_size, sockets, preferred_sockets)
    return found


cdef void keep_shapes(uint8_t* keeps, int size, uint64_t universe, uint64_t alone, object groups) except *:
    """Clear what is neither within the universe, nor a node that may be used alone, nor one of the groups."""
    cdef uint64_t whole[NARROW_NODES]
    cdef int mask, index, count = 0
    cdef bint allowed
    if universe == <uint64_t>(size - 1):
        return
    for group in groups:
        if count == NARROW_NODES:
            raise ValueError(f"expected at most {NARROW_NODES} groups of nodes, got {len(groups)}")
        whole[count] = group
        count += 1
    for mask in range(1, size):
        allowed = not mask & ~universe or (is_single(mask) and mask & alone)
        for index in range(count):
            allowed = allowed or whole[index] == <uint64_t>mask
        keeps[mask] &= allowed


cdef void mark(
    Family* family, const uint8_t* keeps, int size, int preferred_size, object sockets, int preferred_sockets
) except *:
    """Put each kept mask where it belongs: preferred, or not."""
    cdef uint64_t nodes[NARROW_NODES]
    cdef int mask, index, touched, count = 0
    if preferred_sockets >= 0:
        for socket in sockets:
            if count == NARROW_NODES:
                raise ValueError(f"expected at most {NARROW_NODES} sockets, got {len(sockets)}")
            nodes[count] = socket
            count += 1
    for mask in range(1, size):
        if not keeps[mask]:
            continue
        touched = -2
        if preferred_sockets >= 0:
            touched = 0
            for index in range(count):
                touched += nodes[index] & <uint64_t>mask != 0
        put_hint(family, mask, popcount(mask) == preferred_size or touched == preferred_sockets)


cdef WideFamily wide_feasible(
    int numa_nodes, object demands, uint64_t universe, int preferred_size, object touching, object sockets,
    int preferred_sockets, uint64_t alone, object groups, object extra,
):
    """Describe the free combinations, and list what is beside them: single nodes, whole groups, extra masks."""
    cdef WideFamily family = described_family(
        numa_nodes, demands, universe, touching, preferred_size, sockets, preferred_sockets
    )
    cdef Description* description = &family.description
    cdef list beside = [(<uint64_t>1) << node for node in range(numa_nodes) if (alone & ~universe) >> node & 1]
    cdef list masks
    beside += [group for group in groups if group & ~universe and group not in beside]
    masks = [mask for mask in beside if holds(description, mask)]
    family.described = holds(description, universe)
    masks += [mask for mask in extra if mask not in masks and family.membership(mask) == 0]
    family.list_masks(masks, [bool(prefers(description, mask)) for mask in masks])
    return family
