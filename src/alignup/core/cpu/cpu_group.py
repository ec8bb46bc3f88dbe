"""The record of some CPUs that belong together, as the compiled topology is made from it."""

from __future__ import annotations

from alignup.records import Record


class CpuGroup(Record):
    """Some CPUs that belong together: a core, an L3 group, a NUMA node or a socket."""

    id: int
    """The order among groups of a kind. A core goes by its lowest CPU, a NUMA node by the kernel's id."""
    cpus: int
    size: int
    """The number of CPUs in it."""
    whole: int
    """With how many free CPUs it counts as wholly free."""
    parts: tuple[CpuGroup, ...] = ()
    """The groups of the next finer kind that have CPUs in it, by id."""
    l3_groups: tuple[CpuGroup, ...] = ()
    """Of a NUMA node: the L3 groups that have CPUs in it, by id."""
