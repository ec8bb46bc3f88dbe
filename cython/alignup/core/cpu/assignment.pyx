"""Choose CPUs the kubelet's way.

Whole big groups come first while they fit, then whole cores, then single CPUs. Among groups of a
kind the one with the fewest free CPUs comes first (best fit), then the lowest id. Which CPUs may be
given away, and to whom they are given, is decided elsewhere.
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from alignup.core.bits cimport popcount
from alignup.core.word_set cimport (
    add_cpus,
    count_common,
    count_in,
    highest_of,
    lowest_of,
    overlap,
    remove_cpus,
)
from alignup.core.cpu.groups cimport CpuGroup, CpuGroups


# CPUs that are being picked: what is still free, how many are still needed, what was taken.
cdef struct Pick:
    const CpuGroups* groups
    # must not be taken, not even as part of a group that counts as wholly free
    const uint64_t* allocated
    uint64_t* free
    uint64_t* chosen
    int needed
    uint64_t* snapshot          # what was free when the current step began: its order goes by that
    uint64_t* inner_snapshot    # the same for the step within a step
    uint64_t* remainder         # see `find_remainder`


cdef enum Kind:
    OUTER
    INNER
    L3_GROUP


cdef void pack(
    const CpuGroups* groups,
    const uint64_t* free,
    int count,
    const uint64_t* allocated,
    SpreadRule spread_rule,
    L3Rule l3_rule,
    uint64_t* chosen,
    uint64_t* scratch,
) noexcept nogil:
    """Take `count` of the free CPUs, on as few groups as possible.

    None if there are too few. Where groups count as wholly free by the average size
    (kubelets before 1.38) the result may include CPUs that are not free: a group larger than the
    average is taken whole when as many of its CPUs are free as an average group has. This follows
    the kubelet, which may thereby give away reserved CPUs or another container's, or count CPUs
    twice and give too few. Here the result may include reserved CPUs at most.

    It has fewer CPUs than `count` where an L3 group of several NUMA nodes is counted twice, see
    `take_whole_l3_groups`; what is missing can then be asked for once more.

    Args:
        groups: the machine.
        free: the CPUs to choose from.
        count: how many.
        allocated: the CPUs that must not be taken whatever happens.
        spread_rule: whether single CPUs are taken where whole cores would be, and which.
        l3_rule: whether L3 groups are preferred after sockets and nodes, and how.
        chosen: where the set of the CPUs taken is written.
        scratch: room for `PACK_SETS` sets.
    """
    cdef int words = groups.words
    cdef Pick pick
    cdef Walk order

    memset(chosen, 0, words * sizeof(uint64_t))
    if not 0 < count <= count_in(free, words):
        return

    pick.groups = groups
    pick.allocated = allocated
    pick.chosen = chosen
    pick.needed = count

    pick.free = scratch
    pick.snapshot = scratch + words
    pick.inner_snapshot = scratch + 2 * words
    pick.remainder = scratch + 3 * words

    memcpy(pick.free, free, words * sizeof(uint64_t))
    if pick.needed >= groups.smallest_outer:
        order = walk(groups, free)
        take_whole(&pick, &order, OUTER, groups.smallest_outer)

    if pick.needed >= groups.smallest_inner:
        order = walk_from_now(&pick, pick.snapshot)
        take_whole(&pick, &order, INNER, groups.smallest_inner)

    if pick.needed > 0 and l3_rule == L3_WHOLE_FIRST:
        take_l3_groups_by_kind(&pick)
    elif pick.needed > 0 and l3_rule != L3_IGNORED:
        take_l3_groups(&pick, l3_rule)

    if spread_rule == SPREAD_IN_TURNS:
        take_cpus_in_turns(&pick)
        return
    if spread_rule == SPREAD_BY_NUMBER:
        take_cpus_by_number(&pick)
        return

    if pick.needed >= groups.smallest_core:
        take_whole_cores(&pick)

    if pick.needed > 0:
        take_cpus_by_core(&pick)


# Orders

cdef Walk walk(const CpuGroups* groups, const uint64_t* free) noexcept nogil:
    """Return a walk over the groups of a machine by what is free.

    Its steps are the functions `next_...`.
    """
    cdef Walk walk
    walk.groups = groups
    walk.free = free
    walk.outer = order_of(groups.outer, NULL, groups.outer_count, free, NULL)
    walk.inner = order_of(groups.inner, NULL, 0, free, NULL)
    walk.l3 = order_of(groups.l3_groups, NULL, 0, free, NULL)
    return walk


cdef inline Walk walk_from_now(const Pick* pick, uint64_t* snapshot) noexcept nogil:
    """Return a walk by what is free now, which is noted in `snapshot`.

    Taking CPUs does not change its order.
    """
    memcpy(snapshot, pick.free, pick.groups.words * sizeof(uint64_t))
    return walk(pick.groups, snapshot)


cdef inline Order order_of(
    const CpuGroup* groups,
    const int* members,
    int size,
    const uint64_t* free,
    const CpuGroup* within,
) noexcept nogil:
    """Return the order of groups that have free CPUs: fewest free first, then lowest id."""
    cdef Order order

    order.groups = groups
    order.members = members
    order.size = size
    order.free = free
    order.within = within
    order.count = 0
    order.next_count = INT_MAX
    order.place = 0
    return order


cdef const CpuGroup* next_in_order(Order* order) noexcept nogil:
    """Return the next group, NULL after the last.

    The groups are looked through once for each number of free CPUs among them: no room for a sorted
    list is needed, and little time is lost when the first few will do.
    """
    cdef const CpuGroup* group
    cdef int count

    while True:
        while order.place < order.size:
            group = order.groups + (
                order.place if order.members is NULL else order.members[order.place]
            )
            order.place += 1
            count = count_common(
                order.free, group.cpus, group.first_word, group.end_word, group.word_step
            )
            if order.count < count < order.next_count:
                order.next_count = count
            elif count == order.count and count and has_free_within(order, group):
                return group

        if order.next_count == INT_MAX:
            return NULL

        order.count = order.next_count
        order.next_count = INT_MAX
        order.place = 0


cdef inline bint has_free_within(const Order* order, const CpuGroup* group) noexcept nogil:
    cdef int word = group.first_word

    if order.within is NULL:
        return True
    while word < group.end_word:
        if order.free[word] & group.cpus[word] & order.within.cpus[word]:
            return True
        word += group.word_step
    return False


cdef inline Order parts_of(
    const CpuGroups* groups, const CpuGroup* finer, const CpuGroup* group, const uint64_t* free
) noexcept nogil:
    """Return the order of a group's parts, which are among the groups of a finer kind."""
    return order_of(
        finer, groups.members + group.first_part, group.end_part - group.first_part, free, group
    )


