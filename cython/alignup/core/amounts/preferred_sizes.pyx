"""Work out what a demand would need on an empty machine: the sizes that the providers' hints prefer.

It depends on the machine and the demand only, so it is done once for all nodes that are alike.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, popcount
from alignup.core.narrow.family cimport keep_holding, smallest_count
from alignup.core.amounts.state cimport Demand, Layout, Plan, Shape, knows_memory


cdef void make_plan(const Layout* layout, const Shape* shape, const Demand* demand, Plan* plan) noexcept nogil:
    """Work out how many nodes each list of hints prefers: what depends on the machine and the demand only."""
    cdef int index
    cdef bint single = True
    plan.cpu_size = 0
    plan.cpu_sockets = -1
    plan.memory_size = 0
    if shape.has_cpu and demand.cpu:
        plan.cpu_size = smallest_cpu_size(shape, demand.cpu)
        if shape.by_socket:
            plan.cpu_sockets = sockets_for(shape, plan.cpu_size)
        single = plan.cpu_size == 1
    for index in range(demand.resources):
        plan.universe[index] = 0
        plan.device_size[index] = 0
        if (shape.resources >> demand.resource[index]) & 1:
            plan_devices(layout, shape, demand, index, plan)
            single = single and (plan.universe[index] == 0 or plan.device_size[index] == 1)
    plan.clashing = clashes(shape, demand, plan)
    plan.single_but_memory = single
    if shape.has_memory and demand.kinds and knows_memory(shape, demand):
        plan.memory_size = smallest_memory_size(layout, shape, demand)
        single = single and plan.memory_size == 1
    plan.single = single


cdef bint clashes(const Shape* shape, const Demand* demand, const Plan* plan) noexcept nogil:
    """Tell whether CPUs and devices prefer masks of different sizes, so that no mask is preferred by all."""
    cdef int index, size = plan.cpu_size
    if plan.cpu_sockets >= 0:
        return False
    for index in range(demand.resources):
        if plan.universe[index]:
            if size and size != plan.device_size[index]:
                return True
            size = plan.device_size[index]
    return False


cdef int smallest_cpu_size(const Shape* shape, int64_t request) noexcept nogil:
    """Return how many of the largest nodes have so many CPUs; all that have any, where that is too few."""
    cdef uint64_t left = all_nodes(shape.numa_nodes)
    cdef int64_t total = 0, most
    cdef int size = 0, node, largest
    while True:
        most = 0
        largest = -1
        for node in range(shape.numa_nodes):
            if (left >> node) & 1 and shape.cpu_capacity[node] > most:
                most = shape.cpu_capacity[node]
                largest = node
        if largest < 0:
            return size
        left &= ~((<uint64_t>1) << largest)
        total += most
        size += 1
        if total >= request:
            return size


cdef int sockets_for(const Shape* shape, int cpu_size) noexcept nogil:
    cdef int node, nodes = 0
    for node in range(shape.numa_nodes):
        nodes += shape.cpu_capacity[node] > 0
    nodes //= shape.sockets
    return (cpu_size + nodes - 1) // nodes


cdef int smallest_memory_size(const Layout* layout, const Shape* shape, const Demand* demand) noexcept nogil:
    """Return the size of the smallest mask that holds all types; beyond 8 nodes only 1 is told from the rest."""
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int node, index
    cdef bint fits
    for node in range(shape.numa_nodes):
        fits = True
        for index in range(demand.kinds):
            fits = fits and shape.memory[demand.kind[index] * layout.width + node] >= demand.size[index]
        if fits:
            return 1
    if shape.numa_nodes > NARROW_NODES:
        return 0
    memset(keeps, 1, sizeof(keeps))
    for index in range(demand.kinds):
        keep_holding(
            keeps, shape.numa_nodes, shape.numa_nodes, NULL, shape.memory + demand.kind[index] * layout.width,
            demand.size[index],
        )
    return smallest_count(keeps, 1 << shape.numa_nodes)


cdef void plan_devices(
    const Layout* layout, const Shape* shape, const Demand* demand, int index, Plan* plan
) noexcept nogil:
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int first = layout.starts[demand.resource[index]], end = layout.starts[demand.resource[index] + 1]
    cdef int column, mask, node
    cdef int64_t near
    cdef uint64_t universe = 0
    for column in range(first, end):
        if shape.totals[column]:
            universe |= shape.places[column]
    plan.universe[index] = universe
    for node in range(shape.numa_nodes):
        near = 0
        for column in range(first, end):
            near += shape.totals[column] if (shape.places[column] >> node) & 1 else 0
        if near >= demand.count[index] and (universe >> node) & 1:
            plan.device_size[index] = 1
            return
    if shape.numa_nodes > NARROW_NODES:
        return
    memset(keeps, 1, sizeof(keeps))
    keep_holding(
        keeps, shape.numa_nodes, end - first, shape.places + first, shape.totals + first, demand.count[index]
    )
    for mask in range(1 << shape.numa_nodes):
        if (<uint64_t>mask) & ~universe:
            keeps[mask] = 0
    plan.device_size[index] = smallest_count(keeps, 1 << shape.numa_nodes)
    if not plan.device_size[index]:
        plan.device_size[index] = popcount(universe)
