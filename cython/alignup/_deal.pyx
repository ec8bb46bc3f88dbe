"""Find the best mask that lists can be brought down to, by dealing the other nodes out to them.

Each list offers all sets of nodes that hold enough. A mask is what they have in common exactly if each node outside
it is left out by at least one list, while every list keeps enough. Lists only grow upwards, so one list leaving a
node out is as good as several. The search decides nodes from the highest down: leave it out (by which list?) or
keep it.
"""

from libc.string cimport memset

from alignup._bitmask cimport lowest, popcount
from alignup._cover cimport add_description, added_cost, finish, least_cost, prepare
from alignup._wide cimport Demand, holds

cdef int64_t UNBOUNDED = 0x7FFFFFFFFFFFFFFF


cdef int64_t reached(const Demand* demand, uint64_t mask) noexcept nogil:
    cdef int64_t total = 0
    cdef int item
    for item in range(demand.count):
        if demand.places[item] & mask:
            total += demand.amounts[item]
    return total


cdef int start_deal(
    Deal* deal, const Description** lists, int list_count, uint64_t ground, const int64_t* distances
) noexcept nogil:
    """Prepare to deal the nodes of `ground`, which all lists have; negative when a fixed bound is exceeded."""
    cdef int index, demand, candidate, item, failed
    cdef uint64_t place
    cdef const Demand* wanted
    memset(deal, 0, sizeof(deal[0]))
    deal.cover.distances = distances
    deal.list_count = list_count
    for index in range(list_count):
        deal.lists[index] = lists[index]
        failed = add_description(&deal.cover, lists[index], 0)
        if failed:
            return failed
    failed = prepare(&deal.cover, ground)
    if failed:
        return failed
    for candidate in range(deal.cover.count):
        for item in range(candidate):
            if (deal.cover.lower_alike[candidate] >> item) & 1:
                deal.higher_alike[item] |= (<uint64_t>1) << candidate
    for index in range(list_count):
        for demand in range(lists[index].demand_count):
            wanted = &lists[index].demands[demand]
            for item in range(wanted.count):
                place = wanted.places[item] & lists[index].universe
                for candidate in range(deal.cover.count):
                    if place == (<uint64_t>1) << deal.cover.nodes[candidate]:
                        deal.light[index][demand][candidate] += wanted.amounts[item]
    return 0


cdef void end_deal(Deal* deal) noexcept nogil:
    finish(&deal.cover)


cdef int most_more(const Deal* deal, int index, int undecided) noexcept nogil:
    """Return an upper bound on how many of the undecided candidates a list can still leave out."""
    cdef int64_t ordered[64]
    cdef int64_t weight, slack
    cdef int demand, candidate, place, fits, most = undecided
    for demand in range(deal.lists[index].demand_count):
        slack = deal.slack[index][demand]
        for candidate in range(undecided):
            weight = deal.light[index][demand][candidate]
            place = candidate
            while place > 0 and ordered[place - 1] > weight:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = weight
        fits = 0
        while fits < undecided and ordered[fits] <= slack:
            slack -= ordered[fits]
            fits += 1
        most = min(most, fits)
    return most


cdef bint too_many(const Deal* deal, int undecided, int leave_out) noexcept nogil:
    """Return whether the lists together cannot leave out so many more."""
    cdef int index, most = 0
    for index in range(deal.list_count):
        most += most_more(deal, index, undecided)
        if most >= leave_out:
            return False
    return True


cdef uint64_t lowest_completion(const Deal* deal, uint64_t taken, int count) noexcept nogil:
    """Return the mask of lowest value that keeps what is taken and `count` undecided candidates."""
    cdef int candidate
    for candidate in range(count):
        taken |= (<uint64_t>1) << deal.cover.nodes[candidate]
    return taken


cdef bint beaten(const Deal* deal, int undecided, uint64_t taken, int keep, int64_t cost) noexcept nogil:
    """Return whether no completion can beat what was found."""
    if not deal.found:
        return False
    if deal.cover.distances != NULL and keep > 0:
        cost = least_cost(&deal.cover, undecided, taken, keep, cost)
    if cost != deal.best_cost:
        return cost > deal.best_cost
    return lowest_completion(deal, taken, keep) >= deal.best


cdef void keep_rest(Deal* deal, int undecided, uint64_t taken, int64_t cost) noexcept nogil:
    """Take all undecided candidates, and note the mask if it is the best."""
    cdef int candidate
    for candidate in range(undecided):
        if deal.cover.distances != NULL:
            cost += added_cost(&deal.cover, taken, deal.cover.nodes[candidate])
        taken |= (<uint64_t>1) << deal.cover.nodes[candidate]
    if not deal.found or cost < deal.best_cost or (cost == deal.best_cost and taken < deal.best):
        deal.found = True
        deal.best = taken
        deal.best_cost = cost


