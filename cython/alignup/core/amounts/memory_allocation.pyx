"""Choose the NUMA nodes that a container's memory comes from, and take it.

That is the Static policy of the memory manager. The kubelet's rules stand here, for a node that
admits and for a cluster that judges: the hints, what init containers hand over, which nodes give,
what is taken and given back, bindings included. The group rule is in `memory_groups` beside this
module. Who holds what is known to `alignup.providers.memory`; masks of more than 8 nodes are
searched in `alignup.core.wide`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.amounts.halves cimport (
    Halves,
    halve,
    least_count,
    sort_amounts,
    sum_of,
    sum_within,
)
from alignup.core.amounts.memory_groups cimport refresh_groups, rule_allows
from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, is_single, lowest, popcount
from alignup.core.narrow.family cimport (
    BY_SIZE,
    SIZE_STARTS,
    Family,
    has,
    keep_holding,
    pack_family,
    start_keeping,
)


# Storage: one block, its arrays one after the other

cdef size_t memory_bytes(const MemoryLayout* layout) noexcept nogil:
    """Return the bytes of the block that holds a machine's amounts."""
    return layout.nodes * ((layout.types + 3) * sizeof(int64_t) + 2 * sizeof(int32_t))


cdef void place_memory(MemoryState* state, char* block) noexcept nogil:
    """Let the arrays of a state, whose layout is set, lie in a block of `memory_bytes`."""
    cdef int nodes = state.layout.nodes
    state.free = <int64_t*>block
    state.bound = <uint64_t*>(state.free + state.layout.types * nodes)
    state.groups = state.bound + nodes
    state.last_group = state.groups + nodes
    state.users = <int32_t*>(state.last_group + nodes)
    state.lone_users = state.users + nodes


cdef void empty_memory(MemoryState* state) noexcept nogil:
    """Make all memory free and every node unused."""
    cdef const MemoryLayout* layout = state.layout
    cdef int node

    memset(state.free, 0, memory_bytes(layout))
    if layout.allocatable is not NULL:      # of a machine without memory there is nothing to copy
        memcpy(state.free, layout.allocatable, layout.types * layout.nodes * sizeof(int64_t))
    for node in range(layout.nodes):
        state.bound[node] = (<uint64_t>1) << node
    refresh_groups(state)


cdef void copy_memory(MemoryState* copy, const MemoryState* state, char* block) noexcept nogil:
    """Make an independent copy of the amounts in another block."""
    copy.layout = state.layout
    copy.group_count = state.group_count
    copy.unused = state.unused
    copy.alone = state.alone
    # before anything is written: a ledger that goes back to a copy may be read meanwhile
    place_memory(copy, block)
    memcpy(block, state.free, memory_bytes(state.layout))


# Amounts

cdef bint holds_memory(
    const MemoryState* state, const MemoryRequest* request, uint64_t mask
) noexcept nogil:
    """Return whether the nodes have as much free as is asked for, of every type."""
    cdef int index

    if request.unknown_type:
        return False
    for index in range(request.types):
        if (
            sum_within(state.free + request.type[index] * state.layout.nodes, mask)
            < request.size[index]
        ):
            return False
    return True


# Hints

cdef int64_t size_held(const MemoryTaking* taking, int type) noexcept nogil:
    """Return the bytes of a type that a container holds, on all its nodes together."""
    cdef int64_t total = 0
    cdef int index
    for index in range(taking.nodes):
        total += taking.amounts[type * taking.nodes + index]
    return total


cdef bint suffices_with_reuse(
    const MemoryState* state,
    const MemoryRequest* request,
    MemoryTaking** donors,
    int donor_count,
    uint64_t mask,
) noexcept nogil:
    """Return whether free memory and that of init containers are enough.

    It counts what they hold on exactly these nodes.
    """
    cdef int index, donor
    cdef int64_t missing

    if not rule_allows(state, mask):
        return False

    for index in range(request.types):
        missing = request.size[index]
        for donor in range(donor_count):
            if donors[donor].mask == mask:
                missing -= size_held(donors[donor], request.type[index])

        if (
            missing > 0
            and sum_within(state.free + request.type[index] * state.layout.nodes, mask) < missing
        ):
            return False

    return True


