"""What a container takes from a node that is reduced to amounts."""

from libc.stdint cimport uint64_t

from alignup.core.amounts.state cimport Demand, Hint, Outcome, Plan, State


cdef Outcome charge(State* state, const Demand* demand, const Plan* plan, const Hint* hint, bint last) noexcept nogil
