"""The doors through which providers turn amounts into hints: every set of NUMA nodes that holds enough.

Up to 8 nodes all 256 masks are looked at in one pass; beyond, the answer is a description that nobody enumerates.
"""

from operator import index as as_whole

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, is_single, popcount
from alignup.core.wide.subset_search cimport MOST_DEMANDS, smallest_described
from alignup.core.narrow.family cimport Family, keep_holding, put_hint, smallest_count
from alignup.core.hints cimport HintList
from alignup.core.wide.family cimport Description, WideFamily, described_family, holds, prefers

MAX_NUMA_NODES = 64
SEARCH_STEPS = 5_000_000


cdef void check_nodes(int numa_nodes) except *:
    if not 1 <= numa_nodes <= MAX_NUMA_NODES:
        raise ValueError(f"expected 1 to {MAX_NUMA_NODES} NUMA nodes, got {numa_nodes}")


cdef void check_demand(int numa_nodes, object places, object amounts) except *:
    """Refuse amounts that do not go with the nodes or places that they lie in: kernels read both side by side."""
    cdef Py_ssize_t count = len(amounts)
    if places is None:
        if count != numa_nodes:
            raise ValueError(f"expected amounts for {numa_nodes} NUMA nodes, got {count}")
    elif len(places) != count:
        raise ValueError(f"expected a place for each of {count} amounts, got {len(places)}")


cdef int64_t whole(object number) except? -1:
    """Return a whole number; C would cut the fraction off any other."""
    return number if type(number) is int else as_whole(number)


cdef object sequence(object items):
    """Return items whose length is that of what they are iterated into."""
    return items if type(items) is list or type(items) is tuple else tuple(items)


cdef list checked_demands(int numa_nodes, object demands):
    """Return demands as lists and whole numbers, for families that are described.

    What is left out of a mask must never add to what it reaches, so that no amount may be negative.
    """
    cdef list checked = []
    for places, amounts, request in demands:
        places = None if places is None else sequence(places)
        amounts = [whole(amount) for amount in amounts]
        check_demand(numa_nodes, places, amounts)
        if amounts and min(amounts) < 0:
            raise ValueError(f"expected amounts of 0 or more beyond {NARROW_NODES} NUMA nodes, got {min(amounts)}")
        checked.append((places, amounts, whole(request)))
    if len(checked) > MOST_DEMANDS:
        raise ValueError(
            f"expected at most {MOST_DEMANDS} demands beyond {NARROW_NODES} NUMA nodes, got {len(checked)}"
        )
    return checked


cdef void keep_all_demands(uint8_t* keeps, int numa_nodes, object demands) except *:
    cdef uint64_t places[NARROW_MASKS]
    cdef int64_t amounts[NARROW_MASKS]
    cdef int64_t wanted
    cdef int count, index
    memset(keeps, 1, 1 << numa_nodes)
    keeps[0] = 0
    for given_places, given_amounts, request in demands:
        given_amounts = sequence(given_amounts)
        given_places = None if given_places is None else sequence(given_places)
        check_demand(numa_nodes, given_places, given_amounts)
        count = len(given_amounts)
        if count > NARROW_MASKS:
            raise ValueError(f"expected at most {NARROW_MASKS} places up to {NARROW_NODES} NUMA nodes, got {count}")
        index = 0
        for amount in given_amounts:
            amounts[index] = whole(amount)
            index += 1
        if given_places is None:
            wanted = whole(request)
            with nogil:
                keep_holding(keeps, numa_nodes, count, NULL, amounts, wanted)
            continue
        index = 0
        for place in given_places:
            places[index] = place
            index += 1
        wanted = whole(request)
        with nogil:
            keep_holding(keeps, numa_nodes, count, places, amounts, wanted)


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
    cdef WideFamily family = described_family(
        numa_nodes, checked_demands(numa_nodes, demands), universe & all_nodes(numa_nodes), (), 0, (), -1
    )
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
        touched = place
        if touched < <uint64_t>size:
            keeps[touched] = 1
    mark(&found.family, keeps, size, preferred_size, sockets, preferred_sockets)
    return found


cdef void keep_shapes(uint8_t* keeps, int size, uint64_t universe, uint64_t alone, object groups) except *:
    """Clear what is neither within the universe, nor a node that may be used alone, nor one of the groups."""
    cdef uint64_t whole[NARROW_NODES]
    cdef int mask, index, count = 0
    cdef bint allowed
    if universe & (size - 1) == <uint64_t>(size - 1):
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
    cdef uint64_t full = all_nodes(numa_nodes), within = universe & full
    cdef WideFamily family = described_family(
        numa_nodes, checked_demands(numa_nodes, demands), within, touching, preferred_size, sockets,
        preferred_sockets,
    )
    cdef Description* description = &family.description
    cdef list beside = [(<uint64_t>1) << node for node in range(numa_nodes) if (alone & ~within) >> node & 1]
    cdef list masks
    beside += [group for group in groups if group & ~within and not group & ~full]
    masks = [mask for mask in dict.fromkeys(beside) if holds(description, mask)]
    family.described = within != 0 and holds(description, within)
    masks += [
        mask for mask in dict.fromkeys(extra)
        if mask and not mask & ~full and mask not in masks and family.membership(mask) == 0
    ]
    family.list_masks(masks, [bool(prefers(description, mask)) for mask in masks])
    return family
