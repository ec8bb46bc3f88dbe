"""Taking and giving back of memory."""

from alignup.core.amounts.memory cimport MemoryRequest, MemoryState, MemoryTaking


cdef void take_memory(
    MemoryState* state, const MemoryRequest* request, MemoryTaking** donors, int donor_count, MemoryTaking* taking
) noexcept nogil
cdef void bind_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
cdef void give_back_memory(MemoryState* state, const MemoryTaking* taking) noexcept nogil
