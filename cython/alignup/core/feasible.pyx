"""The doors through which providers turn amounts into hints.

They return every set of NUMA nodes that holds enough. Up to 8 nodes all 256 masks are looked at in
one pass; beyond, the answer is a description that nobody enumerates.
"""

from operator import index as as_whole

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, WIDEST, all_nodes, is_single
from alignup.core.wide.walk cimport smallest_described
from alignup.core.narrow.family cimport keep_holding, pack_family, prefer_by_sockets, smallest_count
from alignup.core.hints cimport HintList
from alignup.core.wide.limits cimport MOST_DEMANDS, SEARCH_STEPS, Budget
from alignup.core.wide.family cimport Description, WideFamily, described_family, holds, prefers

MAX_NUMA_NODES = WIDEST
# The largest sum of the amounts of a demand (in bytes, 64 PiB): a kernel may count each amount once
# for each of 64 nodes, and the sums still fit 63 bits. A request is cut at twice as much, which no
# amounts reach either.
cdef int64_t MOST_UNITS = 1 << 56


cdef void check_nodes(int numa_nodes) except *:
    if not 1 <= numa_nodes <= WIDEST:
        raise ValueError(f"expected 1 to {WIDEST} NUMA nodes, got {numa_nodes}")


cdef int64_t whole(object number) except? -1:
    """Return a whole number; C would cut the fraction off any other."""
    return number if type(number) is int else as_whole(number)


cdef object whole_mask(object place):
    """Return a mask as an int."""
    return place if type(place) is int else as_whole(place)


cdef tuple snapshot(object items):
    """Return the items as they are now.

    Reading one may run code of the caller's that changes the rest.
    """
    return items if type(items) is tuple else tuple(items)


cdef class CheckedDemand:
    """One demand as the kernels take it.

    It has as many amounts as places (or nodes), which are whole numbers in bounds.
    """

    cdef list places            # None: amount i lies in node i
    cdef list amounts
    cdef int64_t request        # cut to what no amounts reach


cdef list bounded_amounts(object items):
    """Return whole numbers whose sum, signs aside, no kernel can overflow."""
    cdef list amounts = []
    cdef int64_t amount, total = 0

    for item in snapshot(items):
        amount = whole(item)
        if not -MOST_UNITS <= amount <= MOST_UNITS:
            raise ValueError(f"expected amounts of at most {MOST_UNITS} in all, got {amount}")

        total += abs(amount)
        if total > MOST_UNITS:
            raise ValueError(
                f"expected amounts of at most {MOST_UNITS} in all, got {total} and more"
            )

        amounts.append(amount)

    return amounts


cdef CheckedDemand checked_demand(int numa_nodes, object demand):
    """Read a demand once, and check it."""
    cdef CheckedDemand checked = CheckedDemand.__new__(CheckedDemand)

    places, amounts, request = demand
    checked.places = None if places is None else [whole_mask(place) for place in snapshot(places)]
    checked.amounts = bounded_amounts(amounts)
    if checked.places is None:
        if len(checked.amounts) != numa_nodes:
            raise ValueError(
                f"expected amounts for {numa_nodes} NUMA nodes, got {len(checked.amounts)}"
            )
    elif len(checked.places) != len(checked.amounts):
        raise ValueError(
            f"expected a place for each of {len(checked.amounts)} amounts, "
            f"got {len(checked.places)}"
        )

    checked.request = max(min(whole(request), 2 * MOST_UNITS), -2 * MOST_UNITS)
    return checked


cdef list checked_demands(int numa_nodes, object demands):
    """Return demands as lists and whole numbers, for families that are described.

    No amount may be negative: a node that is left out of a mask must never add to the sum that the
    mask reaches.
    """
    cdef list checked = []
    cdef CheckedDemand kernel_demand

    for demand in demands:
        kernel_demand = checked_demand(numa_nodes, demand)
        if kernel_demand.amounts and min(kernel_demand.amounts) < 0:
            raise ValueError(
                f"expected amounts of 0 or more beyond {NARROW_NODES} NUMA nodes, "
                f"got {min(kernel_demand.amounts)}"
            )

        checked.append((kernel_demand.places, kernel_demand.amounts, kernel_demand.request))

    if len(checked) > MOST_DEMANDS:
        raise ValueError(
            f"expected at most {MOST_DEMANDS} demands beyond {NARROW_NODES} NUMA nodes, "
            f"got {len(checked)}"
        )

    return checked


