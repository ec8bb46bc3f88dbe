"""The group rule of the memory manager (KEP-1769).

It says which masks of NUMA nodes a container may have memory from. A node is bound while a
container holds memory on it, to itself if some container sits on that node alone, else to all the
nodes of the container's mask. A node bound to itself takes no part in a larger mask, a group of
bound nodes is only used whole, and nodes that nobody uses combine freely.
"""

from libc.stdint cimport uint64_t

from alignup.core.amounts.memory_state cimport MemoryState
from alignup.core.bits cimport is_single


cdef void refresh_groups(MemoryState* state) noexcept nogil


cdef inline bint is_group(const MemoryState* state, uint64_t mask) noexcept nogil:
    """Return whether the mask is a group of bound nodes that may be used as a whole."""
    cdef int index
    for index in range(state.group_count):
        if state.groups[index] == mask:
            return True
    return False


cdef inline bint rule_allows(const MemoryState* state, uint64_t mask) noexcept nogil:
    """Return whether the group rule lets a container have these nodes."""
    if not mask & ~state.unused:
        return True
    return mask & state.alone != 0 if is_single(mask) else is_group(state, mask)
