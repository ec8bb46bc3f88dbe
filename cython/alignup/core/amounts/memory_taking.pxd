"""Taking and giving back of memory."""

from libc.stdint cimport uint64_t

from alignup.core.amounts.memory_state cimport MemoryRequest, MemoryState, MemoryTaking


cdef void take_memory(
    MemoryState* state, const MemoryRequest* request, MemoryTaking** donors, int donor_count, MemoryTaking* taking
) noexcept nogil
cdef void bind_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
cdef void give_back_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
cdef void take_what_is_free(MemoryState* state, MemoryTaking* taking) noexcept nogil
cdef void rebind_memory(MemoryState* state, int node, int more_users, uint64_t bound) noexcept nogil