cdef void keep_all_demands(uint8_t* keeps, int numa_nodes, object demands) except *:
    """Set `keeps[m]` to 1 for each mask that holds every demand.

    It is 0 for the others and past the last mask.
    """
    cdef uint64_t places[NARROW_MASKS]
    cdef int64_t amounts[NARROW_MASKS]
    cdef CheckedDemand checked
    cdef int64_t request
    cdef int count, index

    memset(keeps, 0, NARROW_MASKS)
    memset(keeps, 1, 1 << numa_nodes)
    keeps[0] = 0
    for demand in demands:
        checked = checked_demand(numa_nodes, demand)
        request = checked.request
        count = len(checked.amounts)
        if count > NARROW_MASKS:
            raise ValueError(
                f"expected at most {NARROW_MASKS} places up to {NARROW_NODES} NUMA nodes, "
                f"got {count}"
            )

        for index in range(count):
            amounts[index] = checked.amounts[index]

        if checked.places is None:
            keep_holding(keeps, numa_nodes, count, NULL, amounts, request)
            continue

        for index in range(count):
            places[index] = checked.places[index]

        keep_holding(keeps, numa_nodes, count, places, amounts, request)


def smallest_size(int numa_nodes, demands, uint64_t universe):
    """Return how many nodes the smallest subset of `universe` that holds every demand has.

    It is 0 if none does.

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
        numa_nodes,
        checked_demands(numa_nodes, demands),
        universe & all_nodes(numa_nodes),
        (),
        0,
        (),
        -1,
    )
    cdef Budget budget = Budget(steps=SEARCH_STEPS, cut=False)

    return max(smallest_described(&family.description, &budget), 0)


def feasible_hints(
    int numa_nodes,
    demands,
    *,
    uint64_t universe,
    int preferred_size,
    touching=(),
    sockets=(),
    int preferred_sockets=-1,
    uint64_t alone=0,
    groups=(),
    extra=(),
):
    """Return every mask from which all demands can be met, as a packed list.

    Args:
        numa_nodes: how many NUMA nodes the machine has, 1 to 64; bit i of a mask is node i.
        demands: (places, amounts, request) triples; amount i is reached by every mask that
            intersects place i (places None: amount i lies in node i), and a mask must reach
            `request` units of each.
        universe: nodes that may be combined freely.
        preferred_size: how many nodes a preferred mask has.
        touching: masks each of which must be intersected.
        sockets: the nodes of each socket, for `preferred_sockets`.
        preferred_sockets: masks that touch exactly so many sockets are preferred too; -1: no
            such rule.
        alone: nodes that may also be used on their own.
        groups: masks that may also be used, as a whole.
        extra: masks that are accepted whatever they hold.

    Raises:
        ValueError: the counts do not fit together.
    """
    cdef uint8_t keeps[NARROW_MASKS]
    cdef HintList hints = HintList.__new__(HintList)
    cdef uint64_t nodes[NARROW_NODES]
    cdef uint64_t touched
    cdef int mask, size, count = 0

    check_nodes(numa_nodes)
    if numa_nodes > NARROW_NODES:
        hints.wide = wide_feasible(
            numa_nodes,
            demands,
            universe,
            preferred_size,
            touching,
            sockets,
            preferred_sockets,
            alone,
            groups,
            extra,
        )
        return hints

    size = 1 << numa_nodes
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

    pack_family(&hints.family, keeps, size, preferred_size)
    if preferred_sockets >= 0:
        for place in sockets:
            if count == NARROW_NODES:
                raise ValueError(f"expected at most {NARROW_NODES} sockets, got {len(sockets)}")

            nodes[count] = place
            count += 1

        prefer_by_sockets(&hints.family, size, nodes, count, preferred_sockets)

    return hints


cdef void keep_shapes(
    uint8_t* keeps, int size, uint64_t universe, uint64_t alone, object groups
) except *:
    """Clear the masks that may not be used.

    A mask may be used that is within the universe, is a single node that may be used alone, or is
    one of the groups.
    """
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


cdef WideFamily wide_feasible(
    int numa_nodes,
    object demands,
    uint64_t universe,
    int preferred_size,
    object touching,
    object sockets,
    int preferred_sockets,
    uint64_t alone,
    object groups,
    object extra,
):
    """Describe the free combinations, and list what is beside them.

    That is single nodes, whole groups, and extra masks.
    """
    cdef uint64_t full = all_nodes(numa_nodes), within = universe & full
    cdef WideFamily family = described_family(
        numa_nodes,
        checked_demands(numa_nodes, demands),
        within,
        touching,
        preferred_size,
        sockets,
        preferred_sockets,
    )
    cdef Description* description = &family.description
    cdef list beside = [
        (<uint64_t>1) << node for node in range(numa_nodes) if (alone & ~within) >> node & 1
    ]
    cdef list masks

    beside += [group for group in groups if group & ~within and not group & ~full]

    masks = [mask for mask in dict.fromkeys(beside) if holds(description, mask)]
    family.described = within != 0 and holds(description, within)
    masks += [
        mask
        for mask in dict.fromkeys(extra)
        if mask and not mask & ~full and mask not in masks and family.membership(mask) == 0
    ]

    family.list_masks(masks, [bool(prefers(description, mask)) for mask in masks])

    return family
