"""Score a placement on a node that is reduced to amounts, by the strategies of topology-aware schedulers.

The first four mean what they mean in the scheduler plugin for NodeResourceTopology objects, applied to the NUMA nodes
that the pod would really get instead of to each node by itself. The last is the formula of Koordinator's design
document. Whether there is a placement at all is decided in `alignup.core.amounts.policy` and
`alignup.core.amounts.allocate`.
"""

from libc.stdint cimport uint64_t

from alignup.core.bits cimport NARROW_NODES, all_nodes, popcount
from alignup.core.amounts.state cimport MOST_KINDS, MOST_RESOURCES, Demand, Shape, State, sum_over


cdef enum:
    MOST_AMOUNTS = 1 + MOST_KINDS + MOST_RESOURCES
    HIGHEST = 100
    # What a NUMA node costs under least-numa-nodes: a hundred by eight, whole.
    NODE_PRICE = 12


cdef struct Amount:
    # Of one resource: what is asked for, what the placement's nodes have free, and what they have at all.
    double asked
    double free
    double allocatable


cdef int amounts_of(const State* state, const Demand* demand, uint64_t mask, Amount* amounts) noexcept nogil:
    """List the resources that are asked for and that the node has."""
    cdef const Shape* shape = state.shape
    cdef int index, column, resource, count = 0, width = state.layout.width
    cdef uint64_t full = all_nodes(shape.numa_nodes)
    if shape.has_cpu and demand.cpu:
        amounts[count] = Amount(demand.cpu, sum_over(state.cpu, mask), sum_over(shape.cpu_allocatable, mask))
        count += 1
    if shape.has_memory:
        for index in range(demand.kinds):
            amounts[count] = Amount(
                demand.size[index],
                sum_over(state.memory + demand.kind[index] * width, mask),
                sum_over(shape.memory + demand.kind[index] * width, mask),
            )
            count += 1
    for index in range(demand.resources):
        resource = demand.resource[index]
        if not (shape.resources >> resource) & 1:
            continue
        amounts[count] = Amount(demand.count[index], 0, 0)
        for column in range(state.layout.starts[resource], state.layout.starts[resource + 1]):
            if shape.places[column] & mask or mask == full:
                amounts[count].free += state.devices[column]
                amounts[count].allocatable += shape.totals[column]
        count += 1
    return count


cdef inline double share(double part, double whole) noexcept nogil:
    """Return which part is asked of what is free, at most 1; all of it where nothing is free."""
    return min(1.0, part / whole) if whole > 0 else 1.0


cdef double by_nodes(const Shape* shape, uint64_t mask, bint aligned) noexcept nogil:
    """Fewer NUMA nodes are better; half a node better still if no set of that size is nearer to each other."""
    cdef int count = popcount(mask)
    cdef double score = HIGHEST - NODE_PRICE * count
    if not aligned or shape.nearest == NULL:
        return score
    if shape.numa_nodes > NARROW_NODES:
        return score + (NODE_PRICE // 2 if count == 1 else 0)
    return score + (NODE_PRICE // 2 if shape.sums[mask] == shape.nearest[count] else 0)


cdef double variance(const double* values, int count) noexcept nogil:
    """Return the variance of a sample; of a single value it is 0."""
    cdef double mean = 0, total = 0
    cdef int index
    if count < 2:
        return 0
    for index in range(count):
        mean += values[index] / count
    for index in range(count):
        total += (values[index] - mean) * (values[index] - mean)
    return total / (count - 1)


cdef double score_of(
    const State* state, const Demand* demand, uint64_t mask, bint aligned, int strategy
) noexcept nogil:
    """Return the score, higher is better.

    Args:
        demand: the pod's effective request.
        mask: the nodes that the pod's containers get; 0: none of them asks for anything that a provider gives.
        aligned: whether the mask was chosen, or merely stands for all nodes.
    """
    cdef Amount amounts[MOST_AMOUNTS]
    cdef double shares[MOST_AMOUNTS]
    cdef double total = 0
    cdef int index, count
    if strategy == LEAST_NUMA_NODES:
        return by_nodes(state.shape, mask, aligned) if mask else HIGHEST
    count = amounts_of(state, demand, mask, amounts)
    if strategy == DOCUMENT:
        for index in range(count):
            if amounts[index].allocatable > 0:
                total += (
                    amounts[index].allocatable - amounts[index].free + amounts[index].asked
                ) / amounts[index].allocatable
        return HIGHEST - 10 * popcount(mask) + (10 * total / count if count else 0)
    for index in range(count):
        shares[index] = share(amounts[index].asked, amounts[index].free)
        total += shares[index]
    if not count:
        return HIGHEST
    if strategy == BALANCED_ALLOCATION:
        return HIGHEST * (1 - variance(shares, count))
    return HIGHEST * (total if strategy == MOST_ALLOCATED else count - total) / count
