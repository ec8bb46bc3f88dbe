"""Prepare a search for a set of so many nodes: conditions, bounds, and the classes of interchangeable nodes.

The walk itself is in `alignup.core.wide.walk`.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from alignup.core.bits cimport lowest
from alignup.core.wide.distance_bound cimport grow
from alignup.core.wide.family cimport reached
from alignup.core.wide.limits cimport MOST_VECTORS


cdef enum:
    OK = 0
    TOO_MANY = -1
    NO_MEMORY = -2


cdef int add_description(Walk* walk, const Description* description, int size) noexcept nogil:
    """Add all that a description demands of a mask of `size` nodes; `size` 0: preference does not matter.

    Returns 0, or -1 when a fixed bound of this search is exceeded.
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
        walk.rules[walk.rule_count].wanted = description.preferred_sockets
        walk.rules[walk.rule_count].count = description.socket_count
        walk.rules[walk.rule_count].sockets = description.sockets
        walk.rule_count += 1
    return OK


cdef bint alike(const Walk* walk, int one, int other) noexcept nogil:
    """Return whether exchanging two candidates in any set changes neither what it reaches nor what it costs."""
    cdef uint64_t bit = (<uint64_t>1) << walk.nodes[one], twin = (<uint64_t>1) << walk.nodes[other]
    cdef int index, item
    cdef uint64_t place
    cdef int64_t single_one, single_other
    for index in range(walk.demand_count):
        single_one = single_other = 0
        for item in range(walk.demands[index].count):
            place = walk.demands[index].places[item]
            if place == bit:
                single_one += walk.demands[index].amounts[item]
            elif place == twin:
                single_other += walk.demands[index].amounts[item]
            elif ((place & bit) != 0) != ((place & twin) != 0):
                return False
        if single_one != single_other:
            return False
    for index in range(walk.touching_count):
        if ((walk.touching[index] & bit) != 0) != ((walk.touching[index] & twin) != 0):
            return False
    for index in range(walk.rule_count):
        for item in range(walk.rules[index].count):
            place = walk.rules[index].sockets[item]
            if ((place & bit) != 0) != ((place & twin) != 0):
                return False
    return walk.distances == NULL or equally_far(walk, walk.nodes[one], walk.nodes[other])


cdef bint equally_far(const Walk* walk, int one, int other) noexcept nogil:
    """Return whether two nodes have the same distances to and from all other candidates."""
    cdef const int64_t* distance = walk.distances
    cdef int index, node
    if distance[one * 64 + one] != distance[other * 64 + other]:
        return False
    for index in range(walk.count):
        node = walk.nodes[index]
        if node == one or node == other:
            continue
        if (distance[one * 64 + node] + distance[node * 64 + one]
                != distance[other * 64 + node] + distance[node * 64 + other]):
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


cdef void rank_distances(Walk* walk) noexcept nogil:
    """Fill `nearest` with sums of the smallest distances from each candidate to others."""
    cdef int64_t ordered[64]
    cdef int64_t distance
    cdef int one, other, count, place
    for one in range(walk.count):
        count = 0
        for other in range(walk.count):
            if other == one:
                continue
            distance = walk.distances[walk.nodes[one] * 64 + walk.nodes[other]]
            place = count
            while place > 0 and ordered[place - 1] > distance:
                ordered[place] = ordered[place - 1]
                place -= 1
            ordered[place] = distance
            count += 1
        walk.nearest[one][0] = 0
        for place in range(count):
            walk.nearest[one][place + 1] = walk.nearest[one][place] + ordered[place]


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
        if touched != walk.rules[index].wanted:
            return False
    return True


cdef int64_t count_vectors(const Walk* walk, int size) noexcept nogil:
    """Return how many vectors of counts by class have `size` nodes, `MOST_VECTORS` + 1 for more than that."""
    cdef int64_t ways[65]
    cdef int64_t here
    cdef int candidate, members, taken, total
    memset(ways, 0, sizeof(ways))
    ways[0] = 1
    for candidate in range(walk.count):
        if walk.lower_alike[candidate]:
            continue
        members = class_size(walk, candidate)
        for total in range(size, 0, -1):
            here = ways[total]
            for taken in range(1, min(members, total) + 1):
                here += ways[total - taken]
            ways[total] = min(here, MOST_VECTORS + 1)
    return ways[size]


cdef int class_size(const Walk* walk, int lowest_candidate) noexcept nogil:
    cdef int candidate, members = 1
    for candidate in range(lowest_candidate + 1, walk.count):
        members += (walk.lower_alike[candidate] >> lowest_candidate) & 1
    return members
