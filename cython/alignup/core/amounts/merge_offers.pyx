"""Find the best result of a merge where every list is a sum over NUMA nodes that must be met.

That is how nearly all lists look. The definition is that of `alignup.core.merge`, which lists all
masks and does the rest:

- A preferred result is a mask of the one size that all lists prefer, which meets every sum.
- Any other mask is reached exactly if the nodes outside it can be dealt out to the lists, each of
  which leaves out no more than it can spare: the mask is then what the lists' masks have in common.
  Which sizes and masks come first is known, and the first one tried is nearly always reached.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.halves cimport (
    Halves,
    halve,
    least_count,
    nodes_with,
    sort_amounts,
    sum_of,
    sum_of_all,
    sum_within,
)
from alignup.core.amounts.memory_groups cimport rule_allows
from alignup.core.amounts.memory_state cimport MemoryState
from alignup.core.amounts.trial cimport MOST_OFFERS, Offer, Offers, Trial
from alignup.core.bits cimport NARROW_NODES, all_nodes, is_single, lowest, popcount
from alignup.core.narrow.merge cimport Best
from alignup.core.narrow.family cimport BY_SIZE, SIZE_STARTS


cdef enum:
    # Dealing is given up after so many steps for one node, and all masks are listed instead: that
    # takes as long.
    MOST_STEPS = 200


cdef struct Sum:
    Halves halves
    int64_t request
    uint64_t universe


cdef inline bint meets(const Sum* sum, uint64_t mask) noexcept nogil:
    return not mask & ~sum.universe and sum_of(&sum.halves, mask) >= sum.request


cdef bint can_merge_amounts(const Trial* trial, const Offers* offers) noexcept nogil:
    """Return whether every list is a sum over nodes."""
    cdef int index
    if offers.has_memory and (offers.memory.types > 1 or trial.holders):
        return False
    for index in range(offers.count):
        if not offers.offer[index].by_node or offers.offer[index].sockets >= 0:
            return False
    return True


# Preferred results

cdef int common_size(const Offers* offers) noexcept nogil:
    """Return the size that all lists prefer; 0 if they differ."""
    cdef int index, size = offers.memory_size if offers.has_memory else 0
    for index in range(offers.count):
        if size and size != offers.offer[index].size:
            return 0
        size = offers.offer[index].size
    return size


cdef inline const int64_t* free_memory(const Trial* trial, const Offers* offers) noexcept nogil:
    return trial.memory.free + offers.memory.type[0] * trial.row.nodes


cdef uint64_t common_mask(
    const Trial* trial, const Offers* offers, int size, const int64_t* distances
) noexcept nogil:
    """Return the best mask of a size that meets every sum.

    It is that of the nearest nodes if distances count, then the lowest.
    """
    cdef Sum sums[1 + MOST_OFFERS]
    cdef int place, index, count = offers.count, nodes = trial.row.nodes
    cdef uint64_t mask, best = 0
    cdef bint all_met

    for index in range(count):
        halve(offers.offer[index].amounts, nodes, &sums[index].halves)
        sums[index].request = offers.offer[index].request
        sums[index].universe = offers.offer[index].universe

    if offers.has_memory:
        halve(free_memory(trial, offers), nodes, &sums[count].halves)
        sums[count].request = offers.memory.size[0]
        sums[count].universe = all_nodes(nodes)
        count += 1

    for place in range(SIZE_STARTS[size], SIZE_STARTS[size + 1]):
        mask = BY_SIZE[place]
        if mask >> nodes:
            break
        if best and distances[mask] >= distances[best]:
            continue

        all_met = True
        for index in range(count):
            if not meets(&sums[index], mask):
                all_met = False
                break

        if not all_met or (offers.has_memory and not rule_allows(trial.memory, mask)):
            continue

        best = mask
        if distances == NULL:
            break

    return best


# Other results

cdef struct Dealing:
    int nodes
    int lists
    const int64_t* amounts[MOST_OFFERS]     # memory's last
    int64_t spare[MOST_OFFERS]              # how much each list can leave out
    int64_t memory_spare                    # memory: within the nodes that nobody uses
    uint64_t universe                       # nodes that every list can have
    uint64_t costless                       # nodes that some list leaves out at no cost
    uint64_t must                           # nodes that no list can leave out
    int steps


cdef int most_spared(const Offer* offer, int nodes) noexcept nogil:
    """Return how many nodes a list can leave out at most: those with the least."""
    cdef int64_t ordered[NARROW_NODES]
    cdef int64_t spare = sum_of_all(offer.amounts, nodes) - offer.request
    cdef int count = 0

    sort_amounts(offer.amounts, nodes, ordered)
    while count < nodes and ordered[nodes - 1 - count] <= spare:
        spare -= ordered[nodes - 1 - count]
        count += 1
    return count


cdef int fewest_common(const Offers* offers, int nodes) noexcept nogil:
    """Return how few nodes the lists may have in common, each leaving out as many as it can.

    Memory is not counted.
    """
    cdef int index, common = nodes
    if offers.has_memory:
        return 1
    for index in range(offers.count):
        common -= most_spared(&offers.offer[index], nodes)
    return max(1, common)


cdef int smallest_memory(const Trial* trial, const Offers* offers) noexcept nogil:
    """Return the size of the smallest mask that memory can come from; there is one."""
    cdef const MemoryState* state = trial.memory
    cdef const int64_t* free = free_memory(trial, offers)
    cdef int64_t unused[NARROW_NODES]
    cdef int64_t ordered[NARROW_NODES]
    cdef int node, index, best = NARROW_NODES + 1

    if offers.memory_singles:
        return 1

    for node in range(trial.row.nodes):
        unused[node] = free[node] if (state.unused >> node) & 1 else 0

    sort_amounts(unused, trial.row.nodes, ordered)
    best = least_count(ordered, trial.row.nodes, offers.memory.size[0])
    for index in range(state.group_count):
        if sum_within(free, state.groups[index]) >= offers.memory.size[0]:
            best = min(best, popcount(state.groups[index]))

    return best


cdef int start_dealing(const Trial* trial, const Offers* offers, Dealing* dealing) noexcept nogil:
    """Note what each list can leave out; return the largest of the lists' smallest sizes."""
    cdef int64_t ordered[NARROW_NODES]
    cdef const Offer* offer
    cdef int index, target_size = 1, nodes = trial.row.nodes

    dealing.nodes = nodes
    dealing.steps = 0
    dealing.universe = dealing.must = all_nodes(nodes)
    dealing.costless = 0
    for index in range(offers.count):
        offer = &offers.offer[index]
        dealing.amounts[index] = offer.amounts
        dealing.universe &= offer.universe
        # what lies outside a list's universe has nothing for it, and is left out by all its masks
        dealing.costless |= ~nodes_with(offer.amounts, nodes, 1)
        dealing.spare[index] = sum_of_all(offer.amounts, nodes) - offer.request
        dealing.must &= nodes_with(offer.amounts, nodes, dealing.spare[index] + 1)
        if not offer.singles:
            sort_amounts(offer.amounts, nodes, ordered)
            target_size = max(target_size, least_count(ordered, nodes, offer.request))

    if offers.has_memory:
        start_dealing_memory(trial, offers, dealing)
        target_size = max(target_size, smallest_memory(trial, offers))

    return target_size


