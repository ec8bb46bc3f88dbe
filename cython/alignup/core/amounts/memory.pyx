"""Decide from which NUMA nodes a container's memory comes: the memory manager's rules.

The rules of the kubelet's Static policy stand here, for a node that admits and for a cluster that judges: the hints,
what init containers hand over, which nodes are taken in the end. The group rule is in `memory_groups` beside this
module; taking and giving back is in `memory_taking`. Who holds what is known to `alignup.providers.memory`; masks of
more than 8 nodes are searched in `alignup.core.wide`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.amounts.halves cimport (
    Halves, halve, least_count, nodes_with, sort_amounts, sum_of, sum_within,
)
from alignup.core.amounts.memory_groups cimport refresh_groups, rule_allows
from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, is_single, popcount
from alignup.core.narrow.family cimport Family, has, keep_holding, smallest_count
from alignup.core.narrow.pack cimport pack_family, start_keeping
from alignup.core.narrow.tables cimport BY_SIZE, SIZE_STARTS


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
    copy[0] = state[0]
    memcpy(block, state.free, memory_bytes(state.layout))
    place_memory(copy, block)


# Amounts

cdef bint holds_memory(const MemoryState* state, const MemoryRequest* request, uint64_t mask) noexcept nogil:
    """Return whether the nodes have as much free as is asked for, of every type."""
    cdef int index
    if request.unknown_type:
        return False
    for index in range(request.types):
        if sum_within(state.free + request.type[index] * state.layout.nodes, mask) < request.size[index]:
            return False
    return True


cdef int smallest_memory_size(const MemoryLayout* layout, const MemoryRequest* request) noexcept nogil:
    """Return how many nodes would be needed if nobody held anything; 0: all are too few, or more than 8 must be tried.

    Of one type the nodes with the most come first; for several together single nodes are looked at, and then, up to 8
    nodes, every mask.
    """
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int size = 1, index, at_least, nodes = layout.nodes
    if request.unknown_type:
        return 0
    for index in range(request.types):
        at_least = 1
        while at_least <= nodes and largest_sum(layout, request.type[index], at_least) < request.size[index]:
            at_least += 1
        size = max(size, at_least)
    if size > nodes:
        return 0
    if request.types == 1:
        return size
    if size == 1 and has_lone_node(layout, request):
        return 1
    if nodes > NARROW_NODES:
        return 0
    start_keeping(keeps, 1 << nodes)
    for index in range(request.types):
        keep_holding(
            keeps, nodes, nodes, NULL, layout.allocatable + request.type[index] * nodes, request.size[index]
        )
    return smallest_count(keeps, 1 << nodes)


cdef bint has_lone_node(const MemoryLayout* layout, const MemoryRequest* request) noexcept nogil:
    """Return whether some node could hold all types if nobody held anything."""
    cdef int index, node
    cdef bint fits
    for node in range(layout.nodes):
        fits = True
        for index in range(request.types):
            fits = fits and layout.allocatable[request.type[index] * layout.nodes + node] >= request.size[index]
        if fits:
            return True
    return False


cdef inline int64_t largest_sum(const MemoryLayout* layout, int type, int size) noexcept nogil:
    return layout.largest_sums[type * (layout.nodes + 1) + size]


# Hints

cdef int64_t size_held(const MemoryTaking* taking, int type) noexcept nogil:
    """Return the bytes of a type that a container holds, on all its nodes together."""
    cdef int64_t total = 0
    cdef int index
    for index in range(taking.nodes):
        total += taking.taken[type * taking.nodes + index]
    return total


cdef bint suffices_with_reuse(
    const MemoryState* state, const MemoryRequest* request, MemoryTaking** donors, int donor_count, uint64_t mask
) noexcept nogil:
    """Return whether free memory and what init containers hold on exactly these nodes are enough."""
    cdef int index, donor
    cdef int64_t missing
    if not rule_allows(state, mask):
        return False
    for index in range(request.types):
        missing = request.size[index]
        for donor in range(donor_count):
            if donors[donor].mask == mask:
                missing -= size_held(donors[donor], request.type[index])
        if missing > 0 and sum_within(state.free + request.type[index] * state.layout.nodes, mask) < missing:
            return False
    return True


cdef bint memory_family(const MemoryHints* hints, Family* family) noexcept nogil:
    """Pack every mask that holds the request and that the group rule allows; return whether there is one."""
    cdef const MemoryState* state = hints.state
    cdef const MemoryRequest* request = hints.request
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int index, mask, nodes = state.layout.nodes, size = 1 << state.layout.nodes
    if request.unknown_type:
        memset(family, 0, sizeof(Family))
        return False
    start_keeping(keeps, size)
    for index in range(request.types):
        keep_holding(keeps, nodes, nodes, NULL, state.free + request.type[index] * nodes, request.size[index])
    if state.unused != all_nodes(nodes):
        for mask in range(1, size):
            if keeps[mask]:
                keeps[mask] = rule_allows(state, mask)
    for index in range(hints.donor_count):
        mask = hints.donors[index].mask
        if not keeps[mask] and suffices_with_reuse(state, request, hints.donors, hints.donor_count, mask):
            keeps[mask] = 1
    return pack_family(family, keeps, size, hints.preferred_size)


cdef bint has_memory_hint(const MemoryState* state, const MemoryRequest* request, uint64_t inner) noexcept nogil:
    """Return whether there is any hint that includes the nodes of `inner`, which have too little by themselves.

    Of the masks of several nodes the largest tell. Memory that init containers hand over is left out of account.
    """
    cdef int index, nodes = state.layout.nodes
    cdef uint64_t lone = state.alone if not inner else 0
    if request.unknown_type:
        return False
    if state.unused and not inner & ~state.unused and holds_memory(state, request, state.unused):
        return True
    for index in range(state.group_count):
        if not inner & ~state.groups[index] and holds_memory(state, request, state.groups[index]):
            return True
    for index in range(request.types):
        lone &= nodes_with(state.free + request.type[index] * nodes, nodes, request.size[index])
    return lone != 0


cdef bint best_memory_hint(void* context, uint64_t inner, uint64_t* mask, bint* preferred) noexcept nogil:
    """Find the best hint that includes the nodes of `inner`: preferred ones first, then the narrowest.

    `context` is a `MemoryHints`.
    """
    cdef Family family
    cdef const MemoryHints* hints = <const MemoryHints*>context
    cdef int index, candidate, other = 0
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
        if not other and has(family.other, candidate):
            other = candidate
    mask[0] = other
    preferred[0] = False
    return other != 0


cdef bint best_of_one_type(
    const MemoryHints* hints, uint64_t inner, uint64_t* mask, bint* preferred
) noexcept nogil:
    """Find the same where only one type is asked for: the first mask that holds it, from small to large.

    No mask is smaller than the preferred ones, which are the smallest on the empty machine.
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
    const MemoryState* state, const MemoryRequest* request, BestHint best, void* context, bint anywhere,
    bint preferred, uint64_t* mask,
) noexcept nogil:
    """Choose the nodes that a container's memory is taken from, given its affinity in `mask` (0 if `anywhere`).

    1. No affinity: the best of all hints, which must be preferred if the affinity is.
    2. The nodes have too little: the best hint that includes them, with the same condition.
    3. The group rule then has the last word, unless older kubelets are followed; a single node it never refuses.

    Where no nodes will do, `mask` is left at those that had to be included.
    """
    cdef uint64_t found = 0
    cdef bint is_preferred = False
    if request.unknown_type:
        return MEMORY_TOO_LITTLE
    if anywhere:
        if not best(context, 0, &found, &is_preferred):
            return MEMORY_TOO_LITTLE
        if preferred and not is_preferred:
            return MEMORY_NOT_PREFERRED
        mask[0] = found
        preferred = is_preferred
    if not holds_memory(state, request, mask[0]):
        if not best(context, mask[0], &found, &is_preferred):
            return MEMORY_TOO_LITTLE
        if preferred and not is_preferred:
            return MEMORY_NOT_PREFERRED
        mask[0] = found
    if state.layout.checks_groups and not is_single(mask[0]) and not rule_allows(state, mask[0]):
        return MEMORY_BOUND_OTHERWISE
    return MEMORY_CHOSEN
