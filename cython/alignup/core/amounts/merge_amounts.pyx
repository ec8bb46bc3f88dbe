"""Find the best result of a merge without listing masks, where every list is a sum over nodes that must be met.

That is how nearly all nodes of a cluster look. The definition is that of `alignup.core.merge`, which does the rest:

- A preferred result is a mask of the one preferred size that meets every sum.
- Any other mask is reached if its remaining nodes can be dealt out to the lists, each of which leaves out as much as
  it can spare. Which sizes and masks come first is known, and the first one tried is nearly always reached.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.bits cimport NARROW_NODES, all_nodes, is_single, lowest, popcount
from alignup.core.merge cimport Best
from alignup.core.amounts.node_hints cimport has_memory_anywhere
from alignup.core.amounts.state cimport (
    MOST_RESOURCES, POLICY_RESTRICTED, Demand, MemoryRule, Plan, Shape, State, memory_rule, rule_allows, sum_of,
    sum_over,
)
from alignup.core.narrow.tables cimport BY_SIZE, SIZE_STARTS


cdef enum:
    # Dealing is given up after so many steps for one node, and families are merged instead.
    MOST_STEPS = 400


cdef struct Sum:
    int64_t amounts[NARROW_NODES]
    int64_t request
    int64_t spare
    uint64_t universe


cdef struct Problem:
    int nodes
    int lists               # without memory's
    Sum list[1 + MOST_RESOURCES]
    bint has_memory
    Sum memory              # spare: of the nodes that nobody uses
    MemoryRule rule
    const int64_t* distances
    int steps


cdef bint merge_sums(const State* state, const Demand* demand, const Plan* plan, Best* best) noexcept nogil:
    """Find the best result of the product of the lists; return False where this way cannot tell.

    Under restricted only a preferred one is looked for.
    """
    cdef Problem problem
    cdef int size
    if not read_problem(state, demand, plan, &problem):
        return False
    best.found = False
    best.preferred = True
    size = common_size(demand, plan, &problem)
    if size:
        best.mask = common_mask(&problem, size)
        best.found = best.mask != 0
    if best.found or state.shape.policy == POLICY_RESTRICTED:
        return True
    best.preferred = False
    return reach_best(&problem, best)


# Reading

cdef bint read_problem(const State* state, const Demand* demand, const Plan* plan, Problem* problem) noexcept nogil:
    """Read the lists; return False unless all are sums over nodes that the whole machine meets."""
    cdef const Shape* shape = state.shape
    cdef int index, node
    cdef Sum* one
    if state.reuses or state.donors or plan.cpu_sockets >= 0 or demand.kinds > 1:
        return False
    problem.nodes = shape.numa_nodes
    problem.distances = shape.distances
    problem.lists = 0
    problem.steps = 0
    if shape.has_cpu and demand.cpu:
        one = &problem.list[0]
        one.universe = 0
        for node in range(shape.numa_nodes):
            one.amounts[node] = state.cpu[node]
            one.universe |= (<uint64_t>(shape.cpu_capacity[node] > 0)) << node
        one.request = demand.cpu
        problem.lists = 1
    for index in range(demand.resources):
        if plan.universe[index]:
            if not read_devices(state, demand, plan, index, &problem.list[problem.lists]):
                return False
            problem.lists += 1
    for index in range(problem.lists):
        one = &problem.list[index]
        one.spare = sum_of(one.amounts, shape.numa_nodes) - one.request
        if one.spare < 0:
            return False
    problem.has_memory = shape.has_memory and demand.kinds and has_memory_anywhere(state, demand)
    if problem.has_memory:
        read_memory(state, demand, problem)
    return problem.has_memory or problem.lists > 0


cdef bint read_devices(const State* state, const Demand* demand, const Plan* plan, int index, Sum* one) noexcept nogil:
    """Read the devices of a resource; return False if some are near to several nodes, or left by init containers."""
    cdef int resource = demand.resource[index], column, node
    cdef uint64_t place
    one.request = demand.count[index]
    one.universe = plan.universe[index]
    for node in range(state.shape.numa_nodes):
        one.amounts[node] = 0
    for column in range(state.layout.starts[resource], state.layout.starts[resource + 1]):
        place = state.shape.places[column]
        if state.left != NULL and state.left[column]:
            return False
        if not place:
            continue
        if not is_single(place):
            return False
        one.amounts[lowest(place)] += state.devices[column]
    return True


cdef void read_memory(const State* state, const Demand* demand, Problem* problem) noexcept nogil:
    cdef const int64_t* free = state.memory + demand.kind[0] * state.layout.width
    cdef int node
    problem.rule = memory_rule(state)
    problem.memory.request = demand.size[0]
    problem.memory.universe = all_nodes(problem.nodes)
    for node in range(problem.nodes):
        problem.memory.amounts[node] = free[node]
    problem.memory.spare = sum_over(free, problem.rule.unbound) - demand.size[0]


# Preferred results

cdef int common_size(const Demand* demand, const Plan* plan, const Problem* problem) noexcept nogil:
    """Return the size that all lists prefer; 0 if they differ."""
    cdef int index, size = plan.cpu_size
    if plan.clashing:
        return 0
    for index in range(demand.resources):
        if plan.universe[index]:
            size = plan.device_size[index]
    if not problem.has_memory:
        return size
    return plan.memory_size if not problem.lists or size == plan.memory_size else 0


cdef inline bint meets(const Sum* one, uint64_t mask) noexcept nogil:
    return mask & ~one.universe == 0 and sum_over(one.amounts, mask) >= one.request


cdef uint64_t common_mask(const Problem* problem, int size) noexcept nogil:
    """Return the best mask of a size that meets every sum: the nearest nodes if distances count, then the lowest."""
    cdef int place, index
    cdef uint64_t mask, best = 0
    cdef bint all_met
    for place in range(SIZE_STARTS[size], SIZE_STARTS[size + 1]):
        mask = BY_SIZE[place]
        if mask >> problem.nodes:
            break
        if best and problem.distances[mask] >= problem.distances[best]:
            continue
        all_met = True
        for index in range(problem.lists):
            if not meets(&problem.list[index], mask):
                all_met = False
                break
        if not all_met:
            continue
        if problem.has_memory and not (meets(&problem.memory, mask) and rule_allows(&problem.rule, mask)):
            continue
        best = mask
        if problem.distances == NULL:
            break
    return best


# Other results

cdef int smallest_of(const int64_t* amounts, uint64_t within, int64_t request) noexcept nogil:
    """Return how many of the largest amounts make up the request; 0 if all do not."""
    cdef int size = 0, node, largest
    cdef uint64_t rest
    cdef int64_t total = 0
    if sum_over(amounts, within) < request:
        return 0
    while True:
        rest = within
        largest = lowest(rest)
        while rest:
            node = lowest(rest)
            if amounts[node] > amounts[largest]:
                largest = node
            rest &= rest - 1
        total += amounts[largest]
        within &= ~((<uint64_t>1) << largest)
        size += 1
        if total >= request:
            return size


cdef int smallest_memory(const Problem* problem) noexcept nogil:
    """Return the size of the smallest mask that memory can come from; there is one."""
    cdef uint64_t rest = problem.rule.alone
    cdef int index, size, best = 0
    while rest:
        if problem.memory.amounts[lowest(rest)] >= problem.memory.request:
            return 1
        rest &= rest - 1
    if problem.rule.unbound:
        best = smallest_of(problem.memory.amounts, problem.rule.unbound, problem.memory.request)
    for index in range(problem.rule.groups):
        if sum_over(problem.memory.amounts, problem.rule.group[index]) >= problem.memory.request:
            size = popcount(problem.rule.group[index])
            best = size if not best else min(best, size)
    return best


cdef bint reach_best(Problem* problem, Best* best) noexcept nogil:
    """Find the best mask that is reached, nearest in size to what the neediest list needs; False: gave up."""
    cdef int index, size, wanted = 1
    for index in range(problem.lists):
        wanted = max(
            wanted, smallest_of(problem.list[index].amounts, problem.list[index].universe, problem.list[index].request)
        )
    if problem.has_memory:
        wanted = max(wanted, smallest_memory(problem))
    best.mask = 0
    for size in range(wanted, 0, -1):
        if not reach_size(problem, size, &best.mask):
            return False
        if best.mask:
            break
    if not best.mask:
        for size in range(wanted + 1, problem.nodes + 1):
            if not reach_size(problem, size, &best.mask):
                return False
            if best.mask:
                break
    best.found = best.mask != 0
    if not best.found:
        best.mask = all_nodes(problem.nodes)
    return True


cdef bint reach_size(Problem* problem, int size, uint64_t* best) noexcept nogil:
    """Find the best reached mask of a size, 0 if there is none; False: gave up."""
    cdef int place
    cdef uint64_t mask
    for place in range(SIZE_STARTS[size], SIZE_STARTS[size + 1]):
        mask = BY_SIZE[place]
        if mask >> problem.nodes:
            break
        if best[0] and problem.distances[mask] >= problem.distances[best[0]]:
            continue
        if is_reached(problem, mask):
            best[0] = mask
            if problem.distances == NULL:
                return True
        if problem.steps > MOST_STEPS:
            return False
    return True


cdef bint is_reached(Problem* problem, uint64_t mask) noexcept nogil:
    """Tell whether some choice of one mask from each list has exactly these nodes in common."""
    cdef int64_t spare[2 + MOST_RESOURCES]
    cdef uint64_t outside = all_nodes(problem.nodes) & ~mask
    cdef int index
    for index in range(problem.lists):
        if mask & ~problem.list[index].universe:
            return False
        spare[index] = problem.list[index].spare
    if not problem.has_memory:
        return deal(problem, outside, spare, problem.lists)
    if not mask & ~problem.rule.unbound and problem.memory.spare >= 0:
        spare[problem.lists] = problem.memory.spare
        if deal(problem, outside & problem.rule.unbound, spare, problem.lists + 1):
            return True
    if is_single(mask) and mask & problem.rule.alone:
        if problem.memory.amounts[lowest(mask)] >= problem.memory.request:
            return True
    for index in range(problem.rule.groups):
        if mask & ~problem.rule.group[index]:
            continue
        if sum_over(problem.memory.amounts, problem.rule.group[index]) >= problem.memory.request:
            if deal(problem, outside & problem.rule.group[index], spare, problem.lists):
                return True
    return False


cdef bint deal(Problem* problem, uint64_t rest, int64_t* spare, int lists) noexcept nogil:
    """Tell whether each of the nodes can be left out by one of the lists; the last one may be memory's."""
    cdef int index, node
    cdef int64_t cost
    if not rest:
        return True
    problem.steps += 1
    if problem.steps > MOST_STEPS:
        return False
    node = lowest(rest)
    for index in range(lists):
        cost = problem.list[index].amounts[node] if index < problem.lists else problem.memory.amounts[node]
        if cost > spare[index]:
            continue
        spare[index] -= cost
        if deal(problem, rest & (rest - 1), spare, lists):
            spare[index] += cost
            return True
        spare[index] += cost
        if not cost:
            return False  # who leaves a node out for nothing does it best
    return False