cdef int first_list(const Deal* deal, int candidate) noexcept nogil:
    """Return the first list to try: interchangeable nodes are dealt in the order of the lists."""
    cdef uint64_t rest = deal.higher_alike[candidate]
    cdef int first = 0
    while rest:
        first = max(first, deal.dealt_to[lowest(rest)])
        rest &= rest - 1
    return first


cdef void leave_out_by_each(
    Deal* deal, int undecided, uint64_t taken, uint64_t forced, int leave_out, int64_t cost
) noexcept nogil:
    """Let each list in turn leave out the highest undecided candidate."""
    cdef int64_t before[MOST_DEMANDS]
    cdef int index, demand, candidate = undecided - 1
    cdef uint64_t kept, bit = (<uint64_t>1) << deal.cover.nodes[candidate]
    cdef bint free_of_cost
    for index in range(first_list(deal, candidate), deal.list_count):
        kept = deal.kept[index]
        if not holds(deal.lists[index], kept & ~bit):
            continue
        deal.kept[index] = kept & ~bit
        free_of_cost = deal.lists[index].touching_count == 0
        for demand in range(deal.lists[index].demand_count):
            before[demand] = deal.slack[index][demand]
            deal.slack[index][demand] = (
                reached(&deal.lists[index].demands[demand], kept & ~bit) - deal.lists[index].demands[demand].request
            )
            free_of_cost = free_of_cost and deal.light[index][demand][candidate] == 0
            free_of_cost = free_of_cost and before[demand] == deal.slack[index][demand]
        deal.dealt_to[candidate] = index
        descend(deal, candidate, taken, forced, leave_out - 1, cost)
        deal.dealt_to[candidate] = -1
        deal.kept[index] = kept
        for demand in range(deal.lists[index].demand_count):
            deal.slack[index][demand] = before[demand]
        if free_of_cost and not shares_places(deal, index, bit):
            return


cdef bint shares_places(const Deal* deal, int index, uint64_t bit) noexcept nogil:
    """Return whether a list has an amount near the node and others: leaving it out may cost later."""
    cdef int demand, item
    cdef const Demand* wanted
    for demand in range(deal.lists[index].demand_count):
        wanted = &deal.lists[index].demands[demand]
        for item in range(wanted.count):
            if wanted.places[item] & bit and wanted.amounts[item]:
                return True
    return False


cdef void descend(
    Deal* deal, int undecided, uint64_t taken, uint64_t forced, int leave_out, int64_t cost
) noexcept nogil:
    """Decide the highest undecided candidate; `leave_out` more must go, `forced` ones must stay."""
    cdef int candidate = undecided - 1, keep = undecided - leave_out
    cdef uint64_t bit
    if deal.steps <= 0:
        return
    deal.steps -= 1
    if keep < 0 or popcount(forced) > keep or beaten(deal, undecided, taken, keep, cost):
        return
    if leave_out == 0:
        keep_rest(deal, undecided, taken, cost)
        return
    if too_many(deal, undecided, leave_out):
        return
    bit = (<uint64_t>1) << candidate
    if not forced & bit:
        leave_out_by_each(deal, undecided, taken, forced, leave_out, cost)
    if keep == 0:
        return
    if deal.cover.distances != NULL:
        cost += added_cost(&deal.cover, taken, deal.cover.nodes[candidate])
    descend(
        deal, candidate, taken | (<uint64_t>1) << deal.cover.nodes[candidate],
        (forced | deal.cover.lower_alike[candidate]) & ~bit, leave_out, cost,
    )


cdef bint deal_out(Deal* deal, int size) noexcept nogil:
    """Look for the best reachable mask of `size` nodes, in `best`; `steps` at 0 means the search was cut short."""
    cdef int index, demand
    deal.found = False
    deal.best = 0
    deal.best_cost = UNBOUNDED
    for index in range(deal.list_count):
        deal.kept[index] = deal.lists[index].universe
        if not holds(deal.lists[index], deal.kept[index]):
            return False
        for demand in range(deal.lists[index].demand_count):
            deal.slack[index][demand] = (
                reached(&deal.lists[index].demands[demand], deal.kept[index])
                - deal.lists[index].demands[demand].request
            )
    for index in range(deal.cover.count):
        deal.dealt_to[index] = -1
    descend(deal, deal.cover.count, 0, 0, deal.cover.count - size, 0)
    return deal.found
