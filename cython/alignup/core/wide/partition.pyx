"""Find the best mask that described lists have in common.

The nodes outside it are divided among them. Each list offers all sets of nodes that hold enough,
and any larger set as well. So a mask is what the lists have in common, one set of each, exactly if
the nodes outside it can be divided among the lists such that each list still holds enough without
its part: one list leaving a node out is as good as several.

The walk over masks (`alignup.core.wide.walk`) leaves out nodes one by one and asks here whether
that can be. The division found so far is kept: a further node goes to the first list that can do
without it; only when there is none, all nodes are divided anew. A node that is brought back leaves
the rest of the division as it is.
"""

from libc.string cimport memcpy, memset

from alignup.core.bits cimport all_nodes, lowest, popcount
from alignup.core.wide.family cimport Demand, Description, reached
from alignup.core.wide.walk cimport add_description, find_best, finish, prepare, weigh


cdef enum:
    SHARE = 1099511627776       # 2^40: shares of a slack are whole numbers of 1 / SHARE


cdef int start_partition(
    Partition* partition,
    const Description** lists,
    int list_count,
    uint64_t ground,
    const int64_t* distances,
    Budget* budget,
) noexcept nogil:
    """Prepare to leave out nodes of `ground`, which all lists have.

    Return a negative number when there is no room.
    """
    cdef int index, failed
    cdef Walk* walk = &partition.walk

    memset(partition, 0, sizeof(partition[0]))

    walk.distances = distances
    walk.budget = budget
    walk.context = partition
    walk.leave_out = leave_out
    walk.bring_back = bring_back
    walk.can_leave_out = can_leave_out

    partition.list_count = list_count
    for index in range(list_count):
        partition.lists[index] = lists[index]
        failed = add_description(walk, lists[index], 0)
        if failed:
            return failed

    failed = prepare(walk, ground)
    if failed:
        return failed

    # `add_description` added the lists' demands so that `prepare` could find interchangeable nodes.
    # A mask that the lists have in common need not meet them, so they are dropped again; `relax`
    # puts one in their place.
    walk.demand_count = 0
    walk.touching_count = 0
    weigh_losses(partition)
    relax(partition)

    return 0


cdef void end_partition(Partition* partition) noexcept nogil:
    finish(&partition.walk)


cdef void weigh_losses(Partition* partition) noexcept nogil:
    """Work out what each list loses at least with each candidate.

    Note the higher members of its class as well.
    """
    cdef int index, demand, candidate, lower

    for candidate in range(partition.walk.count):
        partition.left_out_by[candidate] = -1
        for lower in range(candidate):
            if (partition.walk.lower_alike[candidate] >> lower) & 1:
                partition.higher_alike[lower] |= (<uint64_t>1) << candidate
    for index in range(partition.list_count):
        partition.costless[index] = costless_for(partition, partition.lists[index])
        for demand in range(partition.lists[index].demand_count):
            weigh_losses_of(partition, index, demand)


cdef uint64_t costless_for(
    const Partition* partition, const Description* description
) noexcept nogil:
    """Return the candidates that have nothing a list asks for.

    Leaving them out takes nothing from it.
    """
    cdef int demand, item, candidate
    cdef uint64_t near = 0, candidates = 0

    for item in range(description.touching_count):
        near |= description.touching[item]
    for demand in range(description.demand_count):
        for item in range(description.demands[demand].count):
            if description.demands[demand].amounts[item]:
                near |= description.demands[demand].places[item]
    for candidate in range(partition.walk.count):
        candidates |= ((~near >> partition.walk.nodes[candidate]) & 1) << candidate
    return candidates


cdef void weigh_losses_of(Partition* partition, int index, int demand) noexcept nogil:
    """Add up, for each candidate, the amounts that no other node of the list is near.

    Order candidates by it.
    """
    cdef const Demand* requested = &partition.lists[index].demands[demand]
    cdef int64_t* loss = partition.loss[index][demand]
    cdef signed char* order = partition.by_loss[index][demand]
    cdef int item, candidate, place
    cdef uint64_t near

    for item in range(requested.count):
        near = requested.places[item] & partition.lists[index].universe
        for candidate in range(partition.walk.count):
            if near == (<uint64_t>1) << partition.walk.nodes[candidate]:
                loss[candidate] += requested.amounts[item]

    for candidate in range(partition.walk.count):
        place = candidate
        while place > 0 and loss[order[place - 1]] > loss[candidate]:
            order[place] = order[place - 1]
            place -= 1

        order[place] = candidate


