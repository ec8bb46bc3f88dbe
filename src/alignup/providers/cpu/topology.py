"""Reads the CPUs of a machine as the CPU manager groups them: sockets, NUMA nodes, L3 groups, cores, CPUs.

Worked out once for a machine, so that choosing CPUs is nothing but `free & group.cpus`. A set of CPUs is an
int whose bit i is the CPU that the kernel numbers i. Which CPUs are free, and who gets them, is decided
elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from alignup.errors import ConfigError
from alignup.machine.bits import union

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.machine.machine import Machine

__all__ = ["CpuGroup", "CpuTopology", "cpu_topology"]


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """Some CPUs that belong together: a core, an L3 group, a NUMA node or a socket."""

    id: int
    """The order among groups of a kind. A core goes by its lowest CPU, a NUMA node by the kernel's id."""
    cpus: int
    size: int
    """How many CPUs there are in it."""
    whole: int
    """With how many free CPUs it counts as wholly free."""
    parts: tuple[CpuGroup, ...] = ()
    """The groups of the next finer kind that have CPUs in it, by id."""
    l3_groups: tuple[CpuGroup, ...] = ()
    """Of a NUMA node: the L3 groups that have CPUs in it, by id."""


@dataclass(frozen=True, slots=True)
class CpuTopology:
    """The CPUs of a machine, grouped.

    Whichever of sockets and NUMA nodes are fewer are the outer groups, the others the inner ones; where there
    are as many of both, NUMA nodes are the outer ones.
    """

    cpus: int
    node_cpus: tuple[int, ...]
    """The CPUs of each `machine.numa_nodes[i]`; 0 where it has none."""
    node_sockets: tuple[int, ...]
    """Of each `machine.numa_nodes[i]`, all CPUs of the sockets that it has CPUs in."""
    socket_cpus: tuple[int, ...]
    """The CPUs of each socket, by socket id."""
    core_cpus: tuple[int, ...]
    """The CPUs of each core, by its lowest CPU."""
    sockets_outer: bool
    outer: tuple[CpuGroup, ...]
    """Their parts are the inner groups, and the parts of those are cores."""
    numa_nodes: int
    """How many NUMA nodes have CPUs."""
    cpus_per_core: int
    """All CPUs by all cores, rounded down: the kubelet's view of SMT on a machine with cores of two kinds."""
    cpus_per_l3_group: int
    smallest_outer: int
    """How many CPUs the smallest outer group has: below that, none can be taken whole."""
    smallest_inner: int
    smallest_core: int


@lru_cache(maxsize=64)
def cpu_topology(machine: Machine) -> CpuTopology:
    """Return how the CPU manager sees the machine; nodes with the same machine share the answer.

    NUMA nodes and L3 groups are wholly free when all their CPUs are. Of sockets and cores the kubelet knows
    only how large they are on average, rounded down: one of another size counts as wholly free when just so
    many of its CPUs are.

    Raises:
        ConfigError: the machine has no CPUs.
    """
    every = machine.cpus
    if not every:
        raise ConfigError.at("the machine", "at least one CPU for the CPU manager", 0)
    cores = [core for node in machine.numa_nodes for core in node.cores]
    of_node = {
        numa_id: cpus for numa_id, cpus in zip(machine.numa_node_ids, machine.node_cpus, strict=True) if cpus
    }
    of_socket = dict(zip(machine.sockets, machine.socket_cpus, strict=True))
    # what shares no known cache is taken to share the socket's
    of_l3: defaultdict[int, int] = defaultdict(int)
    for core in cores:
        of_l3[core.socket if core.l3 is None else core.l3] |= core.bits
    per_core = every.bit_count() // len(cores)
    per_socket = every.bit_count() // len(of_socket)
    core_groups = _groups({min(core.cpus): core.bits for core in cores}, whole=per_core)
    l3_groups = _groups(of_l3, core_groups)
    sockets_outer = len(of_node) > len(of_socket)
    if sockets_outer:
        inner = _groups(of_node, core_groups, l3_groups)
        outer = _groups(of_socket, inner, whole=per_socket)
    else:
        inner = _groups(of_socket, core_groups, whole=per_socket)
        outer = _groups(of_node, inner, l3_groups)
    return CpuTopology(
        cpus=every,
        node_cpus=machine.node_cpus,
        node_sockets=tuple(
            union(of_socket[core.socket] for core in node.cores) for node in machine.numa_nodes
        ),
        socket_cpus=machine.socket_cpus,
        core_cpus=tuple(core.cpus for core in core_groups),
        sockets_outer=sockets_outer,
        outer=outer,
        numa_nodes=len(of_node),
        cpus_per_core=per_core,
        cpus_per_l3_group=every.bit_count() // len(l3_groups),
        smallest_outer=min(group.size for group in outer),
        smallest_inner=min(group.size for group in inner),
        smallest_core=min(group.size for group in core_groups),
    )


def _groups(
    members: Mapping[int, int],
    parts: Sequence[CpuGroup] = (),
    l3_groups: Sequence[CpuGroup] = (),
    *,
    whole: int | None = None,
) -> tuple[CpuGroup, ...]:
    """Return the groups with these CPUs, by id; `whole` if it is not each one's own size."""
    return tuple(
        CpuGroup(
            number,
            cpus,
            cpus.bit_count(),
            cpus.bit_count() if whole is None else whole,
            tuple(part for part in parts if part.cpus & cpus),
            tuple(group for group in l3_groups if group.cpus & cpus),
        )
        for number, cpus in sorted(members.items())
    )
