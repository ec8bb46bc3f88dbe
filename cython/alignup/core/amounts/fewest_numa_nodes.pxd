"""The smallest sizes: how many NUMA nodes a request needs on an empty machine.

A hint is preferred if its mask has so many nodes. The managers of the kubelet go by what the nodes
have, not by what is free, so that a hint that is wider than need be is never preferred.
"""

from libc.stdint cimport int64_t

from alignup.core.amounts.cpu_allocation cimport CpuLayout
from alignup.core.amounts.device_allocation cimport DeviceLayout
from alignup.core.amounts.memory_state cimport MemoryLayout, MemoryRequest
from alignup.core.bits cimport popcount


cdef int size_over_places(const DeviceLayout* layout, int64_t request) noexcept nogil
cdef int size_over_types(const MemoryLayout* layout, const MemoryRequest* request) noexcept nogil


cdef inline int fewest_nodes(
    const int64_t* largest_sums, int largest_size, int64_t request
) noexcept nogil:
    """Return how many nodes hold a request, those with the most first.

    It is `largest_size` where fewer do not.
    """
    cdef int size = 1
    while size < largest_size and largest_sums[size] < request:
        size += 1
    return size


cdef inline int smallest_cpu_size(const CpuLayout* layout, int64_t request) noexcept nogil:
    """Return the size for CPUs; all nodes that have any, where these are too few."""
    if layout.largest_sums[1] >= request:   # nearly always
        return 1
    return fewest_nodes(layout.largest_sums, popcount(layout.universe), request)


cdef inline int smallest_device_size(const DeviceLayout* layout, int64_t request) noexcept nogil:
    """Return the size for devices; all of the universe, where these are too few.

    Beyond 8 nodes 0, where some place is of several nodes and no single node has enough: it takes a
    search.
    """
    if not layout.single_places:
        return size_over_places(layout, request)
    if layout.largest_sums[1] >= request:   # nearly always
        return 1
    return fewest_nodes(layout.largest_sums, popcount(layout.universe), request)


cdef inline int smallest_memory_size(
    const MemoryLayout* layout, const MemoryRequest* request
) noexcept nogil:
    """Return the size for memory.

    It is 0 where all nodes have too little, or where it takes a search on more than 8.
    """
    cdef int size

    if request.types != 1 or request.unknown_type:
        return size_over_types(layout, request)
    size = fewest_nodes(
        layout.largest_sums + request.type[0] * (layout.nodes + 1),
        layout.nodes + 1,
        request.size[0],
    )
    return size if size <= layout.nodes else 0
