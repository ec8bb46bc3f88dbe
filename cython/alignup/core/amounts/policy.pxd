"""What a policy makes of a demand on a node that is reduced to amounts."""

from alignup.core.amounts.state cimport Demand, Hint, Outcome, Plan, State


cdef Outcome decide(const State* state, const Demand* demand, const Plan* plan, Hint* hint) noexcept nogil
