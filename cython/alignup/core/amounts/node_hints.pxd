"""What the providers of a node that is reduced to amounts would offer."""

from libc.stdint cimport uint64_t

from alignup.core.narrow.family cimport Family
from alignup.core.amounts.state cimport Demand, Plan, State


cdef uint64_t memory_candidates(const State* state, const Demand* demand) noexcept nogil
cdef uint64_t candidates(const State* state, const Demand* demand, const Plan* plan, bint with_memory) noexcept nogil
cdef bint memory_family(const State* state, const Demand* demand, const Plan* plan, Family* family) noexcept nogil
cdef int families_of(const State* state, const Demand* demand, const Plan* plan, Family* families) noexcept nogil
cdef bint has_memory_anywhere(const State* state, const Demand* demand) noexcept nogil
cdef bint asks_for_anything(const State* state, const Demand* demand, const Plan* plan) noexcept nogil
