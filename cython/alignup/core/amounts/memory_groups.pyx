"""Work out which groups of NUMA nodes the group rule of the memory manager allows.

That is done after a node was bound or freed. Whether it allows a given mask is asked through the
header.
"""

from libc.stdint cimport uint64_t

from alignup.core.bits cimport lowest


cdef void refresh_groups(MemoryState* state) noexcept nogil:
    """Work out again which masks the group rule allows."""
    cdef int node
    cdef uint64_t bit

    state.unused = state.alone = 0
    state.group_count = 0
    for node in range(state.layout.nodes):
        bit = (<uint64_t>1) << node
        if not state.users[node]:
            state.unused |= bit

        if state.bound[node] == bit:
            state.alone |= bit
        elif not is_group(state, state.bound[node]) and is_whole(state, state.bound[node]):
            state.groups[state.group_count] = state.bound[node]
            state.group_count += 1


cdef bint is_whole(const MemoryState* state, uint64_t mask) noexcept nogil:
    """Return whether every node of the mask is either bound to exactly this mask or not in use."""
    cdef uint64_t rest = mask
    while rest:
        if state.users[lowest(rest)] and state.bound[lowest(rest)] != mask:
            return False
        rest &= rest - 1
    return True
