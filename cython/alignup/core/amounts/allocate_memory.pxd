"""What a container's memory does to a node that is reduced to amounts."""

from alignup.core.amounts.state cimport Demand, Hint, Outcome, Plan, State


cdef Outcome charge_memory(
    State* state, const Demand* demand, const Plan* plan, const Hint* hint, bint last
) noexcept nogil
