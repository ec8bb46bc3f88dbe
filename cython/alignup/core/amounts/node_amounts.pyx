"""Reads what a node has of one resource by NUMA node, and says which NUMA nodes have enough of it by themselves.

Nothing is decided here: the words about refusals and the tables of a cluster are made from it.
"""

from libc.stdint cimport int64_t

from alignup.core.amounts.devices cimport DeviceState
from alignup.core.bits cimport WIDEST


cdef void add_amounts(const NodeRow* row, Resource resource, int64_t* out) noexcept nogil:
    """Add the amounts of a resource to `out`, which has room for the row's NUMA nodes.

    A device counts at each NUMA node that it is near to.
    """
    cdef const int64_t* amounts = NULL
    cdef const DeviceState* state
    cdef int node, place
    if resource.kind == KIND_CPU and row.cpu != NULL:
        amounts = row.cpu.layout.allocatable_count if resource.allocatable else row.cpu.free
    elif resource.kind == KIND_MEMORY and row.memory != NULL and row.type_of[resource.number] >= 0:
        amounts = row.memory.layout.allocatable if resource.allocatable else row.memory.free
        amounts += row.type_of[resource.number] * row.nodes
    if amounts != NULL:
        for node in range(row.nodes):
            out[node] += amounts[node]
    if resource.kind != KIND_DEVICE or row.devices[resource.number] == NULL:
        return
    state = row.devices[resource.number]
    amounts = state.layout.totals if resource.allocatable else state.free
    for place in range(state.layout.places):
        for node in range(row.nodes):
            if state.layout.place[place] >> node & 1:
                out[node] += amounts[place]


cdef int64_t mask_of_nodes_with(const int64_t* amounts, int nodes, int64_t least) noexcept nogil:
    """Return the mask of the NUMA nodes that have at least so much; minus 1: all together have less.

    The 64th NUMA node is left out of the mask, since its bit is the sign.
    """
    cdef int64_t mask = 0, total = 0
    cdef int node
    for node in range(nodes):
        total += amounts[node]
        if node < WIDEST - 1 and amounts[node] >= least:
            mask |= <int64_t>1 << node
    return -1 if total < least else mask
