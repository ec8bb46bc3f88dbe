"""Take a container's memory from the NUMA nodes that were chosen for it, and give it back: amounts and bindings.

Which nodes these are is decided in `alignup.core.amounts.memory`.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.memory_groups cimport refresh_groups
from alignup.core.amounts.memory_state cimport MemoryRequest, MemoryState, MemoryTaking
from alignup.core.bits cimport lowest


cdef void take_memory(
    MemoryState* state, const MemoryRequest* request, MemoryTaking** donors, int donor_count, MemoryTaking* taking
) noexcept nogil:
    """Take the request from the nodes of `taking`, whose mask is set and whose amounts are 0.

    Memory of earlier init containers of the pod on the same nodes is handed over first, then the lowest nodes give.
    """
    cdef int index, donor
    cdef int64_t missing
    for index in range(request.types):
        taking.types |= (<uint64_t>1) << request.type[index]
        missing = request.size[index]
        for donor in range(donor_count):
            if missing and donors[donor].mask == taking.mask:
                missing = hand_over(donors[donor], taking, request.type[index], missing)
        take_free(state, taking, request.type[index], missing)
    bind_memory(state, taking)


cdef int64_t hand_over(MemoryTaking* donor, MemoryTaking* heir, int type, int64_t amount) noexcept nogil:
    """Move up to `amount` bytes between holdings of the same nodes, lowest first; return what is missing."""
    cdef int64_t* mine = donor.taken + type * donor.nodes
    cdef int64_t* theirs = heir.taken + type * heir.nodes
    cdef int64_t moved
    cdef int index
    for index in range(donor.nodes):
        moved = min(mine[index], amount)
        mine[index] -= moved
        theirs[index] += moved
        amount -= moved
    return amount


cdef void take_free(MemoryState* state, MemoryTaking* taking, int type, int64_t amount) noexcept nogil:
    cdef int64_t* free = state.free + type * state.layout.nodes
    cdef int64_t* taken = taking.taken + type * taking.nodes
    cdef uint64_t rest = taking.mask
    cdef int64_t part
    cdef int index = 0
    while rest and amount:
        part = min(free[lowest(rest)], amount)
        free[lowest(rest)] -= part
        taken[index] += part
        amount -= part
        index += 1
        rest &= rest - 1


cdef void take_what_is_free(MemoryState* state, MemoryTaking* taking) noexcept nogil:
    """Take the amounts of `taking` from its nodes, as far as they are free there; the amounts become what was taken."""
    cdef uint64_t rest
    cdef int type, index, at
    for type in range(state.layout.types):
        rest = taking.mask
        index = type * taking.nodes
        while rest:
            at = type * state.layout.nodes + lowest(rest)
            taking.taken[index] = min(state.free[at], taking.taken[index])
            state.free[at] -= taking.taken[index]
            index += 1
            rest &= rest - 1


cdef void bind_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil:
    """Bind the nodes of a container that now holds memory on them."""
    cdef uint64_t rest = taking.mask
    cdef bint changed = False
    cdef int node
    while rest:
        node = lowest(rest)
        rest &= rest - 1
        changed = changed or not state.users[node] or state.bound[node] != taking.mask
        state.users[node] += 1
        state.bound[node] = taking.mask
        if taking.nodes == 1:
            state.lone_users[node] += 1
        else:
            state.last_group[node] = taking.mask
    if changed:
        refresh_groups(state)


cdef void rebind_memory(MemoryState* state, int node, int more_users, uint64_t bound) noexcept nogil:
    """Count further users of a node, and bind it, where it is in use, to the mask that a kubelet bound it to."""
    state.users[node] += more_users
    if not state.users[node] or not bound:
        return
    state.bound[node] = bound
    if bound != (<uint64_t>1) << node:
        state.last_group[node] = bound


cdef void give_back_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil:
    """Return what a container took to the nodes it came from, and unbind those that nobody uses now."""
    cdef uint64_t rest = taking.mask, bound
    cdef bint changed = False
    cdef int node, type
    for type in range(state.layout.types):
        if state.layout.checks_groups or not state.bindings_stay:
            return_parts(state, taking, type)
        else:
            return_to_lowest(state, taking, type)
    while rest:
        node = lowest(rest)
        rest &= rest - 1
        state.users[node] -= 1
        state.lone_users[node] -= taking.nodes == 1
        bound = still_bound(state, node)
        changed = changed or not state.users[node] or bound != state.bound[node]
        state.bound[node] = bound
    if changed:
        refresh_groups(state)


cdef void return_parts(MemoryState* state, const MemoryTaking* taking, int type) noexcept nogil:
    """Give each byte back to the node that it came from."""
    cdef uint64_t rest = taking.mask
    cdef int index = 0, at
    while rest:
        at = type * state.layout.nodes + lowest(rest)
        # a kubelet's own books can have less there, where it gave the memory of one container back for another's
        state.free[at] = min(state.layout.allocatable[at], state.free[at] + taking.taken[type * taking.nodes + index])
        index += 1
        rest &= rest - 1


cdef void return_to_lowest(MemoryState* state, const MemoryTaking* taking, int type) noexcept nogil:
    """Give bytes back to the lowest nodes on which anything is taken, be it another container's, as the kubelet does.

    Only where groups mix is this another node than the one that they came from, often enough to matter.
    """
    cdef int64_t left = 0, part, at
    cdef uint64_t rest = taking.mask
    cdef int index
    for index in range(taking.nodes):
        left += taking.taken[type * taking.nodes + index]
    while rest and left:
        at = type * state.layout.nodes + lowest(rest)
        part = min(left, state.layout.allocatable[at] - state.free[at])
        state.free[at] += part
        left -= part
        rest &= rest - 1


cdef uint64_t still_bound(const MemoryState* state, int node) noexcept nogil:
    """Return the mask that a node is bound to after a container has left it.

    Where a container sat alone on a node of a group, the kubelet leaves the node bound to itself until nobody uses it,
    even when that container is gone or was refused later on: `bindings_stay`.
    """
    cdef uint64_t alone = (<uint64_t>1) << node
    if not state.users[node]:
        return alone
    if state.bindings_stay and not state.layout.checks_groups:
        return state.bound[node]  # where groups may mix, the last container that came decides
    if state.lone_users[node]:
        return alone
    if state.bindings_stay and state.bound[node] == alone:
        return alone
    return state.last_group[node]
