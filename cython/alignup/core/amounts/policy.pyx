"""Decide on a demand from amounts alone: the hints that the providers would give, merged as a policy merges them.

Most nodes are settled by a single NUMA node that has everything. For the others whole families of masks are merged by
the kernel that merges everywhere (`alignup.core.merge`). What a container then takes is the business of
`alignup.core.amounts.allocate`.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.bits cimport NARROW_NODES, all_nodes
from alignup.core.narrow.family cimport Family
from alignup.core.merge cimport Best, best_preferred, merge_families
from alignup.core.amounts.node_hints cimport asks_for_anything, candidates, families_of, has_memory_anywhere
from alignup.core.amounts.state cimport (
    ADMITTED, MOST_KINDS, MOST_RESOURCES, POLICY_BEST_EFFORT, POLICY_NONE, POLICY_RESTRICTED, POLICY_SINGLE_NUMA_NODE,
    TOPOLOGY_AFFINITY_ERROR, UNDECIDED, Demand, Hint, Outcome, Plan, Shape, State, knows_memory, sum_of,
)
from alignup.core.amounts.merge_amounts cimport merge_sums


cdef Outcome known_enough(const State* state, const Demand* demand, const Plan* plan) noexcept nogil:
    """Tell whether the demand must fail for want of some resource altogether, or can be judged at all.

    Returns:
        ADMITTED: it can be judged. TOPOLOGY_AFFINITY_ERROR: a list is empty. UNDECIDED.
    """
    cdef const Shape* shape = state.shape
    cdef int index, resource, first, end, node, column
    cdef int64_t total
    cdef bint unsure = False
    if shape.has_cpu and demand.cpu:
        if state.cpu_lost:
            unsure = True
        elif sum_of(state.cpu, shape.numa_nodes) < demand.cpu:
            return TOPOLOGY_AFFINITY_ERROR
        elif state.cpu_unsure:
            unsure = True
        elif state.reuses:
            for node in range(shape.numa_nodes):
                unsure = unsure or (state.left_most[node] > 0) != (state.left_least[node] > 0)
    for index in range(demand.resources):
        if not plan.universe[index]:
            continue
        resource = demand.resource[index]
        first = state.layout.starts[resource]
        end = state.layout.starts[resource + 1]
        total = sum_of(state.devices + first, end - first)
        if state.left != NULL:
            total += sum_of(state.left + first, end - first)
        if total < demand.count[index]:
            return TOPOLOGY_AFFINITY_ERROR
        unsure = unsure or ((state.unsure | state.left_unsure) >> resource) & 1
        if state.left != NULL and not (shape.ordered >> resource) & 1:
            # left devices that are near to no node at all would rule out every mask, unlike those without a place
            for column in range(first, end):
                unsure = unsure or (state.left[column] > 0 and shape.places[column] == 0)
    return UNDECIDED if unsure else ADMITTED


cdef inline uint64_t best_single(const Shape* shape, uint64_t found, bint with_distances) noexcept nogil:
    """Return the mask of the best of some single nodes: the nearest to itself if distances count, then the lowest."""
    cdef uint64_t bit, best = found & (~found + 1)
    if shape.distances == NULL or not with_distances:
        return best
    while found:
        bit = found & (~found + 1)
        if shape.distances[bit] < shape.distances[best]:
            best = bit
        found &= found - 1
    return best


cdef Outcome decide(const State* state, const Demand* demand, const Plan* plan, Hint* hint) noexcept nogil:
    """Return whether the policy admits the demand, and the merged hint if so."""
    cdef const Shape* shape = state.shape
    cdef Outcome known
    cdef bint with_memory
    cdef uint64_t found
    hint.mask = 0
    hint.anywhere = True
    hint.preferred = False
    if shape.policy == POLICY_NONE:
        return ADMITTED
    known = known_enough(state, demand, plan)
    if known == UNDECIDED or (known == TOPOLOGY_AFFINITY_ERROR and shape.policy != POLICY_BEST_EFFORT):
        return known
    with_memory = shape.has_memory and demand.kinds != 0
    if known == ADMITTED and (plan.single and (not with_memory or knows_memory(shape, demand))):
        found = candidates(state, demand, plan, with_memory)
        if found and asks_for_anything(state, demand, plan):
            return keep(shape, hint, best_single(shape, found, shape.policy != POLICY_SINGLE_NUMA_NODE), True)
    if shape.policy == POLICY_SINGLE_NUMA_NODE:
        return decide_single(state, demand, plan, hint)
    if shape.policy == POLICY_RESTRICTED and plan.cpu_sockets < 0 and plan.single and known == ADMITTED:
        # all prefer single nodes, so this is the same question
        if asks_for_anything(state, demand, plan):
            return decide_single(state, demand, plan, hint)
    if known == TOPOLOGY_AFFINITY_ERROR and (shape.numa_nodes > NARROW_NODES or not shape.pod_scope):
        return keep(shape, hint, all_nodes(shape.numa_nodes), False)  # the container will not get it anyway
    if shape.numa_nodes > NARROW_NODES:
        if not asks_for_anything(state, demand, plan):
            return keep(shape, hint, all_nodes(shape.numa_nodes), True)
        return UNDECIDED
    return decide_merged(state, demand, plan, known, hint)


cdef inline Outcome keep(const Shape* shape, Hint* hint, uint64_t mask, bint preferred) noexcept nogil:
    """Keep a merged hint; under single-numa-node one that names all nodes constrains nothing."""
    hint.mask = mask
    hint.preferred = preferred
    hint.anywhere = shape.policy == POLICY_SINGLE_NUMA_NODE and mask == all_nodes(shape.numa_nodes)
    return ADMITTED


cdef Outcome decide_single(const State* state, const Demand* demand, const Plan* plan, Hint* hint) noexcept nogil:
    """Decide where only single nodes will do, and no node has everything.

    Where no nodes together have the memory its provider is silent; the others may then agree, and the refusal
    comes when the memory is taken.
    """
    cdef uint64_t found = 0
    cdef int index
    cdef bint others = state.shape.has_cpu and demand.cpu != 0
    for index in range(demand.resources):
        others = others or plan.universe[index]
    if state.shape.has_memory and demand.kinds and has_memory_anywhere(state, demand):
        return TOPOLOGY_AFFINITY_ERROR
    if not others:
        return keep(state.shape, hint, all_nodes(state.shape.numa_nodes), True)
    if plan.single_but_memory:
        found = candidates(state, demand, plan, False)
    if not found:
        return TOPOLOGY_AFFINITY_ERROR
    return keep(state.shape, hint, best_single(state.shape, found, False), True)


cdef Outcome decide_merged(
    const State* state, const Demand* demand, const Plan* plan, Outcome known, Hint* hint
) noexcept nogil:
    """Decide under best-effort or restricted; up to 8 nodes."""
    cdef Family families[1 + MOST_RESOURCES + MOST_KINDS]
    cdef const Shape* shape = state.shape
    cdef int count
    cdef Best best
    if plan.clashing and shape.policy == POLICY_RESTRICTED:
        return TOPOLOGY_AFFINITY_ERROR
    if known == ADMITTED and merge_sums(state, demand, plan, &best):
        if shape.policy == POLICY_RESTRICTED and not best.found:
            return TOPOLOGY_AFFINITY_ERROR
        return keep(shape, hint, best.mask, best.preferred)
    count = families_of(state, demand, plan, families)
    if shape.policy == POLICY_BEST_EFFORT:
        best = merge_families(families, count, shape.numa_nodes, shape.distances)
    else:
        best = best_preferred(families, count, all_nodes(shape.numa_nodes), shape.distances)
        if not best.found:
            return TOPOLOGY_AFFINITY_ERROR
    return keep(shape, hint, best.mask, best.preferred)
