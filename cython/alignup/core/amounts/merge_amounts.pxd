"""The best result of a merge whose lists are plain sums over nodes."""

from alignup.core.merge cimport Best
from alignup.core.amounts.state cimport Demand, Plan, State


cdef bint merge_sums(const State* state, const Demand* demand, const Plan* plan, Best* best) noexcept nogil
