"""Reads the CPUs of a machine as the CPU manager groups them: sockets, NUMA nodes, L3 groups, cores, CPUs.

A set of CPUs is an int whose bit i is the CPU that the kernel numbers i. What is made here, once for a machine,
is kept as arrays by the compiled `CpuTopology`, which also chooses among free CPUs. Which CPUs are free, and who
gets them, is decided elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from alignup.core.cpu.cpu_group import CpuGroup
from alignup.core.cpu.topology import CpuTopology
from alignup.errors import ConfigError
from alignup.machine.bits import union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.machine.machine import Machine
    from alignup.machine.numa_node import Core

__all__ = ["CpuGroup", "CpuTopology", "cpu_topology"]


@dataclass(frozen=True, slots=True, eq=False)
class _CoresKey:
    """A machine as a key that is cheap to hash: equal for machines whose NUMA nodes have the same cores."""

    machine: Machine

    def __hash__(self) -> int:
        return hash((self.machine.numa_node_ids, self.machine.node_cpus))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _CoresKey):
            return NotImplemented
        mine, theirs = self.machine, other.machine
        return mine is theirs or (
            mine.numa_node_ids == theirs.numa_node_ids
            and all(a.cores == b.cores for a, b in zip(mine.numa_nodes, theirs.numa_nodes, strict=True))
        )


def cpu_topology(machine: Machine) -> CpuTopology:
    """Return how the CPU manager sees the machine; machines with the same cores share the answer.

    NUMA nodes and L3 groups are wholly free when all their CPUs are. Of sockets and cores the kubelet knows
    only how large they are on average, rounded down: one of another size counts as wholly free when just so
    many of its CPUs are.

    Raises:
        ConfigError: the machine has no CPUs, or fewer than cores, which then share some.
    """
    return _read_topology(_CoresKey(machine))


@lru_cache(maxsize=64)
def _read_topology(key: _CoresKey) -> CpuTopology:
    machine = key.machine
    every = machine.cpus
    if not every:
        raise ConfigError.at("the machine", "at least one CPU for the CPU manager", 0)
    cores = [core for node in machine.numa_nodes for core in node.cores]
    if every.bit_count() < len(cores):
        raise ConfigError.at("the machine", f"a CPU for each of its {len(cores)} cores", every.bit_count())
    of_node = {
        numa_id: cpus for numa_id, cpus in zip(machine.numa_node_ids, machine.node_cpus, strict=True) if cpus
    }
    of_socket = dict(zip(machine.sockets, machine.socket_cpus, strict=True))
    per_core = every.bit_count() // len(cores)
    per_socket = every.bit_count() // len(of_socket)
    core_groups = _groups({min(core.cpus): core.bits for core in cores}, whole=per_core)
    l3_groups = _groups(_l3_cpus(cores), core_groups)
    sockets_outer = len(of_node) > len(of_socket)
    if sockets_outer:
        inner = _groups(of_node, core_groups, l3_groups)
        outer = _groups(of_socket, inner, whole=per_socket)
    else:
        inner = _groups(of_socket, core_groups, whole=per_socket)
        outer = _groups(of_node, inner, l3_groups)
    return CpuTopology(
        outer,
        sockets_outer=sockets_outer,
        node_cpus=machine.node_cpus,
        node_sockets=tuple(
            union(of_socket[core.socket] for core in node.cores) for node in machine.numa_nodes
        ),
        socket_cpus=machine.socket_cpus,
        cpus_per_core=per_core,
        cpus_per_l3_group=every.bit_count() // len(l3_groups),
    )


def _l3_cpus(cores: Iterable[Core]) -> dict[int, int]:
    """Return the CPUs of each L3 group, as a kubelet sees them."""
    found: defaultdict[int, int] = defaultdict(int)
    for core in cores:
        found[core.cache_group] |= core.bits
    return dict(found)


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
