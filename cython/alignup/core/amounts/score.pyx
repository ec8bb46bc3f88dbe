"""Score a placement on a node that is reduced to amounts.

The strategies are those of topology-aware schedulers. The first four mean what they mean in the
scheduler plugin for NodeResourceTopology objects, applied to the NUMA nodes that the pod would
really get instead of to each node by itself. The last is the formula of Koordinator's design
document. Whether there is a placement at all is decided in `alignup.core.amounts.judge`.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.device_allocation cimport DeviceLayout, DeviceState
from alignup.core.amounts.halves cimport sum_within
from alignup.core.amounts.memory_state cimport MOST_TYPES
from alignup.core.amounts.trial cimport MOST_RESOURCES, NodeRow, PodRequest, Request
from alignup.core.bits cimport NARROW_NODES, all_nodes, popcount


cdef enum:
    MOST_AMOUNTS = 1 + MOST_TYPES + MOST_RESOURCES
    HIGHEST = 100
    # The cost of a NUMA node under least-numa-nodes: a hundred by eight, whole.
    NODE_PRICE = 12


cdef struct Amount:
    # Of one resource: what is asked for, what the placement's nodes have free, and what they have
    # at all.
    double request
    double free
    double allocatable


cdef inline Amount amount_within(
    int64_t request, const int64_t* free, const int64_t* allocatable, uint64_t mask
) noexcept nogil:
    return Amount(request, sum_within(free, mask), sum_within(allocatable, mask))


cdef Amount devices_within(
    int64_t request, const DeviceState* state, uint64_t mask, bint everywhere
) noexcept nogil:
    """Sum the devices near to some nodes; `everywhere` is all of them, those near to none too."""
    cdef const DeviceLayout* layout = state.layout
    cdef int64_t free = 0, allocatable = 0
    cdef int place

    if everywhere:
        return Amount(request, state.free_in_all, layout.reported)
    if layout.in_order:
        return amount_within(request, state.free, layout.totals, mask)

    for place in range(layout.places):
        if layout.place[place] & mask:
            free += state.free[place]
            allocatable += layout.totals[place]

    return Amount(request, free, allocatable)


cdef int amounts_of(
    const NodeRow* row, const PodRequest* pod, uint64_t mask, Amount* amounts
) noexcept nogil:
    """List the resources that are asked for and that the node has."""
    cdef const Request* request = &pod.requests[0]
    cdef const DeviceState* devices
    cdef int index, type, count = 0

    if row.cpu != NULL and request.cpus:
        amounts[count] = amount_within(
            request.cpus, row.cpu.free, row.cpu.layout.allocatable_count, mask
        )
        count += 1

    if row.memory != NULL:
        for index in range(request.types):
            type = pod.type[request.type[index]]
            type = -1 if type < 0 else row.type_of[type]
            amounts[count] = Amount(request.size[index], 0, 0)
            if type >= 0:
                amounts[count] = amount_within(
                    request.size[index],
                    row.memory.free + type * row.nodes,
                    row.memory.layout.allocatable + type * row.nodes,
                    mask,
                )

            count += 1

    for index in range(request.resources):
        devices = row.devices[pod.resource[request.resource[index]]]
        if devices != NULL:
            amounts[count] = devices_within(
                request.count[index], devices, mask, mask == all_nodes(row.nodes)
            )
            count += 1

    return count


cdef inline double share(double part, double whole) noexcept nogil:
    """Return which part is asked of what is free, at most 1; all of it where nothing is free."""
    return min(1.0, part / whole) if whole > 0 else 1.0


cdef double by_nodes(const NodeRow* row, uint64_t mask, bint aligned) noexcept nogil:
    """Return a score by the number of NUMA nodes, of which fewer are better.

    It is half a node better still if no set of that size is nearer to each other.
    """
    cdef int count = popcount(mask)
    cdef double score = HIGHEST - NODE_PRICE * count
    cdef bint is_nearest

    if not aligned or row.nearest == NULL:
        return score

    if row.nodes > NARROW_NODES:
        is_nearest = count == 1
    else:
        is_nearest = row.sums[mask] == row.nearest[count]

    if is_nearest:
        score += NODE_PRICE // 2

    return score


cdef inline double variance(const double* values, int count, double mean) noexcept nogil:
    """Return the variance of a sample; of a single value it is 0."""
    cdef double total = 0
    cdef int index
    if count < 2:
        return 0
    for index in range(count):
        total += (values[index] - mean) * (values[index] - mean)
    return total / (count - 1)


cdef double score_of(
    const NodeRow* row, const PodRequest* pod, uint64_t mask, bint aligned, int strategy
) noexcept nogil:
    """Return the score, higher is better.

    Args:
        pod: its effective request counts.
        mask: the nodes that the pod's containers get; 0: none of them asks for anything that a
            provider gives.
        aligned: whether the mask was chosen, or merely stands for all nodes.
    """
    cdef Amount amounts[MOST_AMOUNTS]
    cdef double shares[MOST_AMOUNTS]
    cdef double total = 0, score
    cdef int index, count

    if strategy == LEAST_NUMA_NODES:
        return by_nodes(row, mask, aligned) if mask else HIGHEST

    count = amounts_of(row, pod, mask, amounts)
    if strategy == DOCUMENT:
        for index in range(count):
            if amounts[index].allocatable > 0:
                total += (
                    (amounts[index].allocatable - amounts[index].free + amounts[index].request)
                    / amounts[index].allocatable
                )

        score = HIGHEST - 10 * popcount(mask)
        if count:
            score += 10 * total / count

        return score

    for index in range(count):
        shares[index] = share(amounts[index].request, amounts[index].free)
        total += shares[index]

    if not count:
        return HIGHEST
    if strategy == BALANCED_ALLOCATION:
        return HIGHEST * (1 - variance(shares, count, total / count))

    if strategy != MOST_ALLOCATED:
        total = count - total

    return HIGHEST * total / count
