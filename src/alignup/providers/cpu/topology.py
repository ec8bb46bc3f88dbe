"""Reads the CPUs of a machine as the CPU manager groups them: sockets, NUMA nodes, L3 groups, cores, CPUs.

A set of CPUs is an int whose bit i is the CPU that the kernel numbers i. What is made here, once
for a machine, is kept as arrays by the compiled `CpuTopology`, which also chooses among free CPUs.
`cpu_capacity` says which CPUs a static policy may give away, and refuses what a kubelet would not
start with.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from alignup.core.amounts.cpu_ledger import CpuCapacity
from alignup.core.cpu.cpu_group import CpuGroup
from alignup.core.cpu.topology import CpuTopology
from alignup.errors import ConfigError
from alignup.machine.bits import bit_set, union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.kubernetes.policy_options import CpuOptions
    from alignup.kubernetes.versions import VersionProfile
    from alignup.machine.machine import Machine

__all__ = ["CpuGroup", "CpuTopology", "cpu_capacity", "cpu_topology"]


class _CoresKey(Record):
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
            and all(
                a.cores == b.cores for a, b in zip(mine.numa_nodes, theirs.numa_nodes, strict=True)
            )
        )


def cpu_topology(machine: Machine) -> CpuTopology:
    """Return how the CPU manager sees the machine; machines with the same cores share the answer.

    NUMA nodes and L3 groups are wholly free when all their CPUs are. Of sockets and cores the
    kubelet knows only how large they are on average, rounded down: one of another size counts as
    wholly free when just so many of its CPUs are.

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
        raise ConfigError.at(
            "the machine", f"a CPU for each of its {len(cores)} cores", every.bit_count()
        )

    of_node = {
        numa_id: cpus
        for numa_id, cpus in zip(machine.numa_node_ids, machine.node_cpus, strict=True)
        if cpus
    }
    of_socket = dict(zip(machine.sockets, machine.socket_cpus, strict=True))
    per_core = every.bit_count() // len(cores)
    per_socket = every.bit_count() // len(of_socket)
    core_groups = _groups({min(core.cpus): core.bits for core in cores}, whole=per_core)
    l3_groups = _groups(cpus_by_cache(machine), core_groups)
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


def cpus_by_cache(machine: Machine) -> dict[int, int]:
    """Return the CPUs of each group that the CPU manager takes for one L3 cache, as bit sets."""
    found: defaultdict[int, int] = defaultdict(int)
    for core in (core for node in machine.numa_nodes for core in node.cores):
        found[core.cache_group] |= core.bits
    return found


def _groups(
    members: Mapping[int, int],
    parts: Sequence[CpuGroup] = (),
    l3_groups: Sequence[CpuGroup] = (),
    *,
    whole: int = 0,
) -> tuple[CpuGroup, ...]:
    """Return the groups with these CPUs, by id; `whole` if it is not each one's own size (0)."""
    found = []
    for number, cpus in sorted(members.items()):
        size = cpus.bit_count()
        inside, shared = (
            tuple(one for one in some if one.cpus & cpus) for some in (parts, l3_groups)
        )
        found.append(CpuGroup(number, cpus, size, whole or size, inside, shared))

    return tuple(found)


@lru_cache(maxsize=64)
def cpu_capacity(
    topology: CpuTopology, reserved: int, options: CpuOptions, profile: VersionProfile
) -> CpuCapacity:
    """Return the allocatable CPUs; nodes of the same machine, reserved CPUs and options share the answer.

    Raises:
        ConfigError: reserved CPUs that the machine lacks, or align-by-socket with more sockets than
            nodes.
    """
    if reserved & ~topology.cpus:
        expected = f"CPUs of this machine ({CPUSet.from_int(topology.cpus)})"
        raise ConfigError.at("reservedSystemCPUs", expected, str(CPUSet.from_int(reserved)))

    sockets: tuple[int, ...] = ()
    if options.align_by_socket:
        if len(topology.socket_cpus) > topology.numa_nodes:
            raise ConfigError.at(
                "cpuManagerPolicyOptions[align-by-socket]",
                f"no more sockets than the {topology.numa_nodes} NUMA nodes that have CPUs",
                len(topology.socket_cpus),
            )

        nodes = topology.node_cpus
        sockets = tuple(
            bit_set(i for i, cpus in enumerate(nodes) if cpus & one) for one in topology.socket_cpus
        )

    return CpuCapacity(
        topology,
        reserved,
        strict_reservation=options.strict_cpu_reservation,
        full_pcpus_only=options.full_pcpus_only,
        distributes=options.distribute_cpus_across_numa,
        spreads=options.distribute_cpus_across_cores,
        by_l3=options.prefer_align_cpus_by_uncorecache,
        l3_rounds_down=profile.odd_l3_rest_rounds_down,
        sockets=sockets,
        # the sum is larger where a NUMA node has CPUs of two sockets
        irregular=_is_irregular(topology, reserved) or sum(sockets) != union(sockets),
    )


def _is_irregular(topology: CpuTopology, reserved: int) -> bool:
    """Return whether a group can count as wholly free while some of its CPUs are not.

    Those CPUs are reserved, or belong to another NUMA node than the others.
    """
    groups: list[CpuGroup] = list(topology.outer)
    while groups:
        group = groups.pop()
        spans = not any(group.cpus & ~inside == 0 for inside in topology.node_cpus)
        if group.size > group.whole and (group.cpus & reserved or spans):
            return True
        groups.extend(group.parts)
    return False
