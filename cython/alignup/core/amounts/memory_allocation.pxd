"""Chooses the NUMA nodes that a container's memory comes from, and takes it."""

from libc.stdint cimport uint64_t

from alignup.core.amounts.halves cimport nodes_with
from alignup.core.amounts.memory_state cimport (
    MemoryLayout,
    MemoryRequest,
    MemoryState,
    MemoryTaking,
)
from alignup.core.narrow.family cimport Family


cdef enum MemoryOutcome:
    MEMORY_CHOSEN = 0
    MEMORY_TOO_LITTLE = 1   # no allowed set of nodes (that includes those of the affinity) holds it
    MEMORY_NOT_PREFERRED = 2        # such sets are larger than the affinity promised
    # the group rule: some of the nodes are in use on another set of nodes
    MEMORY_BOUND_OTHERWISE = 3


# Finds the best hint that includes the nodes of `inner`; returns whether there is one.
ctypedef bint (*BestHint)(
    void* context, uint64_t inner, uint64_t* mask, bint* preferred
) noexcept nogil


cdef struct MemoryHints:
    # The hints of one request at one moment, up to 8 nodes: the context of `best_memory_hint`.
    const MemoryState* state
    const MemoryRequest* request
    int preferred_size
    MemoryTaking** donors
    int donor_count


cdef size_t memory_bytes(const MemoryLayout* layout) noexcept nogil
cdef void place_memory(MemoryState* state, char* block) noexcept nogil
cdef void empty_memory(MemoryState* state) noexcept nogil
cdef void copy_memory(MemoryState* copy, const MemoryState* state, char* block) noexcept nogil
cdef bint holds_memory(
    const MemoryState* state, const MemoryRequest* request, uint64_t mask
) noexcept nogil
cdef bint suffices_with_reuse(
    const MemoryState* state,
    const MemoryRequest* request,
    MemoryTaking** donors,
    int donor_count,
    uint64_t mask,
) noexcept nogil
cdef inline uint64_t lone_nodes_with(
    const MemoryState* state, const MemoryRequest* request
) noexcept nogil:
    """Return the NUMA nodes that may be used on their own and hold the request."""
    cdef uint64_t nodes = state.alone
    cdef int index

    for index in range(request.types):
        nodes &= nodes_with(
            state.free + request.type[index] * state.layout.nodes,
            state.layout.nodes,
            request.size[index],
        )
    return 0 if request.unknown_type else nodes


cdef bint memory_family(const MemoryHints* hints, Family* family) noexcept nogil
cdef bint has_memory_hint(
    const MemoryState* state, const MemoryRequest* request, uint64_t inner
) noexcept nogil
cdef bint best_memory_hint(
    void* context, uint64_t inner, uint64_t* mask, bint* preferred
) noexcept nogil
cdef MemoryOutcome choose_memory(
    const MemoryState* state,
    const MemoryRequest* request,
    BestHint best,
    void* context,
    bint anywhere,
    bint preferred,
    uint64_t* mask,
) noexcept nogil
cdef void take_memory(
    MemoryState* state,
    const MemoryRequest* request,
    MemoryTaking** donors,
    int donor_count,
    MemoryTaking* taking,
) noexcept nogil
cdef void bind_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
cdef void give_back_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
cdef void take_what_is_free(MemoryState* state, MemoryTaking* taking) noexcept nogil
cdef void rebind_memory(MemoryState* state, int node, int more_users, uint64_t bound) noexcept nogil
cdef void bind_alone(MemoryState* state, int node) noexcept nogil