cdef const CpuGroup* next_outer(Walk* walk) noexcept nogil:
    return next_in_order(&walk.outer)


cdef const CpuGroup* next_inner(Walk* walk) noexcept nogil:
    """Return the next inner group: an outer group's parts come one after the other."""
    cdef const CpuGroup* group

    while True:
        group = next_in_order(&walk.inner)
        if group is not NULL:
            return group
        group = next_outer(walk)
        if group is NULL:
            return NULL
        walk.inner = parts_of(walk.groups, walk.groups.inner, group, walk.free)


cdef const CpuGroup* next_node(Walk* walk) noexcept nogil:
    """Return the next NUMA node.

    One in two sockets comes with each of them if sockets are larger.
    """
    return next_inner(walk) if walk.groups.sockets_outer else next_outer(walk)


cdef const CpuGroup* next_l3_group(Walk* walk) noexcept nogil:
    """Return the next L3 group: those of a NUMA node come one after the other."""
    cdef const CpuGroup* group

    while True:
        group = next_in_order(&walk.l3)
        if group is not NULL:
            return group

        group = next_node(walk)
        if group is NULL:
            return NULL

        walk.l3 = order_of(
            walk.groups.l3_groups,
            walk.groups.members + group.first_l3_group,
            group.end_l3_group - group.first_l3_group,
            walk.free,
            group,
        )


# Whole groups

cdef inline void take(
    Pick* pick, const uint64_t* cpus, int first, int end, int step, int count
) noexcept nogil:
    """Take these CPUs, `count` in number."""
    add_cpus(pick.chosen, cpus, first, end, step)
    remove_cpus(pick.free, cpus, first, end, step)
    pick.needed -= count


cdef inline void take_if_whole(Pick* pick, const CpuGroup* group) noexcept nogil:
    """Take a group if it is wholly free and not larger than what is needed."""
    cdef int first = group.first_word, end = group.end_word, step = group.word_step

    if (
        pick.needed < group.size
        or count_common(pick.free, group.cpus, first, end, step) != group.whole
    ):
        return

    # of a group that is larger than the average, CPUs can be held or taken while it counts as
    # wholly free
    if not (
        overlap(group.cpus, pick.allocated, first, end, step)
        or overlap(group.cpus, pick.chosen, first, end, step)
    ):
        take(pick, group.cpus, first, end, step, group.size)


cdef void take_whole(Pick* pick, Walk* walk, Kind kind, int smallest) noexcept nogil:
    """Take every group of a kind that is wholly free and not larger than what is needed."""
    cdef const CpuGroup* group

    while pick.needed >= smallest:
        if kind == OUTER:
            group = next_outer(walk)
        elif kind == INNER:
            group = next_inner(walk)
        else:
            group = next_l3_group(walk)
        if group is NULL:
            return
        take_if_whole(pick, group)


