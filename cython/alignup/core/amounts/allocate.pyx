"""Take what a container gets from the amounts of a node, in the order of the kubelet: devices, CPUs, memory.

Memory is taken exactly. CPUs and devices are counted by NUMA node and by place as long as counts are enough to
tell from where they come; after that the state says that it is unsure, and nobody decides on it any more.
Memory is the business of `alignup.core.amounts.allocate_memory`.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.allocate_memory cimport charge_memory
from alignup.core.amounts.state cimport (
    ADMITTED, SMT_ALIGNMENT_ERROR, UNDECIDED, UNEXPECTED_ADMISSION_ERROR, Demand, Hint, Outcome, Plan, Shape, State,
    sum_of,
)


cdef Outcome charge(State* state, const Demand* demand, const Plan* plan, const Hint* hint, bint last) noexcept nogil:
    """Return whether every provider can give the container its share; charge it unless it is the last one."""
    cdef Outcome outcome = check_devices(state, demand)
    cdef int index
    if outcome != ADMITTED:
        return outcome
    if not last:
        for index in range(demand.resources):
            if (state.shape.resources >> demand.resource[index]) & 1:
                take_devices(state, demand, index, hint)
    if state.shape.has_cpu and demand.cpu:
        outcome = check_cpus(state, demand, hint)
        if outcome != ADMITTED:
            return outcome
        if not last:
            take_cpus(state, demand, hint)
    if state.shape.has_memory and demand.kinds:
        return charge_memory(state, demand, plan, hint, last)
    return ADMITTED


# Devices

cdef Outcome check_devices(const State* state, const Demand* demand) noexcept nogil:
    """Tell whether there are enough devices anywhere; a sum is known even where places are not."""
    cdef int index, resource, first, end
    cdef int64_t total
    for index in range(demand.resources):
        resource = demand.resource[index]
        if not (state.shape.resources >> resource) & 1:
            continue
        first = state.layout.starts[resource]
        end = state.layout.starts[resource + 1]
        total = sum_of(state.devices + first, end - first)
        if state.left != NULL:
            total += sum_of(state.left + first, end - first)
        if total < demand.count[index] or not (state.shape.healthy >> resource) & 1:
            return UNEXPECTED_ADMISSION_ERROR
    return ADMITTED


cdef void take_devices(State* state, const Demand* demand, int index, const Hint* hint) noexcept nogil:
    """Take devices: those that init containers left, then near ones, then others.

    Args:
        index: which of the demanded resources, one that the node has.
    """
    cdef int resource = demand.resource[index]
    cdef int first = state.layout.starts[resource], end = state.layout.starts[resource + 1]
    cdef int64_t needed = demand.count[index]
    cdef int64_t near = 0
    cdef int column
    needed = take_left_devices(state, demand, resource, needed)
    if not needed:
        return
    if hint.anywhere:
        take_some(state, demand, resource, needed, ~<uint64_t>0, True)
        return
    for column in range(first, end):
        if state.shape.places[column] & hint.mask:
            near += state.devices[column]
    take_some(state, demand, resource, min(needed, near), hint.mask, False)
    if needed > near:
        take_others(state, demand, resource, needed - near)


cdef int64_t take_left_devices(State* state, const Demand* demand, int resource, int64_t needed) noexcept nogil:
    """Take over devices that init containers left, in the order of the columns; return how many are missing."""
    cdef int first = state.layout.starts[resource], end = state.layout.starts[resource + 1]
    cdef int column, columns = 0
    cdef int64_t total = 0, part
    for column in range(first, end):
        columns += state.left[column] > 0
        total += state.left[column]
    part = min(total, needed)
    if demand.hands_on:
        return needed - part
    if 0 < needed < total and columns > 1 and not (state.shape.ordered >> resource) & 1:
        state.left_unsure |= (<uint64_t>1) << resource
    total = part
    for column in range(first, end):
        part = min(state.left[column], total)
        state.left[column] -= part
        total -= part
        needed -= part
    return needed


cdef void take_others(State* state, const Demand* demand, int resource, int64_t needed) noexcept nogil:
    """Take devices that are not near: first those that are near to other nodes, then those without a place."""
    cdef int first = state.layout.starts[resource], end = state.layout.starts[resource + 1], column
    cdef int64_t placed = 0
    if not (state.shape.ordered >> resource) & 1:
        take_some(state, demand, resource, needed, ~<uint64_t>0, True)
        return
    for column in range(first, end):
        if state.shape.places[column]:
            placed += state.devices[column]
    take_some(state, demand, resource, min(needed, placed), ~<uint64_t>0, False)
    if needed > placed:
        take_some(state, demand, resource, needed - placed, 0, True)


cdef void take_some(
    State* state, const Demand* demand, int resource, int64_t needed, uint64_t mask, bint without_place
) noexcept nogil:
    """Take devices near to the mask, and those without a place if these count too; there are enough of them."""
    cdef int first = state.layout.starts[resource], end = state.layout.starts[resource + 1]
    cdef int column, columns = 0
    cdef int64_t total = 0, part
    cdef uint64_t bit = (<uint64_t>1) << resource
    for column in range(first, end):
        if state.shape.places[column] & mask or (without_place and not state.shape.places[column]):
            columns += state.devices[column] > 0
            total += state.devices[column]
    if 0 < needed < total and columns > 1 and not state.shape.ordered & bit:
        state.unsure |= bit
        if demand.hands_on:
            state.left_unsure |= bit
    for column in range(first, end):
        if state.shape.places[column] & mask or (without_place and not state.shape.places[column]):
            part = min(state.devices[column], needed)
            state.devices[column] -= part
            needed -= part
            if demand.hands_on:
                state.left[column] += part


# CPUs

cdef Outcome check_cpus(State* state, const Demand* demand, const Hint* hint) noexcept nogil:
    """Tell whether the CPU manager would give so many CPUs, from wherever."""
    cdef const Shape* shape = state.shape
    cdef int64_t missing
    if shape.full_pcpus_only:
        if demand.cpu % shape.cpus_per_core or demand.cpu > state.most_whole:
            return SMT_ALIGNMENT_ERROR
        if demand.cpu > state.least_whole:
            return UNDECIDED
    if state.cpu_lost:
        return UNDECIDED
    missing = demand.cpu - sum_of(state.cpu, shape.numa_nodes)
    if missing > 0:
        # on odd machines the kubelet may give away reserved CPUs as well
        if shape.irregular and missing <= reserved_cpus(shape):
            return UNDECIDED
        return UNEXPECTED_ADMISSION_ERROR
    if shape.distributes and may_misplace(state, demand, hint):
        return UNDECIDED
    return ADMITTED


cdef int64_t reserved_cpus(const Shape* shape) noexcept nogil:
    return sum_of(shape.cpu_capacity, shape.numa_nodes) - sum_of(shape.cpu_allocatable, shape.numa_nodes)


cdef bint may_misplace(const State* state, const Demand* demand, const Hint* hint) noexcept nogil:
    """Tell whether CPUs may be spread over four nodes or more: the kubelet then forgets some of its plan.

    It cannot happen where one of the nodes in reach could give an even share of the whole machine or less.
    """
    cdef const Shape* shape = state.shape
    cdef uint64_t region = cpu_region(shape, hint)
    cdef int64_t total = 0
    cdef int node, nodes = 0, reached = 0
    cdef bint fits = False
    if state.cpu_unsure or state.reuses or shape.irregular:
        return True
    if region_total(state, region) < demand.cpu:
        region = ~<uint64_t>0
    for node in range(shape.numa_nodes):
        nodes += shape.cpu_capacity[node] > 0
        total += shape.cpu_capacity[node]
        if (region >> node) & 1 and state.cpu[node]:
            reached += 1
            fits = fits or state.cpu[node] >= demand.cpu
    return reached > 3 and not (fits and demand.cpu * nodes <= total)


cdef inline uint64_t cpu_region(const Shape* shape, const Hint* hint) noexcept nogil:
    """Return the nodes whose CPUs come first: those of the hint, with align-by-socket those of their sockets."""
    cdef uint64_t region = 0
    cdef int socket
    if hint.anywhere:
        return 0
    if not shape.by_socket:
        return hint.mask
    for socket in range(shape.sockets):
        if shape.socket_nodes[socket] & hint.mask:
            region |= shape.socket_nodes[socket]
    return region


cdef int64_t region_total(const State* state, uint64_t region) noexcept nogil:
    cdef int64_t total = 0
    cdef int node
    for node in range(state.shape.numa_nodes):
        if (region >> node) & 1:
            total += state.cpu[node]
    return total


cdef void take_cpus(State* state, const Demand* demand, const Hint* hint) noexcept nogil:
    """Take CPUs from the region of the hint first, then from the others."""
    cdef uint64_t region = cpu_region(state.shape, hint)
    cdef int64_t near = region_total(state, region), left_most = 0
    cdef int node
    if state.reuses:
        left_most = sum_of(state.left_most, state.shape.numa_nodes)
    state.least_whole -= demand.cpu
    if state.shape.irregular:
        state.cpu_lost = True
    else:
        state.most_whole -= max(0, demand.cpu - left_most - state.shape.split_cpus)
    if not state.reuses:
        for node in range(state.shape.numa_nodes):
            state.left_least[node] = state.left_most[node] = 0
    take_from(state, demand, region, min(near, demand.cpu))
    if demand.cpu > near:
        take_from(state, demand, ~region, demand.cpu - near)
    state.reuses = state.reuses or demand.hands_on


cdef void take_from(State* state, const Demand* demand, uint64_t region, int64_t request) noexcept nogil:
    """Take CPUs from somewhere in a region that has enough of them."""
    cdef int64_t total = region_total(state, region), most
    cdef int node, nodes = 0
    for node in range(state.shape.numa_nodes):
        nodes += (region >> node) & 1 != 0 and state.cpu[node] > 0
    if not request:
        return
    if nodes > 1 and request < total and not demand.hands_on:
        state.cpu_unsure = True
    for node in range(state.shape.numa_nodes):
        if not (region >> node) & 1 or not state.cpu[node]:
            continue
        most = min(request, state.cpu[node])
        leave_cpus(state, node, max(0, request - (total - state.cpu[node])), most, demand.hands_on)
    if demand.hands_on:
        return
    for node in range(state.shape.numa_nodes):
        if (region >> node) & 1:
            most = min(request, state.cpu[node])
            state.cpu[node] -= most
            request -= most


cdef void leave_cpus(State* state, int node, int64_t least, int64_t most, bint hands_on) noexcept nogil:
    """Note between how many CPUs init containers leave on a node, when a container takes `least` to `most` there."""
    cdef int64_t rest = state.cpu[node]
    if hands_on:
        state.left_least[node] = max(state.left_least[node], least)
        state.left_most[node] = min(state.left_most[node] + most, rest)
    else:
        state.left_least[node] = max(0, state.left_least[node] - most)
        state.left_most[node] = min(state.left_most[node], rest - least)
