"""Choose the NUMA nodes that a container's CPUs can come from, and the CPUs.

That is the static policy of the CPU manager. Which of some free CPUs are taken is decided in
`alignup.core.cpu.assignment`. Pods and containers are known to `alignup.providers.cpu`.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_MASKS, all_nodes, lowest, popcount
from alignup.core.cpu.assignment cimport PACK_SETS, pack
from alignup.core.word_set cimport count_in, flip
from alignup.core.narrow.family cimport (
    Family,
    keep_holding,
    pack_family,
    prefer_by_sockets,
    start_keeping,
)


# Storage

cdef size_t cpu_bytes(const CpuLayout* layout) noexcept nogil:
    """Return the bytes of the block that holds what is given."""
    return (layout.groups.words + layout.nodes) * sizeof(uint64_t)


cdef void place_cpus(CpuState* state, char* block) noexcept nogil:
    """Let the arrays of a state, whose layout is set, lie in a block of `cpu_bytes`."""
    state.allocated = <uint64_t*>block
    state.free = <int64_t*>(state.allocated + state.layout.groups.words)


cdef void count_free_cpus(CpuState* state) noexcept nogil:
    """Count what is free from what is given."""
    cdef const CpuLayout* layout = state.layout
    cdef int word, node, words = layout.groups.words
    cdef uint64_t free

    state.free_in_all = state.free_whole = 0
    for node in range(layout.nodes):
        state.free[node] = 0

    for word in range(words):
        free = layout.allocatable[word] & ~state.allocated[word]
        state.free_in_all += popcount(free)
        state.free_whole += popcount(
            layout.shareable[word] & ~state.allocated[word] & ~layout.reserved_cores[word]
        )
        for node in range(layout.nodes):
            state.free[node] += popcount(free & layout.groups.node_cpus[node * words + word])


cdef void copy_cpus(CpuState* copy, const CpuState* state, char* block) noexcept nogil:
    """Make an independent copy in another block."""
    copy[0] = state[0]
    memcpy(block, state.allocated, cpu_bytes(state.layout))
    place_cpus(copy, block)


cdef void mark_cpus(CpuState* state, const uint64_t* cpus, bint give) noexcept nogil:
    """Mark CPUs as given, or as no longer given; some may be so already."""
    cdef const CpuLayout* layout = state.layout
    cdef int word, node, sign = -1 if give else 1, words = layout.groups.words
    cdef uint64_t changed

    for word in range(words):
        changed = flip(&state.allocated[word], cpus[word], give)
        state.free_whole += sign * popcount(
            changed & layout.shareable[word] & ~layout.reserved_cores[word]
        )
        changed &= layout.allocatable[word]
        if not changed:
            continue

        state.free_in_all += sign * popcount(changed)
        for node in range(layout.nodes):
            if changed & layout.groups.node_cpus[node * words + word]:
                state.free[node] += sign * popcount(
                    changed & layout.groups.node_cpus[node * words + word]
                )


# Hints

cdef int sockets_for(const CpuLayout* layout, int size) noexcept nogil:
    """Return how many sockets so many nodes take.

    Masks that touch exactly so many are preferred; -1: no such rule.
    """
    cdef int nodes
    if not layout.sockets:
        return -1
    nodes = popcount(layout.universe) // layout.sockets
    return (size + nodes - 1) // nodes


cdef uint64_t add_reusable(
    const CpuState* state, const uint64_t* reusable, int64_t* amounts, int64_t* total
) noexcept nogil:
    """Add CPUs that init containers of the pod leave to what is free on each node.

    Return the nodes they lie in. They must be used: a set of nodes that leaves out one of these is
    no hint.
    """
    cdef const CpuLayout* layout = state.layout
    cdef int word, node, words = layout.groups.words
    cdef uint64_t added, must = 0

    for word in range(words):
        if not reusable[word]:
            continue

        added = reusable[word] & ~(layout.allocatable[word] & ~state.allocated[word])
        total[0] += popcount(added)
        for node in range(layout.nodes):
            amounts[node] += popcount(added & layout.groups.node_cpus[node * words + word])
            if reusable[word] & layout.groups.node_cpus[node * words + word]:
                must |= (<uint64_t>1) << node

    return must


cdef bint cpu_family(
    const CpuLayout* layout,
    const int64_t* amounts,
    uint64_t must,
    int64_t request,
    int preferred_size,
    Family* family,
) noexcept nogil:
    """Pack the masks that have so many CPUs, up to 8 nodes; return whether there is one.

    Args:
        amounts: CPUs of each node.
        must: nodes that every mask must have.
        request: how many CPUs are needed.
        preferred_size: how many nodes a preferred mask has.
    """
    cdef uint8_t keeps[NARROW_MASKS]
    cdef uint64_t without = all_nodes(layout.nodes) & ~layout.universe
    cdef int mask, size = 1 << layout.nodes, sockets = sockets_for(layout, preferred_size)

    start_keeping(keeps, size)
    keep_holding(keeps, layout.nodes, layout.nodes, NULL, amounts, request)
    if without or must:
        for mask in range(size):
            keeps[mask] &= not (<uint64_t>mask & without) and <uint64_t>mask & must == must

    if not pack_family(family, keeps, size, preferred_size):
        return False

    if sockets >= 0:
        prefer_by_sockets(family, size, layout.socket_nodes, layout.sockets, sockets)

    return True


# Choice

cdef CpuOutcome check_whole_cores(const CpuState* state, int64_t request) noexcept nogil:
    """Say whether whole cores could meet the request, as the kubelet counts them.

    That is asked with full-pcpus-only.
    """
    if not state.layout.full_pcpus_only:
        return CPUS_CHOSEN
    if request % state.layout.groups.cpus_per_core:
        return CPUS_NOT_WHOLE_CORES
    return CPUS_CHOSEN if request <= state.free_whole else CPUS_TOO_FEW_WHOLE


cdef int choice_sets() noexcept nogil:
    """Return how many sets of CPUs `choose_cpus` needs as scratch."""
    return PACK_SETS + 4


cdef void find_near(
    const CpuLayout* layout, uint64_t mask, const uint64_t* free, uint64_t* near
) noexcept nogil:
    """Find the free CPUs that are near to some of the nodes."""
    cdef int node, word, words = layout.groups.words
    memset(near, 0, words * sizeof(uint64_t))
    while mask:
        node = lowest(mask)
        mask &= mask - 1
        for word in range(words):
            near[word] |= layout.near[node * words + word] & free[word]


cdef CpuOutcome choose_cpus(
    const CpuState* state,
    int64_t request,
    const uint64_t* reusable,
    bint anywhere,
    uint64_t mask,
    uint64_t* chosen,
    uint64_t* scratch,
) noexcept nogil:
    """Choose CPUs for a request: those near the affinity first, then any.

    They are not yet marked as given.

    Args:
        reusable: CPUs that init containers of the pod leave; NULL: none.
        anywhere: there is no affinity; else it is `mask`.
        chosen: where to write the set.
        scratch: room for `choice_sets` sets.
    """
    cdef const CpuLayout* layout = state.layout
    cdef int word, count, words = layout.groups.words
    cdef int64_t missing = request
    cdef uint64_t reused
    cdef uint64_t* free = scratch
    cdef uint64_t* unavailable = scratch + words
    cdef uint64_t* aligned = scratch + 2 * words
    cdef uint64_t* further = scratch + 3 * words

    if layout.distributes:
        return CPUS_TO_DISTRIBUTE

    for word in range(words):
        reused = 0 if reusable == NULL else reusable[word]
        free[word] = (layout.allocatable[word] & ~state.allocated[word]) | reused
        unavailable[word] = state.allocated[word] & ~reused

    memset(chosen, 0, words * sizeof(uint64_t))
    if not anywhere:
        find_near(layout, mask, free, aligned)
        count = min(request, count_in(aligned, words))
        if count:
            pack(
                layout.groups,
                aligned,
                count,
                unavailable,
                layout.spread_rule,
                layout.l3_rule,
                chosen,
                scratch + 4 * words,
            )

        missing = request - count_in(chosen, words)

    # kubelets before 1.38 take fewer than are asked for where they count an L3 group of several
    # NUMA nodes twice, and leave it at that
    while missing > 0:
        for word in range(words):
            free[word] &= ~chosen[word]
            # else a group that is larger than the average could count some of them again
            unavailable[word] |= chosen[word]

        if missing > count_in(free, words):
            return CPUS_TOO_FEW

        pack(
            layout.groups,
            free,
            missing,
            unavailable,
            layout.spread_rule,
            layout.l3_rule,
            further,
            scratch + 4 * words,
        )
        for word in range(words):
            chosen[word] |= further[word]

        missing = request - count_in(chosen, words)

    return CPUS_CHOSEN
