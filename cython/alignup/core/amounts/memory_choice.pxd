"""The memory of one machine as amounts: what each NUMA node has left of every type, and which nodes are bound.

Sums of amounts stay below 2**62: a machine has at most 2**61 bytes, and a request that is larger is cut to that and
one byte, which no machine holds.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from alignup.core.amounts.halves cimport nodes_with
from alignup.core.narrow.family cimport Family


cdef enum:
    MOST_TYPES = 8          # types of memory that a container may ask for


cdef struct MemoryRequest:
    int types
    bint unknown_type               # of some type that the machine does not have
    int type[MOST_TYPES]
    int64_t size[MOST_TYPES]


cdef struct MemoryLayout:
    # The part of a machine that never changes; nodes with the same machine and reservations share it.
    int nodes
    int types
    int64_t* allocatable            # [types][nodes]
    int64_t* largest_sums           # [types][nodes + 1]: what the k nodes with the most hold together
    bint checks_groups              # an allocation is refused that breaks the group rule (kubelets from 1.32 on)


cdef struct MemoryState:
    const MemoryLayout* layout
    int64_t* free                   # [types][nodes]
    uint64_t* bound                 # [nodes] the mask that a node is bound to; itself where nobody uses it
    uint64_t* last_group            # [nodes] the last mask of several nodes that it was bound to
    uint64_t* groups                # [nodes] the masks of several nodes that may be used, as a whole
    int32_t* users                  # [nodes] containers that hold memory of it
    int32_t* lone_users             # [nodes] those of them that hold memory of no other node
    int group_count
    uint64_t unused                 # nodes that nobody uses: they combine freely
    uint64_t alone                  # nodes that may be used on their own
    bint bindings_stay


cdef struct MemoryTaking:
    # The memory of one container.
    uint64_t mask
    int nodes                       # in the mask
    uint64_t types                  # bit t: type t was asked for
    int64_t* taken                  # [types of the layout][nodes in the mask]


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
cdef bint suffices_with_reuse(
    const MemoryState* state, const MemoryRequest* request, MemoryTaking** donors, int donor_count, uint64_t mask
) noexcept nogil
cdef inline uint64_t lone_nodes_with(const MemoryState* state, const MemoryRequest* request) noexcept nogil:
    """Return the NUMA nodes that may be used on their own and hold the request."""
    cdef uint64_t found = state.alone
    cdef int index
    for index in range(request.types):
        found &= nodes_with(
            state.free + request.type[index] * state.layout.nodes, state.layout.nodes, request.size[index]
        )
    return 0 if request.unknown_type else found


cdef bint memory_family(const MemoryHints* hints, Family* family) noexcept nogil
cdef bint has_memory_hint(const MemoryState* state, const MemoryRequest* request, uint64_t inner) noexcept nogil
cdef bint best_memory_hint(void* context, uint64_t inner, uint64_t* mask, bint* preferred) noexcept nogil
cdef MemoryOutcome choose_memory(
    const MemoryState* state, const MemoryRequest* request, BestHint best, void* context, bint anywhere,
    bint preferred, uint64_t* mask,
) noexcept nogil
cdef void take_memory(
    MemoryState* state, const MemoryRequest* request, MemoryTaking** donors, int donor_count, MemoryTaking* taking
) noexcept nogil
cdef void bind_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
cdef void give_back_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
cdef void take_what_is_free(MemoryState* state, MemoryTaking* taking) noexcept nogil
cdef void rebind_memory(MemoryState* state, int node, int more_users, uint64_t bound) noexcept nogil
cdef void bind_alone(MemoryState* state, int node) noexcept nogil
