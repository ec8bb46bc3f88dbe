"""Asks the processor for what is judged next: the states of nodes lie apart, and waiting for them costs much.

It goes in two steps, since what a state points to is known only when the state is there.
"""

from alignup.core.amounts.trial cimport NodeRow, PodRequest


cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define alignup_prefetch(address) __builtin_prefetch(address)
    #else
    #define alignup_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "alignup_prefetch"(const void* address) noexcept nogil


cdef inline void prefetch_states(const NodeRow* row, const PodRequest* pod) noexcept nogil:
    """Ask for the states of a node."""
    cdef int index
    prefetch(row.cpu)
    prefetch(row.memory)
    for index in range(pod.resources):
        prefetch(row.devices[pod.resource[index]])


cdef inline void prefetch_amounts(const NodeRow* row, const PodRequest* pod) noexcept nogil:
    """Ask for the amounts that the states of a node point to."""
    cdef int index
    if row.cpu != NULL:
        prefetch(row.cpu.free)
    if row.memory != NULL:
        prefetch(row.memory.free)
    for index in range(pod.resources):
        if row.devices[pod.resource[index]] != NULL:
            prefetch(row.devices[pod.resource[index]].free)
