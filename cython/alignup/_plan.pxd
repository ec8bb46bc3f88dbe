"""What a demand would need on an empty machine."""

from alignup._reduced cimport Demand, Layout, Plan, Shape


cdef void make_plan(const Layout* layout, const Shape* shape, const Demand* demand, Plan* plan) noexcept nogil