cdef bint memory_family(const MemoryHints* hints, Family* family) noexcept nogil:
    """Pack every mask that holds the request and that the group rule allows.

    Return whether there is one.
    """
    cdef const MemoryState* state = hints.state
    cdef const MemoryRequest* request = hints.request
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int index, mask, nodes = state.layout.nodes, size = 1 << state.layout.nodes

    if request.unknown_type:
        memset(family, 0, sizeof(Family))
        return False

    start_keeping(keeps, size)
    for index in range(request.types):
        keep_holding(
            keeps, nodes, nodes, NULL, state.free + request.type[index] * nodes, request.size[index]
        )

    if state.unused != all_nodes(nodes):
        for mask in range(1, size):
            if keeps[mask]:
                keeps[mask] = rule_allows(state, mask)

    for index in range(hints.donor_count):
        mask = hints.donors[index].mask
        if (
            not keeps[mask]
            and suffices_with_reuse(state, request, hints.donors, hints.donor_count, mask)
        ):
            keeps[mask] = 1

    return pack_family(family, keeps, size, hints.preferred_size)


cdef bint has_memory_hint(
    const MemoryState* state, const MemoryRequest* request, uint64_t inner
) noexcept nogil:
    """Return whether there is any hint that includes the nodes of `inner`.

    They have too little by themselves. Of the masks of several nodes the largest tell. Memory that
    init containers hand over is left out of account.
    """
    cdef int index

    if request.unknown_type:
        return False
    if state.unused and not inner & ~state.unused and holds_memory(state, request, state.unused):
        return True
    for index in range(state.group_count):
        if not inner & ~state.groups[index] and holds_memory(state, request, state.groups[index]):
            return True
    return not inner and lone_nodes_with(state, request) != 0


cdef bint best_memory_hint(
    void* context, uint64_t inner, uint64_t* mask, bint* preferred
) noexcept nogil:
    """Find the best hint that includes the nodes of `inner`.

    Preferred ones come first, then the narrowest. `context` is a `MemoryHints`.
    """
    cdef Family family
    cdef const MemoryHints* hints = <const MemoryHints*>context
    cdef uint64_t lone
    cdef int index, candidate, unpreferred = 0

    if hints.preferred_size == 1 and not hints.donor_count and not inner:
        lone = lone_nodes_with(hints.state, hints.request)
        if lone:
            mask[0] = lone & (~lone + 1)
            preferred[0] = True
            return True

    if hints.request.types == 1 and not hints.donor_count:
        return best_of_one_type(hints, inner, mask, preferred)
    if not memory_family(hints, &family):
        return False

    for index in range(1, NARROW_MASKS):
        candidate = BY_SIZE[index]
        if <uint64_t>candidate & inner != inner:
            continue

        if has(family.preferred, candidate):
            mask[0] = candidate
            preferred[0] = True
            return True

        if not unpreferred and has(family.unpreferred, candidate):
            unpreferred = candidate

    mask[0] = unpreferred
    preferred[0] = False
    return unpreferred != 0


