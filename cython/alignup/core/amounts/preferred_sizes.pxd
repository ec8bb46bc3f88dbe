"""What a demand would need on an empty machine."""

from alignup.core.amounts.state cimport Demand, Layout, Plan, Shape


cdef void make_plan(const Layout* layout, const Shape* shape, const Demand* demand, Plan* plan) noexcept nogil
