"""Find the best set of so many nodes that reaches all demands, by search with bounds.

Candidates are decided from the highest node down, "leave out" before "take", so that of two sets of equal cost the
one of lower value is met first. A branch ends when even the largest weights among the undecided nodes cannot
reach a demand, when it cannot beat what was found, or when it would take a node and leave out a lower one that is
interchangeable with it. Which descriptions must hold together is decided by the caller, `alignup.core.wide.merge`.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from alignup.core.bits cimport all_nodes, lowest, popcount
from alignup.core.wide.distance_bound cimport grow, least_of
from alignup.core.wide.family cimport reached


cdef enum:
    OK = 0
    TOO_MANY = -1
    NO_MEMORY = -2

# How many targets are tried before sets are improved instead, and the steps that are always left for that.
cdef enum:
    MOST_TARGETS = 4
    LAST_STEPS = 10000
    # Bounding the distances costs as much as so many decisions.
    STEPS_A_BOUND = 16

cdef int64_t UNBOUNDED = 0x7FFFFFFFFFFFFFFF


cdef int add_description(Cover* cover, const Description* description, int size) noexcept nogil:
    """Add all that a description demands of a mask of `size` nodes; `size` 0: preference does not matter.

    Returns 0, or -1 when a fixed bound of this search is exceeded.
    """
    cdef int index
    for index in range(description.demand_count):
        if cover.demand_count == MOST_DEMANDS:
            return TOO_MANY
        cover.demands[cover.demand_count] = &description.demands[index]
        cover.demand_count += 1
    for index in range(description.touching_count):
        if cover.touching_count == MOST_TOUCHING:
            return TOO_MANY
        cover.touching[cover.touching_count] = description.touching[index]
        cover.touching_count += 1
    if size and size != description.preferred_size and description.preferred_sockets >= 0:
        if cover.rule_count == MOST_SOCKET_RULES:
            return TOO_MANY
        cover.rules[cover.rule_count].wanted = description.preferred_sockets
        cover.rules[cover.rule_count].count = description.socket_count
        cover.rules[cover.rule_count].sockets = description.sockets
        cover.rule_count += 1
    return OK


cdef bint alike(const Cover* cover, int one, int other) noexcept nogil:
    """Return whether exchanging two candidates in any set changes neither what it reaches nor what it costs."""
    cdef uint64_t bit = (<uint64_t>1) << cover.nodes[one], twin = (<uint64_t>1) << cover.nodes[other]
    cdef int index, item
    cdef uint64_t place
    cdef int64_t single_one, single_other
    for index in range(cover.demand_count):
        single_one = single_other = 0
        for item in range(cover.demands[index].count):
            place = cover.demands[index].places[item]
            if place == bit:
                single_one += cover.demands[index].amounts[item]
            elif place == twin:
                single_other += cover.demands[index].amounts[item]
            elif ((place & bit) != 0) != ((place & twin) != 0):
                return False
        if single_one != single_other:
            return False
    for index in range(cover.touching_count):
        if ((cover.touching[index] & bit) != 0) != ((cover.touching[index] & twin) != 0):
            return False
    for index in range(cover.rule_count):
        for item in range(cover.rules[index].count):
            place = cover.rules[index].sockets[item]
            if ((place & bit) != 0) != ((place & twin) != 0):
                return False
    return cover.distances == NULL or equally_far(cover, cover.nodes[one], cover.nodes[other])


cdef bint equally_far(const Cover* cover, int one, int other) noexcept nogil:
    """Return whether two nodes have the same distances to and from all other candidates."""
    cdef const int64_t* distance = cover.distances
    cdef int index, node
    if distance[one * 64 + one] != distance[other * 64 + other]:
        return False
    for index in range(cover.count):
        node = cover.nodes[index]
        if node == one or node == other:
            continue
        if (distance[one * 64 + node] + distance[node * 64 + one]
                != distance[other * 64 + node] + distance[node * 64 + other]):
            return False
    return True


cdef int prepare(Cover* cover, uint64_t universe) noexcept nogil:
    """Work out weights, bounds and classes for choosing from `universe`; `finish` frees them.

    Returns 0, or -2 when there is no memory.
    """
    cdef int demand, candidate, before
    cdef uint64_t rest = universe
    cover.count = 0
    while rest:
        cover.nodes[cover.count] = lowest(rest)
        cover.count += 1
        rest &= rest - 1
    cdef int width = cover.count + 1
    # At least one, because a caller may put a demand of its own in the place of all.
    cover.tops = <int64_t*>malloc(sizeof(int64_t) * max(cover.demand_count, 1) * width * width)
    if cover.tops == NULL:
        return NO_MEMORY
    for demand in range(cover.demand_count):
        weigh(cover, demand)
    for candidate in range(cover.count):
        cover.lower_alike[candidate] = 0
        for before in range(candidate):
            if alike(cover, before, candidate):
                cover.lower_alike[candidate] |= (<uint64_t>1) << before
    if cover.distances != NULL:
        rank_distances(cover)
        grow(&cover.tree, cover.nodes, cover.count, cover.distances)
    return OK


cdef void weigh(Cover* cover, int demand) noexcept nogil:
    """Work out what each candidate adds to a demand at most, and what so many of them can add."""
    cdef int candidate, item, width = cover.count + 1
    for candidate in range(cover.count):
        cover.weights[demand][candidate] = 0
        for item in range(cover.demands[demand].count):
            if (cover.demands[demand].places[item] >> cover.nodes[candidate]) & 1:
                cover.weights[demand][candidate] += cover.demands[demand].amounts[item]
    sum_largest(cover.weights[demand], cover.count, cover.tops + demand * width * width)


cdef void sum_largest(const int64_t* weights, int count, int64_t* tops) noexcept nogil:
    """Fill tops[j * (count + 1) + r] with the sum of the r largest of the first j weights (of all, when r > j)."""
    cdef int64_t ordered[64]
    cdef int taken, index, place, width = count + 1
    for taken in range(count + 1):
        if taken:
            place = taken - 1
            while place > 0 and ordered[place - 1] < weights[taken - 1]:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = weights[taken - 1]
        tops[taken * width] = 0
        for index in range(count):
            tops[taken * width + index + 1] = tops[taken * width + index] + (ordered[index] if index < taken else 0)


cdef void rank_distances(Cover* cover) noexcept nogil:
    """Fill `nearest` with sums of the smallest distances from each candidate to others."""
    cdef int64_t ordered[64]
    cdef int64_t distance
    cdef int one, other, count, place
    for one in range(cover.count):
        count = 0
        for other in range(cover.count):
            if other == one:
                continue
            distance = cover.distances[cover.nodes[one] * 64 + cover.nodes[other]]
            place = count
            while place > 0 and ordered[place - 1] > distance:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = distance
            count += 1
        cover.nearest[one][0] = 0
        for place in range(count):
            cover.nearest[one][place + 1] = cover.nearest[one][place] + ordered[place]


cdef void finish(Cover* cover) noexcept nogil:
    free(cover.tops)
    cover.tops = NULL


cdef bint satisfied(const Cover* cover, uint64_t mask) noexcept nogil:
    """Return whether a set meets every demand and rule."""
    cdef int index, item, touched
    for index in range(cover.touching_count):
        if not mask & cover.touching[index]:
            return False
    for index in range(cover.demand_count):
        if reached(cover.demands[index], mask) < cover.demands[index].request:
            return False
    for index in range(cover.rule_count):
        touched = 0
        for item in range(cover.rules[index].count):
            touched += (cover.rules[index].sockets[item] & mask) != 0
        if touched != cover.rules[index].wanted:
            return False
    return True


cdef bint hopeless(const Cover* cover, int undecided, uint64_t chosen, int remaining) noexcept nogil:
    """Return whether no choice of the undecided candidates can reach every demand and touch all that must be."""
    cdef int demand, item, width = cover.count + 1
    cdef int64_t missing
    cdef uint64_t open_nodes = chosen
    for demand in range(cover.demand_count):
        missing = cover.demands[demand].request - cover.tops[(demand * width + undecided) * width + remaining]
        if missing > 0 and reached(cover.demands[demand], chosen) < missing:
            return True
    if cover.touching_count:
        for item in range(undecided):
            open_nodes |= (<uint64_t>1) << cover.nodes[item]
        for item in range(cover.touching_count):
            if not cover.touching[item] & open_nodes:
                return True
    return False


cdef int64_t least_cost(
    const Cover* cover, int undecided, uint64_t chosen, int remaining, int64_t cost
) noexcept nogil:
    """Return a lower bound on the sum of distances of any completion.

    Each further node costs its distance to itself, to and from the chosen, and at least its nearest others.
    """
    cdef int64_t cheapest[64]
    cdef int64_t single
    cdef int candidate, node, place, kept = 0
    cdef uint64_t rest
    cdef const int64_t* distance = cover.distances
    for candidate in range(undecided):
        node = cover.nodes[candidate]
        single = distance[node * 64 + node] + cover.nearest[candidate][remaining - 1]
        rest = chosen
        while rest:
            single += distance[node * 64 + lowest(rest)] + distance[lowest(rest) * 64 + node]
            rest &= rest - 1
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


cdef int64_t added_cost(const Cover* cover, uint64_t chosen, int node) noexcept nogil:
    cdef const int64_t* distance = cover.distances
    cdef int64_t cost = distance[node * 64 + node]
    while chosen:
        cost += distance[node * 64 + lowest(chosen)] + distance[lowest(chosen) * 64 + node]
        chosen &= chosen - 1
    return cost


cdef bint too_far(Cover* cover, int undecided, uint64_t chosen, int remaining, int64_t cost) noexcept nogil:
    """Return whether every completion costs more than the target; `beyond` learns the least such bound."""
    cdef int64_t bound = least_cost(cover, undecided, chosen, remaining, cost)
    cdef uint64_t taken = 0
    cdef int candidate
    if bound <= cover.target:
        for candidate in range(undecided, cover.count):
            taken |= ((chosen >> cover.nodes[candidate]) & 1) << candidate
        cover.steps -= STEPS_A_BOUND
        bound = max(bound, least_of(&cover.tree, taken, all_nodes(undecided), cover.size))
    if bound <= cover.target:
        return False
    cover.beyond = min(cover.beyond, bound)
    return True


cdef void keep(Cover* cover, uint64_t chosen, int64_t cost) noexcept nogil:
    """Keep a set that meets everything, if it is accepted."""
    if cover.accept != NULL and not cover.accept(cover.context, chosen):
        return
    cover.found = True
    cover.best = chosen
    cover.best_cost = cost
    if cover.improving:
        cover.target = cost - 1


cdef void descend(
    Cover* cover, int undecided, uint64_t chosen, uint64_t forced, int remaining, int64_t cost
) noexcept nogil:
    """Decide the highest undecided candidate, both ways."""
    cdef int candidate = undecided - 1, node
    cdef uint64_t bit
    if cover.found and not cover.improving:
        return
    if cover.steps <= 0 or (cover.collected != NULL and cover.collected_count == cover.room):
        return
    cover.steps -= 1
    if remaining == 0 and cover.collected != NULL:
        if satisfied(cover, chosen):
            cover.collected[cover.collected_count] = chosen
            cover.collected_count += 1
        return
    if remaining == 0:
        if cost > cover.target:
            cover.beyond = min(cover.beyond, cost)
        elif not forced and satisfied(cover, chosen):
            keep(cover, chosen, cost)
        return
    if undecided < remaining or popcount(forced) > remaining or hopeless(cover, undecided, chosen, remaining):
        return
    if cover.distances != NULL and too_far(cover, undecided, chosen, remaining, cost):
        return
    bit = (<uint64_t>1) << candidate
    node = cover.nodes[candidate]
    if not forced & bit:
        descend(cover, candidate, chosen, forced, remaining, cost)
    if cover.distances != NULL:
        cost += added_cost(cover, chosen, node)
    descend(
        cover, candidate, chosen | (<uint64_t>1) << node, (forced | cover.lower_alike[candidate]) & ~bit,
        remaining - 1, cost,
    )


cdef bint find(Cover* cover, int size, uint64_t base, bint any_will_do) noexcept nogil:
    """Look for the best set of `size` nodes: all of `base`, and candidates; with `any_will_do` any such set.

    The answer is in `best`. When `steps` comes down to 0 the search was cut short.
    """
    cdef const int64_t* distances = cover.distances
    cover.found = False
    cover.best = 0
    cover.best_cost = UNBOUNDED
    cover.size = size
    cover.target = UNBOUNDED
    if any_will_do:
        cover.distances = NULL
    if cover.distances == NULL:
        descend(cover, cover.count, base, 0, size - popcount(base), 0)
    else:
        find_closest(cover, size)
    cover.distances = distances
    return cover.found


cdef void find_closest(Cover* cover, int size) noexcept nogil:
    """Look for the nearest set.

    Where the bound is exact the nearest set costs what the bound says: a few targets are tried, from the lowest bound
    to the next, and what is met first is the lowest in value among the nearest. Where it is not, any set is
    improved until none is nearer.
    """
    cdef int _attempt
    cover.target = least_of(&cover.tree, 0, all_nodes(cover.count), size)
    for _attempt in range(MOST_TARGETS):
        cover.beyond = UNBOUNDED
        descend(cover, cover.count, 0, 0, size, 0)
        if cover.found:
            return
        cover.target = cover.beyond
    cover.steps = max(cover.steps, LAST_STEPS)
    cover.target = UNBOUNDED
    cover.improving = True
    descend(cover, cover.count, 0, 0, size, 0)
    cover.improving = False


cdef int smallest_described(const Description* description, int64_t* steps) noexcept nogil:
    """Return the size of the smallest mask that a description holds, 0 if it holds none, negative on failure."""
    cdef Cover cover
    cdef int size, smallest = 0, failed
    memset(&cover, 0, sizeof(cover))
    failed = add_description(&cover, description, 0)
    if not failed:
        failed = prepare(&cover, description.universe)
    if failed:
        return failed
    cover.steps = steps[0]
    if satisfied(&cover, description.universe):
        for size in range(1, cover.count + 1):
            if find(&cover, size, 0, True):
                smallest = size
                break
    steps[0] = cover.steps
    finish(&cover)
    return smallest