cdef bint best_of_one_type(
    const MemoryHints* hints, uint64_t inner, uint64_t* mask, bint* preferred
) noexcept nogil:
    """Find the same where only one type is asked for.

    It is the first mask that holds it, from small to large. No mask is smaller than the preferred
    ones, which are the smallest on the empty machine.
    """
    cdef const MemoryState* state = hints.state
    cdef const int64_t* free = state.free + hints.request.type[0] * state.layout.nodes
    cdef int64_t request = hints.request.size[0]
    cdef int64_t ordered[NARROW_NODES]
    cdef Halves halves
    cdef int place, size, nodes = state.layout.nodes
    cdef uint64_t candidate

    sort_amounts(free, nodes, ordered)
    size = max(1, least_count(ordered, nodes, request))
    if size > nodes:
        return False

    halve(free, nodes, &halves)
    for place in range(SIZE_STARTS[size], SIZE_STARTS[nodes + 1]):
        candidate = BY_SIZE[place]
        if candidate & inner != inner or candidate >> nodes or sum_of(&halves, candidate) < request:
            continue

        if rule_allows(state, candidate):
            mask[0] = candidate
            preferred[0] = popcount(candidate) == hints.preferred_size
            return True

    return False


# Choice

cdef MemoryOutcome choose_memory(
    const MemoryState* state,
    const MemoryRequest* request,
    BestHint best,
    void* context,
    bint anywhere,
    bint preferred,
    uint64_t* mask,
) noexcept nogil:
    """Choose the nodes that a container's memory is taken from.

    `mask` is its affinity (0 if `anywhere`).

    1. No affinity: the best of all hints, which must be preferred if the affinity is.
    2. The nodes have too little: the best hint that includes them, with the same condition.
    3. The group rule then has the last word, unless older kubelets are followed; a single node
       it never refuses.

    Where no nodes will do, `mask` is left at the nodes that had to be included.
    """
    cdef uint64_t candidate = 0
    cdef bint is_preferred = False

    if request.unknown_type:
        return MEMORY_TOO_LITTLE

    if anywhere:
        if not best(context, 0, &candidate, &is_preferred):
            return MEMORY_TOO_LITTLE
        if preferred and not is_preferred:
            return MEMORY_NOT_PREFERRED

        mask[0] = candidate
        preferred = is_preferred

    if not holds_memory(state, request, mask[0]):
        if not best(context, mask[0], &candidate, &is_preferred):
            return MEMORY_TOO_LITTLE
        if preferred and not is_preferred:
            return MEMORY_NOT_PREFERRED

        mask[0] = candidate

    if state.layout.checks_groups and not is_single(mask[0]) and not rule_allows(state, mask[0]):
        return MEMORY_BOUND_OTHERWISE

    return MEMORY_CHOSEN


# Taking and giving back