cdef void relax(Partition* partition) noexcept nogil:
    """Give the walk a demand that every reachable mask meets.

    For each list i take one demand, of slack s_i > 0: what the whole list reaches beyond the
    request. A list that leaves out node j loses at least loss_ij of it, and no more than s_i in
    all. So over the nodes that list i leaves out, the sum of loss_ij / s_i is at most 1. With

        share_j = the least loss_ij / s_i over all lists i whose slack it does not exceed

    the sum of share_j over all nodes outside a reachable mask is at most the number of lists, L,
    and its nodes hold the rest:

        sum of share_j over the mask >= sum of share_j over all nodes - L

    A list without demands can leave out anything: share 0. A node that no list can leave out has
    share L + 1, so that no mask without it meets the demand. Shares are rounded down, which only
    lessens what is outside; division in floating point may be too large by less than one unit each,
    which is taken off the request.
    """
    cdef int candidate
    cdef int64_t total = 0

    for candidate in range(partition.walk.count):
        partition.places[candidate] = (<uint64_t>1) << partition.walk.nodes[candidate]
        partition.shares[candidate] = least_share(partition, candidate)
        total += partition.shares[candidate]

    partition.relaxed.request = total - SHARE * partition.list_count - partition.walk.count
    partition.relaxed.count = partition.walk.count
    partition.relaxed.places = partition.places
    partition.relaxed.amounts = partition.shares
    partition.walk.demands[0] = &partition.relaxed
    partition.walk.demand_count = 1
    weigh(&partition.walk, 0)


cdef int64_t least_share(const Partition* partition, int candidate) noexcept nogil:
    """Return the least part of its slack that any list loses with a candidate.

    It is in units of 1 / SHARE.
    """
    cdef int index, demand
    cdef int64_t slack, loss, share = SHARE * (partition.list_count + 1)

    for index in range(partition.list_count):
        demand = scarcest(partition, index)
        if demand < 0:
            return 0

        slack = slack_of(partition, index, demand)
        loss = partition.loss[index][demand][candidate]
        if loss == 0:
            return 0

        if loss <= slack:
            share = min(share, <int64_t>(<double>loss / slack * SHARE))

    return share


cdef int64_t slack_of(const Partition* partition, int index, int demand) noexcept nogil:
    """Return what a whole list can lose of a demand."""
    cdef const Demand* requested = &partition.lists[index].demands[demand]
    return reached(requested, partition.lists[index].universe) - requested.request


cdef int scarcest(const Partition* partition, int index) noexcept nogil:
    """Return the demand of a list whose slack is the smallest part of what its nodes hold.

    It is -1 without demands.
    """
    cdef int demand, candidate, demand_found = -1
    cdef int64_t total_loss
    cdef double part, best = 0

    for demand in range(partition.lists[index].demand_count):
        total_loss = 1
        for candidate in range(partition.walk.count):
            total_loss += partition.loss[index][demand][candidate]

        part = <double>slack_of(partition, index, demand) / total_loss
        if demand_found < 0 or part < best:
            demand_found = demand
            best = part

    return demand_found


cdef bint keep_only(Partition* partition, int index, uint64_t kept) noexcept nogil:
    """Let a list keep these nodes, if they hold enough; its slack follows."""
    cdef const Description* description = partition.lists[index]
    cdef int64_t slack[MOST_DEMANDS]
    cdef int item

    for item in range(description.touching_count):
        if not kept & description.touching[item]:
            return False

    for item in range(description.demand_count):
        slack[item] = reached(&description.demands[item], kept) - description.demands[item].request
        if slack[item] < 0:
            return False

    memcpy(partition.slack[index], slack, sizeof(int64_t) * description.demand_count)
    partition.kept[index] = kept
    return True


cdef bint give(Partition* partition, int index, int candidate) noexcept nogil:
    """Let a list leave out a candidate, if it can."""
    if not keep_only(partition, index, partition.kept[index] & ~partition.places[candidate]):
        return False
    partition.left_out_by[candidate] = index
    return True


cdef void bring_back(void* context, int candidate) noexcept nogil:
    """Return a candidate to the list that left it out."""
    cdef Partition* partition = <Partition*>context
    cdef int index = partition.left_out_by[candidate]
    partition.left_out_by[candidate] = -1
    keep_only(partition, index, partition.kept[index] | partition.places[candidate])


cdef bint leave_out(void* context, int candidate) noexcept nogil:
    """Leave out a candidate with those left out before, if that can be."""
    cdef Partition* partition = <Partition*>context
    cdef int index
    for index in range(partition.list_count):
        if give(partition, index, candidate):
            return True
    # One list has no other division.
    return partition.list_count > 1 and divide_anew(partition, candidate)


