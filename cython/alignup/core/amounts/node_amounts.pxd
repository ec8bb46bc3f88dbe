"""Reads the amounts of one resource on the NUMA nodes of a row."""

from libc.stdint cimport int64_t

from alignup.core.amounts.prefetch cimport prefetch
from alignup.core.amounts.trial cimport NodeRow


cdef enum ResourceKind:
    KIND_CPU = 0
    KIND_MEMORY = 1
    KIND_DEVICE = 2
    KIND_UNKNOWN = 3        # no node has it


cdef struct Resource:
    ResourceKind kind
    int number              # of the cluster, among the types of memory or the device resources
    bint allocatable        # what there is to give if nobody held anything, instead of what is free


cdef void add_amounts(const NodeRow* row, Resource resource, int64_t* out) noexcept nogil
cdef int64_t mask_of_nodes_with(const int64_t* amounts, int nodes, int64_t least) noexcept nogil


cdef inline void prefetch_state(const NodeRow* row, Resource resource) noexcept nogil:
    """Ask for the state of a resource on a node; what it points to is known only when it is there."""
    if resource.kind == KIND_CPU:
        prefetch(row.cpu)
    elif resource.kind == KIND_MEMORY:
        prefetch(row.memory)
    elif resource.kind == KIND_DEVICE:
        prefetch(row.devices[resource.number])


cdef inline void prefetch_amount(const NodeRow* row, Resource resource) noexcept nogil:
    """Ask for what is free of a resource on a node."""
    if resource.kind == KIND_CPU and row.cpu != NULL:
        prefetch(row.cpu.free)
    elif resource.kind == KIND_MEMORY and row.memory != NULL:
        prefetch(row.memory.free)
    elif resource.kind == KIND_DEVICE and row.devices[resource.number] != NULL:
        prefetch(row.devices[resource.number].free)