cdef void start_dealing_memory(
    const Trial* trial, const Offers* offers, Dealing* dealing
) noexcept nogil:
    """Note what memory can leave out: the nodes in use, and some of the others."""
    cdef const MemoryState* state = trial.memory
    cdef const int64_t* free = free_memory(trial, offers)

    dealing.memory_spare = sum_within(free, state.unused) - offers.memory.size[0]
    dealing.amounts[offers.count] = free
    dealing.spare[offers.count] = dealing.memory_spare
    if state.group_count or offers.memory_singles:
        dealing.must = 0
    elif dealing.memory_spare >= 0:
        dealing.must &= state.unused & nodes_with(free, dealing.nodes, dealing.memory_spare + 1)


cdef bint reach_best(
    const Trial* trial, const Offers* offers, const int64_t* distances, Best* best
) noexcept nogil:
    """Find the best mask that is reached, nearest in size to what the neediest list needs.

    Return False where that was given up. The result is not preferred. If nothing is reached but the
    empty mask, the result is all nodes.
    """
    cdef Dealing dealing
    cdef int size
    cdef int fewest
    cdef int nodes = trial.row.nodes
    cdef int target_size = start_dealing(trial, offers, &dealing)

    best.preferred = False
    best.mask = 0
    if (
        target_size <= nodes
        and not reach_size(trial, offers, &dealing, target_size, distances, &best.mask)
    ):
        return False

    if not best.mask:
        fewest = fewest_common(offers, nodes)
        for size in range(target_size - 1, fewest - 1, -1):
            if not reach_size(trial, offers, &dealing, size, distances, &best.mask):
                return False
            if best.mask:
                break

        if not best.mask:
            for size in range(max(target_size + 1, fewest), nodes + 1):
                if not reach_size(trial, offers, &dealing, size, distances, &best.mask):
                    return False
                if best.mask:
                    break

    best.is_found = best.mask != 0
    best.mask = best.mask or all_nodes(nodes)
    return True