cdef void take_whole_cores(Pick* pick) noexcept nogil:
    """Take whole cores.

    Where they all have the same number of free CPUs, their order is that of their ids.
    """
    cdef const CpuGroups* groups = pick.groups
    cdef const CpuGroup* group
    cdef Walk walk = walk_from_now(pick, pick.snapshot)
    cdef int place

    while True:
        group = next_inner(&walk)
        if group is NULL:
            return
        if groups.whole_cores_differ:
            take_whole_parts(pick, parts_of(groups, groups.cores, group, walk.free))
            continue

        for place in range(group.first_part, group.end_part):
            take_if_whole(pick, &groups.cores[groups.members[place]])
            if pick.needed < groups.smallest_core:
                return


cdef void take_whole_parts(Pick* pick, Order cores) noexcept nogil:
    """Take whole cores of one group, the smallest first."""
    cdef const CpuGroup* core

    while pick.needed >= pick.groups.smallest_core:
        core = next_in_order(&cores)
        if core is NULL:
            return
        take_if_whole(pick, core)


# Single CPUs

cdef void take_lowest(Pick* pick, const CpuGroup* group) noexcept nogil:
    """Take the lowest free CPUs of a group, as many as are needed and it has."""
    cdef uint64_t cpus
    cdef int word = group.first_word, count

    while word < group.end_word:
        cpus = pick.free[word] & group.cpus[word]
        count = popcount(cpus)
        if count > pick.needed:
            count = pick.needed
            cpus = lowest_of(cpus, count)

        pick.chosen[word] |= cpus
        pick.free[word] &= ~cpus
        pick.needed -= count
        word += group.word_step


cdef void take_cpus_by_core(Pick* pick) noexcept nogil:
    """Take single CPUs, from the cores with the fewest free ones first."""
    cdef const CpuGroups* groups = pick.groups
    cdef const CpuGroup* group
    cdef const CpuGroup* core
    cdef Walk walk = walk_from_now(pick, pick.snapshot)
    cdef Order cores

    while True:
        group = next_inner(&walk)
        if group is NULL:
            return

        cores = parts_of(groups, groups.cores, group, walk.free)
        cores.within = NULL
        while True:
            core = next_in_order(&cores)
            if core is NULL:
                break

            take_lowest(pick, core)
            if pick.needed < 1:
                return


cdef void take_cpus_by_number(Pick* pick) noexcept nogil:
    """Take single CPUs, socket by socket in ascending order.

    Siblings are numbered apart on most machines.
    """
    cdef const CpuGroup* socket
    cdef Walk walk = walk_from_now(pick, pick.snapshot)
    while pick.needed > 0:
        socket = next_outer(&walk) if pick.groups.sockets_outer else next_inner(&walk)
        if socket is NULL:
            return
        take_lowest(pick, socket)


cdef void take_cpus_in_turns(Pick* pick) noexcept nogil:
    """Take single CPUs, socket by socket: one of each core in turn.

    The core with the fewest free ones comes first, whichever NUMA node it is in
    (`sortAvailableCPUsSpread` in `cpumanager/cpu_assignment.go`).
    """
    cdef const CpuGroups* groups = pick.groups
    cdef const CpuGroup* socket
    cdef Walk walk = walk_from_now(pick, pick.snapshot)

    while pick.needed > 0:
        socket = next_outer(&walk) if groups.sockets_outer else next_inner(&walk)
        if socket is NULL:
            return

        while pick.needed > 0 and take_one_of_each_core(pick, socket, walk.free):
            pass


cdef bint take_one_of_each_core(
    Pick* pick, const CpuGroup* socket, const uint64_t* free
) noexcept nogil:
    """Take the lowest free CPU of each core of a socket; return whether there was one.

    `free` is what was free before the first turn, by which cores are ordered.
    """
    cdef const CpuGroups* groups = pick.groups
    cdef const CpuGroup* core
    cdef Order cores
    cdef bint has_taken = False

    if groups.sockets_outer:
        cores = order_of(groups.cores, NULL, groups.core_count, free, socket)
    else:
        cores = parts_of(groups, groups.cores, socket, free)

    while pick.needed > 0:
        core = next_in_order(&cores)
        if core is NULL:
            break
        has_taken |= take_lowest_one(pick, core)

    return has_taken


