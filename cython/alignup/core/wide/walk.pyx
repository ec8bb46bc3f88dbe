"""One walk over the sets of so many nodes, in the order in which ties are broken, with bounds.

Candidates are decided from the highest node down, "leave out" before "take". Sets are so met in
ascending order of value: of two sets that first differ at some node, the one without it comes first
and is the lower one. The first set that will do is therefore the lowest.

Interchangeable nodes form classes, and only the lowest nodes of a class are ever taken: taking a
node forces taking all lower nodes of its class. Any set can be exchanged for the one that takes as
many of each class from the lowest up, which meets the same demands, costs the same and has the
lowest value, so that nothing is lost. A walk meets each vector of counts a class once: about a
hundred on a machine of 2 + 32 nodes. Where distances count, the order of value is not that of cost:
all vectors of one size are then looked at, if there are not too many.

Machines without classes are left to the bounds: a branch ends when even the largest weights among
the undecided nodes cannot reach a demand, when it must cost more than the target, or when the nodes
to leave out cannot be left out.

The walk is prepared first: conditions, bounds, and the classes. There are three visitors, `stop`,
`improve` and `collect_one`. Which descriptions must hold together is decided by
`alignup.core.wide.merge`, what can be left out by `alignup.core.wide.partition`.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from alignup.core.bits cimport all_nodes, lowest, popcount
from alignup.core.wide.distance_bound cimport grow, least_of
from alignup.core.wide.family cimport reached
from alignup.core.wide.limits cimport BOUND_STEPS, IMPROVING_STEPS, MOST_TARGETS, MOST_VECTORS


cdef enum:
    OK = 0
    TOO_MANY = -1
    NO_MEMORY = -2


# Preparing

cdef int add_description(Walk* walk, const Description* description, int size) noexcept nogil:
    """Add all that a description demands of a mask of `size` nodes.

    With size 0 preference does not matter. Returns 0, or -1 when a fixed bound of this search is
    exceeded.
    """
    cdef int index

    for index in range(description.demand_count):
        if walk.demand_count == MOST_DEMANDS:
            return TOO_MANY

        walk.demands[walk.demand_count] = &description.demands[index]
        walk.demand_count += 1

    for index in range(description.touching_count):
        if walk.touching_count == MOST_TOUCHING:
            return TOO_MANY

        walk.touching[walk.touching_count] = description.touching[index]
        walk.touching_count += 1

    if size and size != description.preferred_size and description.preferred_sockets >= 0:
        if walk.rule_count == MOST_SOCKET_RULES:
            return TOO_MANY

        walk.rules[walk.rule_count].required = description.preferred_sockets
        walk.rules[walk.rule_count].count = description.socket_count
        walk.rules[walk.rule_count].sockets = description.sockets
        walk.rule_count += 1

    return OK


cdef bint alike(const Walk* walk, int candidate, int twin) noexcept nogil:
    """Return whether two candidates are interchangeable.

    Exchanging them in any set changes neither what it reaches nor what it costs.
    """
    cdef uint64_t bit = (<uint64_t>1) << walk.nodes[candidate]
    cdef uint64_t twin_bit = (<uint64_t>1) << walk.nodes[twin]
    cdef int index, item
    cdef uint64_t place
    cdef int64_t candidate_amount, twin_amount

    for index in range(walk.demand_count):
        candidate_amount = twin_amount = 0
        for item in range(walk.demands[index].count):
            place = walk.demands[index].places[item]
            if place == bit:
                candidate_amount += walk.demands[index].amounts[item]
            elif place == twin_bit:
                twin_amount += walk.demands[index].amounts[item]
            elif ((place & bit) != 0) != ((place & twin_bit) != 0):
                return False

        if candidate_amount != twin_amount:
            return False

    for index in range(walk.touching_count):
        if ((walk.touching[index] & bit) != 0) != ((walk.touching[index] & twin_bit) != 0):
            return False

    for index in range(walk.rule_count):
        for item in range(walk.rules[index].count):
            place = walk.rules[index].sockets[item]
            if ((place & bit) != 0) != ((place & twin_bit) != 0):
                return False

    return walk.distances == NULL or equally_far(walk, walk.nodes[candidate], walk.nodes[twin])


cdef bint equally_far(const Walk* walk, int node, int twin) noexcept nogil:
    """Return whether two nodes have the same distances to and from all other candidates."""
    cdef const int64_t* distance = walk.distances
    cdef int index, third

    if distance[node * 64 + node] != distance[twin * 64 + twin]:
        return False

    for index in range(walk.count):
        third = walk.nodes[index]
        if third == node or third == twin:
            continue
        if (
            distance[node * 64 + third] + distance[third * 64 + node]
            != distance[twin * 64 + third] + distance[third * 64 + twin]
        ):
            return False

    return True


cdef int prepare(Walk* walk, uint64_t universe) noexcept nogil:
    """Work out weights, bounds and classes for choosing from `universe`; `finish` frees them.

    Returns 0, or -2 when there is no memory.
    """
    cdef int demand, candidate, before
    cdef uint64_t rest = universe

    walk.count = 0
    while rest:
        walk.nodes[walk.count] = lowest(rest)
        walk.count += 1
        rest &= rest - 1

    cdef int width = walk.count + 1
    # At least one, because a caller may put a demand of its own in the place of all.
    walk.tops = <int64_t*>malloc(sizeof(int64_t) * max(walk.demand_count, 1) * width * width)
    if walk.tops == NULL:
        return NO_MEMORY

    for demand in range(walk.demand_count):
        weigh(walk, demand)

    for candidate in range(walk.count):
        walk.lower_alike[candidate] = 0
        for before in range(candidate):
            if alike(walk, before, candidate):
                walk.lower_alike[candidate] |= (<uint64_t>1) << before

    if walk.distances != NULL:
        rank_distances(walk)
        grow(&walk.tree, walk.nodes, walk.count, walk.distances)

    return OK


cdef void weigh(Walk* walk, int demand) noexcept nogil:
    """Work out what each candidate adds to a demand at most, and what so many of them can add."""
    cdef int candidate, item, width = walk.count + 1
    for candidate in range(walk.count):
        walk.weights[demand][candidate] = 0
        for item in range(walk.demands[demand].count):
            if (walk.demands[demand].places[item] >> walk.nodes[candidate]) & 1:
                walk.weights[demand][candidate] += walk.demands[demand].amounts[item]
    sum_largest(walk.weights[demand], walk.count, walk.tops + demand * width * width)


cdef void sum_largest(const int64_t* weights, int count, int64_t* tops) noexcept nogil:
    """Fill tops[j * (count + 1) + r] with the sum of the r largest of the first j weights.

    When r > j it is the sum of all of them.
    """
    cdef int64_t ordered[64]
    cdef int considered, index, place, width = count + 1

    for considered in range(count + 1):
        if considered:
            place = considered - 1
            while place > 0 and ordered[place - 1] < weights[considered - 1]:
                ordered[place] = ordered[place - 1]
                place -= 1

            ordered[place] = weights[considered - 1]

        tops[considered * width] = 0
        for index in range(count):
            tops[considered * width + index + 1] = tops[considered * width + index]
            if index < considered:
                tops[considered * width + index + 1] += ordered[index]


cdef void rank_distances(Walk* walk) noexcept nogil:
    """Fill `nearest` with sums of the smallest distances from each candidate to others."""
    cdef int64_t ordered[64]
    cdef int64_t distance
    cdef int candidate, neighbour, count, place

    for candidate in range(walk.count):
        count = 0
        for neighbour in range(walk.count):
            if neighbour == candidate:
                continue

            distance = walk.distances[walk.nodes[candidate] * 64 + walk.nodes[neighbour]]
            place = count
            while place > 0 and ordered[place - 1] > distance:
                ordered[place] = ordered[place - 1]
                place -= 1

            ordered[place] = distance
            count += 1

        walk.nearest[candidate][0] = 0
        for place in range(count):
            walk.nearest[candidate][place + 1] = walk.nearest[candidate][place] + ordered[place]


cdef void finish(Walk* walk) noexcept nogil:
    free(walk.tops)
    walk.tops = NULL


cdef bint satisfied(const Walk* walk, uint64_t mask) noexcept nogil:
    """Return whether a set meets every demand and rule."""
    cdef int index, item, touched

    for index in range(walk.touching_count):
        if not mask & walk.touching[index]:
            return False

    for index in range(walk.demand_count):
        if reached(walk.demands[index], mask) < walk.demands[index].request:
            return False

    for index in range(walk.rule_count):
        touched = 0
        for item in range(walk.rules[index].count):
            touched += (walk.rules[index].sockets[item] & mask) != 0

        if touched != walk.rules[index].required:
            return False

    return True


cdef int64_t count_vectors(const Walk* walk, int size) noexcept nogil:
    """Return how many vectors of counts by class have `size` nodes.

    It is `MOST_VECTORS` + 1 for more than that.
    """
    cdef int64_t ways[65]
    cdef int64_t sum
    cdef int candidate, members, taken, total

    memset(ways, 0, sizeof(ways))
    ways[0] = 1
    for candidate in range(walk.count):
        if walk.lower_alike[candidate]:
            continue

        members = class_size(walk, candidate)
        for total in range(size, 0, -1):
            sum = ways[total]
            for taken in range(1, min(members, total) + 1):
                sum += ways[total - taken]

            ways[total] = min(sum, MOST_VECTORS + 1)

    return ways[size]


cdef int class_size(const Walk* walk, int lowest_candidate) noexcept nogil:
    cdef int candidate, members = 1
    for candidate in range(lowest_candidate + 1, walk.count):
        members += (walk.lower_alike[candidate] >> lowest_candidate) & 1
    return members


# Walking

cdef int64_t UNBOUNDED = 0x7FFFFFFFFFFFFFFF


cdef bint hopeless(const Walk* walk, int undecided, uint64_t chosen, int remaining) noexcept nogil:
    """Return whether no choice of the undecided candidates will do.

    One that will do reaches every demand and touches all that must be touched.
    """
    cdef int demand, item, width = walk.count + 1
    cdef int64_t missing
    cdef uint64_t open_nodes = chosen

    for demand in range(walk.demand_count):
        missing = (
            walk.demands[demand].request
            - walk.tops[(demand * width + undecided) * width + remaining]
        )
        if missing > 0 and reached(walk.demands[demand], chosen) < missing:
            return True

    if walk.touching_count:
        for item in range(undecided):
            open_nodes |= (<uint64_t>1) << walk.nodes[item]

        for item in range(walk.touching_count):
            if not walk.touching[item] & open_nodes:
                return True

    return False


cdef int64_t cost_of_adding(const Walk* walk, uint64_t chosen, int node) noexcept nogil:
    """Return what a node adds to the sum of distances: to itself, and to and from the chosen."""
    cdef const int64_t* distance = walk.distances
    cdef int64_t cost = distance[node * 64 + node]
    while chosen:
        cost += distance[node * 64 + lowest(chosen)] + distance[lowest(chosen) * 64 + node]
        chosen &= chosen - 1
    return cost


cdef int64_t least_cost_by_node(
    const Walk* walk, int undecided, uint64_t chosen, int remaining, int64_t cost
) noexcept nogil:
    """Return a lower bound on the sum of distances of any completion, node by node.

    For chosen nodes C and a completion T of them, both ways between a pair counted,

        cost(C + T) = cost(C)
                      + sum over t in T of (what t adds to C)
                      + sum over t in T of d(t, T without t)

    and d(t, T without t) is at least the sum of the |T| - 1 smallest distances from t to any
    candidate. So the smallest |T| of these sums among the undecided, together with cost(C), are a
    bound.
    """
    cdef int64_t cheapest[64]
    cdef int64_t single
    cdef int candidate, place, kept = 0

    for candidate in range(undecided):
        single = (
            cost_of_adding(walk, chosen, walk.nodes[candidate])
            + walk.nearest[candidate][remaining - 1]
        )
        if kept == remaining and cheapest[kept - 1] <= single:
            continue

        place = kept if kept < remaining else kept - 1
        while place > 0 and cheapest[place - 1] > single:
            cheapest[place] = cheapest[place - 1]
            place -= 1

        cheapest[place] = single
        if kept < remaining:
            kept += 1

    for place in range(kept):
        cost += cheapest[place]

    return cost


cdef int64_t least_cost_by_tree(Walk* walk, int undecided, uint64_t chosen) noexcept nogil:
    """Return a lower bound on the same by the hierarchy of distances.

    See `alignup.core.wide.distance_bound`.
    """
    cdef uint64_t chosen_candidates = 0
    cdef int candidate
    for candidate in range(undecided, walk.count):
        chosen_candidates |= ((chosen >> walk.nodes[candidate]) & 1) << candidate
    walk.budget.steps -= BOUND_STEPS
    return least_of(&walk.tree, chosen_candidates, all_nodes(undecided), walk.size)


cdef bint too_far(
    Walk* walk, int undecided, uint64_t chosen, int remaining, int64_t cost
) noexcept nogil:
    """Return whether every completion costs more than the target.

    `beyond` learns the least such bound.
    """
    cdef int64_t bound = least_cost_by_node(walk, undecided, chosen, remaining, cost)
    if bound <= walk.target:
        bound = max(bound, least_cost_by_tree(walk, undecided, chosen))
    if bound <= walk.target:
        return False
    walk.beyond = min(walk.beyond, bound)
    return True


cdef bint stop(Walk* walk, uint64_t mask, int64_t _cost) noexcept nogil:
    """Take the first set."""
    walk.is_found = True
    walk.best = mask
    return True


cdef bint improve(Walk* walk, uint64_t mask, int64_t cost) noexcept nogil:
    """Take each set that is nearer than the one before."""
    walk.is_found = True
    walk.best = mask
    walk.target = cost - 1
    return False


cdef bint collect_one(Walk* walk, uint64_t mask, int64_t _cost) noexcept nogil:
    """List the set, until there is no room."""
    walk.collected[walk.collected_count] = mask
    walk.collected_count += 1
    return walk.collected_count == walk.room


cdef bint leaves_out(Walk* walk, int candidate) noexcept nogil:
    return walk.leave_out == NULL or walk.leave_out(walk.context, candidate)


cdef void brings_back(Walk* walk, int first, int end) noexcept nogil:
    cdef int candidate
    if walk.bring_back != NULL:
        for candidate in range(first, end):
            walk.bring_back(walk.context, candidate)


cdef bint complete(Walk* walk, int undecided, uint64_t chosen, int64_t cost) noexcept nogil:
    """Visit a set of the right size if it meets everything, all undecided candidates left out."""
    cdef int candidate = undecided
    cdef bint over = False

    if cost > walk.target:
        walk.beyond = min(walk.beyond, cost)
        return False

    if not satisfied(walk, chosen):
        return False

    while candidate > 0 and leaves_out(walk, candidate - 1):
        candidate -= 1

    if candidate == 0:
        over = walk.visit(walk, chosen, cost)

    brings_back(walk, candidate, undecided)
    return over


cdef bint no_completion(
    Walk* walk, int undecided, uint64_t chosen, uint64_t forced, int remaining, int64_t cost
) noexcept nogil:
    """Return whether the bounds say that no choice of `remaining` undecided candidates will do."""
    if (
        undecided < remaining
        or popcount(forced) > remaining
        or hopeless(walk, undecided, chosen, remaining)
    ):
        return True
    if (
        walk.can_leave_out != NULL
        and not walk.can_leave_out(walk.context, undecided, undecided - remaining)
    ):
        return True
    if walk.distances == NULL or not walk.bounded or remaining == 0:
        return False

    return too_far(walk, undecided, chosen, remaining, cost)


cdef bint descend(
    Walk* walk, int undecided, uint64_t chosen, uint64_t forced, int remaining, int64_t cost
) noexcept nogil:
    """Decide the highest undecided candidate, both ways; return whether the walk is over."""
    cdef int candidate = undecided - 1
    cdef uint64_t bit
    cdef bint over

    if walk.budget.steps <= 0:
        walk.budget.cut = True
        return True

    walk.budget.steps -= 1
    if no_completion(walk, undecided, chosen, forced, remaining, cost):
        return False
    if remaining == 0:
        return complete(walk, undecided, chosen, cost)

    bit = (<uint64_t>1) << candidate
    if undecided > remaining and not forced & bit and leaves_out(walk, candidate):
        over = descend(walk, candidate, chosen, forced, remaining, cost)
        brings_back(walk, candidate, undecided)
        if over:
            return True

    if walk.distances != NULL:
        cost += cost_of_adding(walk, chosen, walk.nodes[candidate])

    return descend(
        walk,
        candidate,
        chosen | (<uint64_t>1) << walk.nodes[candidate],
        (forced | walk.lower_alike[candidate]) & ~bit,
        remaining - 1,
        cost,
    )


cdef void start(Walk* walk, int size) noexcept nogil:
    walk.is_found = False
    walk.best = 0
    walk.size = size
    walk.target = UNBOUNDED
    walk.visit = stop


cdef bint find_any(Walk* walk, int size) noexcept nogil:
    """Return whether there is a set of `size` candidates that meets everything.

    The lowest is in `best`.
    """
    cdef const int64_t* distances = walk.distances
    start(walk, size)
    walk.distances = NULL
    descend(walk, walk.count, 0, 0, size, 0)
    walk.distances = distances
    return walk.is_found


cdef bint find_best(Walk* walk, int size, uint64_t base) noexcept nogil:
    """Find the best set of `size` nodes: all of `base`, and candidates; it is in `best`.

    Best is the lowest in value, by distances the nearest and then the lowest; with distances `base`
    is empty.
    """
    start(walk, size)
    if walk.distances == NULL:
        descend(walk, walk.count, base, 0, size - popcount(base), 0)
    else:
        find_nearest(walk, size)
    return walk.is_found


cdef void find_nearest(Walk* walk, int size) noexcept nogil:
    """Find the nearest set, and of equally near ones the lowest.

    Where there are few vectors of counts all are looked at, for less than bounds would take.
    Otherwise the bound may be exact, and is on machines whose distances form a hierarchy: that is
    tried first. If it is not, any set is improved until none is nearer; this looks at everything,
    so that it alone says whether the answer is exact.
    """
    cdef bint cut = walk.budget.cut

    walk.bounded = count_vectors(walk, size) > MOST_VECTORS
    if walk.bounded:
        if find_at_bound(walk, size):
            return
        walk.budget.cut = cut
        walk.budget.steps = max(walk.budget.steps, IMPROVING_STEPS)
    walk.target = UNBOUNDED
    walk.visit = improve
    descend(walk, walk.count, 0, 0, size, 0)


cdef bint find_at_bound(Walk* walk, int size) noexcept nogil:
    """Try as targets the lowest bound on the distances and the next ones.

    Return whether that answered. No set costs less than a target, so that the first set met under
    it is the lowest among the nearest.
    """
    cdef int _attempt

    walk.target = least_of(&walk.tree, 0, all_nodes(walk.count), size)
    for _attempt in range(MOST_TARGETS):
        walk.beyond = UNBOUNDED
        descend(walk, walk.count, 0, 0, size, 0)
        if walk.is_found or walk.budget.steps <= 0:
            return walk.is_found
        if walk.beyond == UNBOUNDED:
            return True
        walk.target = walk.beyond
    return False


cdef void collect(Walk* walk, int size) noexcept nogil:
    """List every set of `size` candidates that meets everything.

    They come in ascending order, until there is no room.
    """
    start(walk, size)
    memset(walk.lower_alike, 0, sizeof(walk.lower_alike))
    walk.visit = collect_one
    if walk.collected_count < walk.room:
        descend(walk, walk.count, 0, 0, size, 0)


cdef int smallest_described(const Description* description, Budget* budget) noexcept nogil:
    """Return the size of the smallest mask that a description holds.

    It is 0 if it holds none, and negative on failure.
    """
    cdef Walk walk
    cdef int size, smallest = 0, failed

    memset(&walk, 0, sizeof(walk))
    failed = add_description(&walk, description, 0)
    if not failed:
        failed = prepare(&walk, description.universe)

    if failed:
        return failed

    walk.budget = budget
    if satisfied(&walk, description.universe):
        for size in range(1, walk.count + 1):
            if find_any(&walk, size):
                smallest = size
                break

    finish(&walk)
    return smallest