cdef bint reach_size(
    const Trial* trial,
    const Offers* offers,
    Dealing* dealing,
    int size,
    const int64_t* distances,
    uint64_t* best,
) noexcept nogil:
    """Find the best reached mask of a size, 0 if there is none; False: gave up."""
    cdef int place
    cdef uint64_t mask, without = ~dealing.universe

    for place in range(SIZE_STARTS[size], SIZE_STARTS[size + 1]):
        mask = BY_SIZE[place]
        if mask >> dealing.nodes:
            break
        if mask & without or dealing.must & ~mask:
            continue
        if best[0] and distances[mask] >= distances[best[0]]:
            continue

        if is_reached(trial, offers, dealing, mask):
            best[0] = mask
            if distances == NULL:
                return True

        if dealing.steps > MOST_STEPS:
            return False

    return True


cdef bint is_reached(
    const Trial* trial, const Offers* offers, Dealing* dealing, uint64_t mask
) noexcept nogil:
    """Return whether some choice of one mask from each list has exactly these nodes in common."""
    cdef const MemoryState* state = trial.memory
    cdef uint64_t outside = all_nodes(dealing.nodes) & ~mask & ~dealing.costless
    cdef int index

    dealing.lists = offers.count
    if not offers.has_memory:
        return deal(dealing, outside)

    if not mask & ~state.unused and dealing.memory_spare >= 0:
        dealing.lists = offers.count + 1
        if deal(dealing, outside & state.unused):
            return True

        dealing.lists = offers.count

    if is_single(mask) and mask & offers.memory_singles:
        return True

    for index in range(state.group_count):
        if mask & ~state.groups[index]:
            continue

        if sum_within(dealing.amounts[offers.count], state.groups[index]) >= offers.memory.size[0]:
            if deal(dealing, outside & state.groups[index]):
                return True

    return False


cdef bint deal(Dealing* dealing, uint64_t rest) noexcept nogil:
    """Return whether each of the nodes can be left out by one of the lists."""
    cdef int index, node
    cdef int64_t cost

    if not rest:
        return True

    dealing.steps += 1
    if dealing.steps > MOST_STEPS:
        return False

    node = lowest(rest)
    for index in range(dealing.lists):
        cost = dealing.amounts[index][node]
        if cost > dealing.spare[index]:
            continue

        dealing.spare[index] -= cost
        if deal(dealing, rest & (rest - 1)):
            dealing.spare[index] += cost
            return True

        dealing.spare[index] += cost
        if not cost:
            # this list leaves the node out at no cost, so that trying another cannot help
            return False

    return False