cdef bint take_lowest_one(Pick* pick, const CpuGroup* core) noexcept nogil:
    """Take the lowest free CPU of a core; return whether it has one."""
    cdef uint64_t cpus
    cdef int word = core.first_word

    while word < core.end_word:
        cpus = pick.free[word] & core.cpus[word]
        if cpus:
            cpus = lowest_of(cpus, 1)
            pick.chosen[word] |= cpus
            pick.free[word] &= ~cpus
            pick.needed -= 1
            return True
        word += core.word_step

    return False


# L3 groups

cdef void take_l3_groups_by_kind(Pick* pick) noexcept nogil:
    """Take whole L3 groups while they fit; then the rest from one that can hold all of it.

    Both in the order of what was free before (`takeUncoreCache` in
    `cpumanager/cpu_assignment.go` of 1.38).
    """
    cdef const CpuGroup* group
    cdef Walk order = walk_from_now(pick, pick.snapshot)

    take_whole(pick, &order, L3_GROUP, 1)
    if pick.needed < 1:
        return

    order = walk(pick.groups, pick.snapshot)
    while True:
        group = next_l3_group(&order)
        if group is NULL:
            return
        if take_remainder(pick, group, L3_WHOLE_FIRST):
            return


cdef bint take_remainder(Pick* pick, const CpuGroup* group, L3Rule rule) noexcept nogil:
    """Take all that is still needed from one L3 group; return whether it can give that."""
    if find_remainder(pick, group, rule) != pick.needed:
        return False

    take(pick, pick.remainder, 0, pick.groups.words, 1, pick.needed)
    return True


cdef void take_l3_groups(Pick* pick, L3Rule rule) noexcept nogil:
    """Take whole L3 groups while they fit, and the rest from one group that can hold all of it.

    As kubelets before 1.38 do: each group that comes up may be the one that gives the rest, while
    whole groups that come after it would still fit.
    """
    cdef const CpuGroup* group
    cdef Walk walk = walk_from_now(pick, pick.snapshot)
    cdef int before
    cdef bint none_left = False    # no whole group is left that fits: looking again would find none

    while True:
        group = next_l3_group(&walk)
        if group is NULL:
            return

        if pick.needed >= pick.groups.cpus_per_l3_group and not none_left:
            before = pick.needed
            take_whole_l3_groups(pick)
            none_left = pick.needed == before

        if pick.needed < 1:
            return

        if take_remainder(pick, group, rule):
            return


cdef void take_whole_l3_groups(Pick* pick) noexcept nogil:
    """Take every L3 group that is wholly free now and not larger than what is needed.

    One that has free CPUs in several NUMA nodes comes with each of them, and kubelets before 1.38
    count it each time (`freeUncoreCache` in `cpumanager/cpu_assignment.go`): they need so many
    CPUs fewer then.
    """
    cdef const CpuGroup* group
    cdef Walk order = walk_from_now(pick, pick.inner_snapshot)
    cdef int first, end, step

    while pick.needed > 0:
        group = next_l3_group(&order)
        if group is NULL:
            return
        first, end, step = group.first_word, group.end_word, group.word_step
        if (
            pick.needed >= group.size
            and count_common(order.free, group.cpus, first, end, step) == group.size
            and not overlap(group.cpus, pick.allocated, first, end, step)
        ):
            take(pick, group.cpus, first, end, step, group.size)


cdef int find_remainder(Pick* pick, const CpuGroup* group, L3Rule rule) noexcept nogil:
    """Note in `remainder` the free CPUs of as many cores of an L3 group as are needed.

    The lowest come first. Return how many CPUs these are. Where an odd number is needed and cores
    have several CPUs, one CPU too many is left out, no more than one; rounding down, there are too
    few.
    """
    cdef const CpuGroups* groups = pick.groups
    cdef const CpuGroup* core
    cdef int per_core = groups.cpus_per_core
    cdef int round_up = 0 if rule == L3_ROUNDS_DOWN else per_core - 1
    cdef int cores = (pick.needed + round_up) / per_core
    cdef int place, word, count, last

    memset(pick.remainder, 0, groups.words * sizeof(uint64_t))
    for place in range(group.first_part, group.end_part):
        if not cores:
            break

        core = &groups.cores[groups.members[place]]
        if not overlap(pick.free, core.cpus, core.first_word, core.end_word, core.word_step):
            continue

        cores -= 1
        word = core.first_word
        while word < core.end_word:
            pick.remainder[word] |= pick.free[word] & core.cpus[word]
            word += core.word_step

    count = count_in(pick.remainder, groups.words)
    if rule != L3_ROUNDS_DOWN and pick.needed % 2 and per_core > 1 and count > pick.needed:
        last = groups.words - 1
        while not pick.remainder[last]:
            last -= 1

        pick.remainder[last] ^= highest_of(pick.remainder[last])
        count -= 1

    return count