cdef void take_memory(
    MemoryState* state,
    const MemoryRequest* request,
    MemoryTaking** donors,
    int donor_count,
    MemoryTaking* taking,
) noexcept nogil:
    """Take the request from the nodes of `taking`, whose mask is set and whose amounts are 0.

    Memory of earlier init containers of the pod on the same nodes is handed over first, then the
    lowest nodes give.
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


cdef int64_t hand_over(
    MemoryTaking* donor, MemoryTaking* heir, int type, int64_t amount
) noexcept nogil:
    """Move up to `amount` bytes between holdings of the same nodes, lowest first.

    Return what is missing.
    """
    cdef int64_t* donor_amounts = donor.amounts + type * donor.nodes
    cdef int64_t* heir_amounts = heir.amounts + type * heir.nodes
    cdef int64_t moved
    cdef int index

    for index in range(donor.nodes):
        moved = min(donor_amounts[index], amount)
        donor_amounts[index] -= moved
        heir_amounts[index] += moved
        amount -= moved
    return amount


cdef void take_free(
    MemoryState* state, MemoryTaking* taking, int type, int64_t amount
) noexcept nogil:
    cdef int64_t* free = state.free + type * state.layout.nodes
    cdef int64_t* amounts = taking.amounts + type * taking.nodes
    cdef uint64_t rest = taking.mask
    cdef int64_t part
    cdef int index = 0

    while rest and amount:
        part = min(free[lowest(rest)], amount)
        free[lowest(rest)] -= part
        amounts[index] += part
        amount -= part
        index += 1
        rest &= rest - 1


cdef void take_what_is_free(MemoryState* state, MemoryTaking* taking) noexcept nogil:
    """Take the amounts of `taking` from its nodes, as far as they are free there.

    The amounts become what was taken.
    """
    cdef uint64_t rest
    cdef int type, index, at

    for type in range(state.layout.types):
        rest = taking.mask
        index = type * taking.nodes
        while rest:
            at = type * state.layout.nodes + lowest(rest)
            taking.amounts[index] = min(state.free[at], taking.amounts[index])
            state.free[at] -= taking.amounts[index]
            index += 1
            rest &= rest - 1


cdef void bind_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil:
    """Bind the nodes of a container that now holds memory on them."""
    cdef uint64_t rest = taking.mask
    cdef bint changed = False
    cdef int node

    if is_single(rest):
        bind_alone(state, lowest(rest))
        return

    while rest:
        node = lowest(rest)
        rest &= rest - 1
        changed = changed or not state.users[node] or state.bound[node] != taking.mask
        state.users[node] += 1
        state.bound[node] = state.last_group[node] = taking.mask

    if changed:
        refresh_groups(state)


cdef void bind_alone(MemoryState* state, int node) noexcept nogil:
    """Bind a node to a container that holds memory of no other one."""
    cdef uint64_t bit = (<uint64_t>1) << node
    cdef bint changed = not state.users[node] or state.bound[node] != bit

    state.users[node] += 1
    state.lone_users[node] += 1
    state.bound[node] = bit
    if changed and state.group_count:
        refresh_groups(state)
    elif changed:   # no group can come to be by it
        state.unused &= ~bit
        state.alone |= bit


cdef void rebind_memory(
    MemoryState* state, int node, int more_users, uint64_t bound
) noexcept nogil:
    """Count further users of a node, and bind it where it is in use.

    It is bound to the mask that a kubelet bound it to.
    """
    state.users[node] += more_users
    if not state.users[node] or not bound:
        return
    state.bound[node] = bound
    if bound != (<uint64_t>1) << node:
        state.last_group[node] = bound


cdef void give_back_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil:
    """Return what a container took to the nodes it came from.

    Those that nobody uses now are unbound.
    """
    cdef uint64_t rest = taking.mask, bound
    cdef bint changed = False
    cdef int node, type

    for type in range(state.layout.types):
        if state.layout.checks_groups:
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
        # a kubelet's own books can have less there, where it gave the memory of one container back
        # for another's
        state.free[at] = min(
            state.layout.allocatable[at],
            state.free[at] + taking.amounts[type * taking.nodes + index],
        )
        index += 1
        rest &= rest - 1


cdef void return_to_lowest(MemoryState* state, const MemoryTaking* taking, int type) noexcept nogil:
    """Give bytes back to the lowest nodes on which anything is taken, as the kubelet does.

    What is taken there may be another container's. Only where groups mix is this another node than
    the one that they came from, often enough to matter.
    """
    cdef int64_t remaining = 0, part, at
    cdef uint64_t rest = taking.mask
    cdef int index

    for index in range(taking.nodes):
        remaining += taking.amounts[type * taking.nodes + index]
    while rest and remaining:
        at = type * state.layout.nodes + lowest(rest)
        part = min(remaining, state.layout.allocatable[at] - state.free[at])
        state.free[at] += part
        remaining -= part
        rest &= rest - 1


cdef uint64_t still_bound(const MemoryState* state, int node) noexcept nogil:
    """Return the mask that a node is bound to after a container has left it.

    Where a container sat alone on a node of a group, the kubelet leaves the node bound to itself
    until nobody uses it, even when that container is gone or was refused later on.
    """
    cdef uint64_t alone = (<uint64_t>1) << node

    if not state.users[node]:
        return alone
    if not state.layout.checks_groups:
        return state.bound[node]  # where groups may mix, the last container that came decides
    if state.lone_users[node] or state.bound[node] == alone:
        return alone
    return state.last_group[node]
