"""The record of some CPUs that belong together, as the compiled topology is made from it."""

from __future__ import annotations

from alignup.records import Record


class CpuGroup(Record):
    """Some CPUs that belong together: a core, an L3 group, a NUMA node or a socket.

    Attributes:
        id: the order among groups of a kind. A core goes by its lowest CPU, a NUMA node by the
            kernel's id.
        size: the number of CPUs in it.
        whole: with how many free CPUs it counts as wholly free.
        parts: the groups of the next finer kind that have CPUs in it, by id.
        l3_groups: of a NUMA node: the L3 groups that have CPUs in it, by id.
    """

    id: int
    cpus: int
    size: int
    whole: int
    parts: tuple[CpuGroup, ...] = ()
    l3_groups: tuple[CpuGroup, ...] = ()
