"""Decides from which NUMA nodes memory comes: hints, and the nodes that are taken."""

from libc.stdint cimport uint64_t

from alignup.core.amounts.memory_state cimport MemoryLayout, MemoryRequest, MemoryState, MemoryTaking
from alignup.core.narrow.family cimport Family


cdef enum MemoryOutcome:
    MEMORY_CHOSEN = 0
    MEMORY_TOO_LITTLE = 1           # no allowed set of nodes (that includes those of the affinity) holds it
    MEMORY_NOT_PREFERRED = 2        # such sets are larger than the affinity promised
    MEMORY_BOUND_OTHERWISE = 3      # the group rule: some of the nodes are in use on another set of nodes


# Finds the best hint that includes the nodes of `inner`; returns whether there is one.
ctypedef bint (*BestHint)(void* context, uint64_t inner, uint64_t* mask, bint* preferred) noexcept nogil


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
cdef bint holds_memory(const MemoryState* state, const MemoryRequest* request, uint64_t mask) noexcept nogil
cdef int smallest_memory_size(const MemoryLayout* layout, const MemoryRequest* request) noexcept nogil
cdef inline int memory_size(const MemoryLayout* layout, const MemoryRequest* request) noexcept nogil:
    """Return the same as `smallest_memory_size`; nearly always one type is asked for that the largest node can hold."""
    if request.types == 1 and not request.unknown_type:
        if layout.largest_sums[request.type[0] * (layout.nodes + 1) + 1] >= request.size[0]:
            return 1
    return smallest_memory_size(layout, request)


cdef bint suffices_with_reuse(
    const MemoryState* state, const MemoryRequest* request, MemoryTaking** donors, int donor_count, uint64_t mask
) noexcept nogil
cdef bint memory_family(const MemoryHints* hints, Family* family) noexcept nogil
cdef bint has_memory_hint(const MemoryState* state, const MemoryRequest* request, uint64_t inner) noexcept nogil
cdef bint best_memory_hint(void* context, uint64_t inner, uint64_t* mask, bint* preferred) noexcept nogil
cdef MemoryOutcome choose_memory(
    const MemoryState* state, const MemoryRequest* request, BestHint best, void* context, bint anywhere,
    bint preferred, uint64_t* mask,
) noexcept nogil