cdef bint divide_anew(Partition* partition, int candidate) noexcept nogil:
    """Divide the candidates left out before, and one more, among the lists.

    Without success all stays as it was.
    """
    cdef int before[64]
    cdef int index
    cdef uint64_t rest = (<uint64_t>1) << candidate

    memcpy(before, partition.left_out_by, sizeof(before))
    for index in range(partition.walk.count):
        if before[index] >= 0:
            rest |= (<uint64_t>1) << index
            bring_back(partition, index)

    if divide(partition, rest):
        return True

    for index in range(partition.walk.count):
        if before[index] >= 0:
            give(partition, before[index], index)

    return False


cdef bint divide(Partition* partition, uint64_t rest) noexcept nogil:
    """Divide a set of candidates among the lists, the highest first; return whether that can be.

    A list that loses nothing with a candidate is as good as any: if the rest cannot be divided
    then, it cannot at all.
    """
    cdef int index, candidate

    if not rest:
        return True

    if partition.walk.budget.steps <= 0:
        partition.walk.budget.cut = True
        return False

    partition.walk.budget.steps -= 1
    if most_left_out(partition, rest, False) < popcount(rest):
        return False

    candidate = 63
    while not (rest >> candidate) & 1:
        candidate -= 1

    for index in range(first_list(partition, candidate), partition.list_count):
        if not give(partition, index, candidate):
            continue
        if divide(partition, rest & ~((<uint64_t>1) << candidate)):
            return True

        bring_back(partition, candidate)
        if (partition.costless[index] >> candidate) & 1:
            return False

    return False


cdef int first_list(const Partition* partition, int candidate) noexcept nogil:
    """Return the first list to try.

    Interchangeable nodes go to lists in ascending order, from the highest down.
    """
    cdef uint64_t rest = partition.higher_alike[candidate]
    cdef int first = 0
    while rest:
        first = max(first, partition.left_out_by[lowest(rest)])
        rest &= rest - 1
    return first


cdef int most_left_out(
    const Partition* partition, uint64_t candidates, bint from_whole
) noexcept nogil:
    """Return an upper bound on how many of some candidates all lists together can still leave out.

    With `from_whole`, can leave out when no list has left out any yet.
    """
    cdef int index, count = 0
    for index in range(partition.list_count):
        if from_whole:
            count += most_left_out_by(partition, index, candidates, partition.whole_slack[index])
        else:
            count += most_left_out_by(partition, index, candidates, partition.slack[index])
    return count


cdef int most_left_out_by(
    const Partition* partition, int index, uint64_t candidates, const int64_t* slacks
) noexcept nogil:
    """Return the same for one list: as many as fit each slack if those of least loss go first."""
    cdef int demand, place, candidate, fits, count = popcount(candidates)
    cdef int64_t slack

    for demand in range(partition.lists[index].demand_count):
        slack = slacks[demand]
        fits = 0
        for place in range(partition.walk.count):
            candidate = partition.by_loss[index][demand][place]
            if not (candidates >> candidate) & 1:
                continue

            slack -= partition.loss[index][demand][candidate]
            if slack < 0:
                break

            fits += 1

        count = min(count, fits)

    return count


cdef bint can_leave_out(void* context, int undecided, int count) noexcept nogil:
    """Return False if the lists certainly cannot leave out so many more candidates.

    These are among the undecided ones. With one list there is only one division, so its remaining
    slack decides. With several lists the present division is one of many, so its remaining slack
    proves nothing; the bound is what the lists could leave out from the start, including the
    candidates left out already.
    """
    cdef const Partition* partition = <const Partition*>context
    cdef uint64_t candidates = all_nodes(undecided)
    cdef int candidate, total = count

    if partition.list_count == 1:
        return most_left_out(partition, candidates, False) >= count
    for candidate in range(undecided, partition.walk.count):
        if partition.left_out_by[candidate] >= 0:
            candidates |= (<uint64_t>1) << candidate
            total += 1
    return most_left_out(partition, candidates, True) >= total


cdef bint find_reachable(Partition* partition, int size) noexcept nogil:
    """Find the best mask of `size` nodes that the lists can have in common.

    It is in `walk.best`.
    """
    cdef int index
    for index in range(partition.list_count):
        if not keep_only(partition, index, partition.lists[index].universe):
            return False
        memcpy(partition.whole_slack[index], partition.slack[index], sizeof(partition.slack[index]))
    return find_best(&partition.walk, size, 0)
