"""Find the best mask that lists can be brought down to, by dealing the other nodes out to them.

Each list offers all sets of nodes that hold enough. A mask is what they have in common exactly if each node outside
it is left out by at least one list, while every list keeps enough. Lists only grow upwards, so one list leaving a
node out is as good as several. The search decides nodes from the highest down: leave it out (by which list?) or
keep it.
"""

from libc.string cimport memset

from alignup.core.bits cimport lowest, popcount
from alignup.core.wide.subset_search cimport add_description, find, finish, prepare, weigh
from alignup.core.wide.family cimport Demand, Description, holds, reached


cdef enum:
    SHARE = 1099511627776


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
    # The demands were needed to tell which candidates are alike; a mask that lists come down to need not meet them.
    deal.cover.demand_count = 0
    deal.cover.touching_count = 0
    if distances != NULL:
        relax(deal)
    return 0


cdef void relax(Deal* deal) noexcept nogil:
    """Give the search by distance a demand that follows from the lists' slack.

    A list that leaves out a node loses a share of its slack (of its scarcest demand). The shares of one list sum
    to at most 1, those of all lists to at most their number, so what is kept must hold the rest. Shares are in
    units of 1 / SHARE, rounded so that no reachable mask is ever ruled out.
    """
    cdef int index, candidate, demand
    cdef int64_t slack, weight, least, total = 0
    for candidate in range(deal.cover.count):
        least = SHARE * (deal.list_count + 1)
        for index in range(deal.list_count):
            demand = scarcest(deal, index)
            if demand < 0:
                least = 0
                break
            slack = slack_of(deal, index, demand)
            weight = deal.light[index][demand][candidate]
            if weight == 0:
                least = 0
            elif weight <= slack:
                least = min(least, <int64_t>(<double>weight / slack * SHARE))
        deal.places[candidate] = (<uint64_t>1) << deal.cover.nodes[candidate]
        deal.shares[candidate] = least
        total += least
    # A share is rounded down by less than 2 units.
    deal.relaxed.request = total - SHARE * deal.list_count - 2 * deal.cover.count
    deal.relaxed.count = deal.cover.count
    deal.relaxed.places = deal.places
    deal.relaxed.amounts = deal.shares
    deal.cover.demands[0] = &deal.relaxed
    deal.cover.demand_count = 1
    weigh(&deal.cover, 0)


cdef int64_t slack_of(const Deal* deal, int index, int demand) noexcept nogil:
    """Return what a whole list can lose of a demand."""
    cdef const Demand* wanted = &deal.lists[index].demands[demand]
    return reached(wanted, deal.lists[index].universe) - wanted.request


cdef int scarcest(const Deal* deal, int index) noexcept nogil:
    """Return the demand of a list whose slack is the smallest part of what its nodes hold; -1 without demands."""
    cdef int demand, candidate, found = -1
    cdef int64_t held
    cdef double part, best = 0
    for demand in range(deal.lists[index].demand_count):
        held = 1
        for candidate in range(deal.cover.count):
            held += deal.light[index][demand][candidate]
        part = <double>slack_of(deal, index, demand) / held
        if found < 0 or part < best:
            found = demand
            best = part
    return found


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


cdef bint beaten(const Deal* deal, uint64_t taken, int keep) noexcept nogil:
    """Return whether no completion can be better than what was found."""
    return deal.found and (deal.any_will_do or lowest_completion(deal, taken, keep) >= deal.best)


cdef int first_list(const Deal* deal, int candidate) noexcept nogil:
    """Return the first list to try: interchangeable nodes are dealt in the order of the lists."""
    cdef uint64_t rest = deal.higher_alike[candidate]
    cdef int first = 0
    while rest:
        first = max(first, deal.dealt_to[lowest(rest)])
        rest &= rest - 1
    return first


cdef void leave_out_by_each(
    Deal* deal, int undecided, uint64_t taken, uint64_t forced, int leave_out
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
        descend(deal, candidate, taken, forced, leave_out - 1)
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


cdef void descend(Deal* deal, int undecided, uint64_t taken, uint64_t forced, int leave_out) noexcept nogil:
    """Decide the highest undecided candidate; `leave_out` more must go, `forced` ones must stay."""
    cdef int candidate = undecided - 1, keep = undecided - leave_out
    cdef uint64_t bit
    if deal.steps <= 0:
        return
    deal.steps -= 1
    if keep < 0 or popcount(forced) > keep or beaten(deal, taken, keep):
        return
    if leave_out == 0:
        deal.found = True
        deal.best = lowest_completion(deal, taken, undecided)
        return
    if too_many(deal, undecided, leave_out):
        return
    bit = (<uint64_t>1) << candidate
    if not forced & bit:
        leave_out_by_each(deal, undecided, taken, forced, leave_out)
    if keep > 0:
        descend(
            deal, candidate, taken | (<uint64_t>1) << deal.cover.nodes[candidate],
            (forced | deal.cover.lower_alike[candidate]) & ~bit, leave_out,
        )


cdef bint search_from(Deal* deal, int size, uint64_t forced) noexcept nogil:
    """Look for the lowest reachable mask of `size` nodes that keeps the forced candidates."""
    cdef int index, demand
    deal.found = False
    deal.best = 0
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
    descend(deal, deal.cover.count, 0, forced, deal.cover.count - size)
    return deal.found


cdef bint is_reachable(void* context, uint64_t mask) noexcept nogil:
    """Return whether the lists can be brought down to exactly this mask."""
    cdef Deal* deal = <Deal*>context
    cdef uint64_t forced = 0
    cdef int candidate
    for candidate in range(deal.cover.count):
        forced |= ((mask >> deal.cover.nodes[candidate]) & 1) << candidate
    return search_from(deal, popcount(mask), forced)


cdef bint deal_out(Deal* deal, int size) noexcept nogil:
    """Look for the best reachable mask of `size` nodes, in `best`; `steps` at 0 means the search was cut short.

    With distances, masks are searched for by cost and each candidate is then checked; without, the two go together.
    """
    cdef bint found
    deal.any_will_do = deal.cover.distances != NULL
    if not deal.any_will_do:
        return search_from(deal, size, 0)
    deal.cover.steps = deal.steps
    deal.cover.accept = is_reachable
    deal.cover.context = deal
    found = find(&deal.cover, size, 0, False)
    deal.steps = min(deal.steps, deal.cover.steps)
    deal.found = found
    deal.best = deal.cover.best
    return found
