"""Score a placement on a node that is reduced to amounts, by the strategies of topology-aware schedulers.

The first four mean what they mean in the scheduler plugin for NodeResourceTopology objects, applied to the NUMA nodes
that the pod would really get instead of to each node by itself. The last is the formula of Koordinator's design
document. Whether there is a placement at all is decided in `alignup.core.amounts.decide` and
`alignup.core.amounts.allocate`.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.devices cimport DeviceState
from alignup.core.amounts.memory cimport MOST_TYPES
from alignup.core.amounts.trial cimport MOST_RESOURCES, NodeRow, PodRequest, Request
from alignup.core.bits cimport NARROW_NODES, all_nodes, lowest, popcount


cdef enum:
    MOST_AMOUNTS = 1 + MOST_TYPES + MOST_RESOURCES
    HIGHEST = 100
    # The cost of a NUMA node under least-numa-nodes: a hundred by eight, whole.
    NODE_PRICE = 12


cdef struct Amount:
    # Of one resource: what is asked for, what the placement's nodes have free, and what they have at all.
    double asked
    double free
    double allocatable


cdef inline double sum_over(const int64_t* amounts, uint64_t mask) noexcept nogil:
    cdef int64_t total = 0
    while mask:
        total += amounts[lowest(mask)]
        mask &= mask - 1
    return total


cdef int amounts_of(const NodeRow* row, const PodRequest* pod, uint64_t mask, Amount* amounts) noexcept nogil:
    """List the resources that are asked for and that the node has."""
    cdef const Request* request = &pod.requests[0]
    cdef const DeviceState* devices
    cdef int index, place, type, count = 0
    if row.cpu != NULL and request.cpus:
        amounts[count] = Amount(
            request.cpus, sum_over(row.cpu.free, mask), sum_over(row.cpu.layout.allocatable_count, mask)
        )
        count += 1
    if row.memory != NULL:
        for index in range(request.types):
            type = pod.type[request.type[index]]
            type = -1 if type < 0 else row.type_of[type]
            amounts[count] = Amount(request.size[index], 0, 0)
            if type >= 0:
                amounts[count].free = sum_over(row.memory.free + type * row.nodes, mask)
                amounts[count].allocatable = sum_over(row.memory.layout.allocatable + type * row.nodes, mask)
            count += 1
    for index in range(request.resources):
        devices = row.devices[pod.resource[request.resource[index]]]
        if devices == NULL:
            continue
        amounts[count] = Amount(request.count[index], 0, 0)
        if mask == all_nodes(row.nodes):  # those without a place count too
            amounts[count].free = devices.free_in_all
            amounts[count].allocatable = devices.layout.reported
        else:
            for place in range(devices.layout.places):
                if devices.layout.place[place] & mask:
                    amounts[count].free += devices.free[place]
                    amounts[count].allocatable += devices.layout.totals[place]
        count += 1
    return count


cdef inline double share(double part, double whole) noexcept nogil:
    """Return which part is asked of what is free, at most 1; all of it where nothing is free."""
    return min(1.0, part / whole) if whole > 0 else 1.0


cdef double by_nodes(const NodeRow* row, uint64_t mask, bint aligned) noexcept nogil:
    """Fewer NUMA nodes are better; half a node better still if no set of that size is nearer to each other."""
    cdef int count = popcount(mask)
    cdef double score = HIGHEST - NODE_PRICE * count
    if not aligned or row.nearest == NULL:
        return score
    if row.nodes > NARROW_NODES:
        return score + (NODE_PRICE // 2 if count == 1 else 0)
    return score + (NODE_PRICE // 2 if row.sums[mask] == row.nearest[count] else 0)


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
    const NodeRow* row, const PodRequest* pod, uint64_t mask, bint aligned, int strategy
) noexcept nogil:
    """Return the score, higher is better.

    Args:
        pod: its effective request counts.
        mask: the nodes that the pod's containers get; 0: none of them asks for anything that a provider gives.
        aligned: whether the mask was chosen, or merely stands for all nodes.
    """
    cdef Amount amounts[MOST_AMOUNTS]
    cdef double shares[MOST_AMOUNTS]
    cdef double total = 0
    cdef int index, count
    if strategy == LEAST_NUMA_NODES:
        return by_nodes(row, mask, aligned) if mask else HIGHEST
    count = amounts_of(row, pod, mask, amounts)
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
