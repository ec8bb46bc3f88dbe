"""Reads the CPUs of a machine as the CPU manager groups them.

The groups are sockets, NUMA nodes, L3 groups and cores.

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
from alignup.kubernetes.versions import VersionProfile
from alignup.machine.bits import bit_set, union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.kubernetes.policy_options import CpuOptions
    from alignup.machine.machine import Machine

__all__ = ["CpuGroup", "CpuTopology", "cpu_capacity", "cpu_topology"]


class _CoresKey(Record):
    """A machine as a key that is cheap to hash.

    Equal for machines whose NUMA nodes have the same cores.
    """

    machine: Machine

    def __hash__(self) -> int:
        return hash((self.machine.numa_node_ids, self.machine.node_cpus))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _CoresKey):
            return NotImplemented

        machine, other_machine = self.machine, other.machine
        if machine is other_machine:
            return True
        if machine.numa_node_ids != other_machine.numa_node_ids:
            return False

        nodes = zip(machine.numa_nodes, other_machine.numa_nodes, strict=True)
        return all(node.cores == other_node.cores for node, other_node in nodes)


def cpu_topology(machine: Machine, profile: VersionProfile | None = None) -> CpuTopology:
    """Return how the CPU manager sees the machine.

    Machines with the same cores share the answer. NUMA nodes and L3 groups are wholly free when all
    their CPUs are. Of sockets and cores kubelets before 1.38 know only how large they are on
    average, rounded down: one of another size counts as wholly free when just so many of its CPUs
    are (`isCoreFree` and `isSocketFree` in `cpumanager/cpu_assignment.go`).

    Args:
        machine: whose CPUs are given out.
        profile: whether the release takes each socket and core by its own size; None: the newest
            that is out.

    Raises:
        ConfigError: the machine has no CPUs, or fewer than cores, which then share some.
    """
    profile = profile or VersionProfile()
    return _read_topology(_CoresKey(machine), by_own_size=profile.groups_free_by_own_size)


@lru_cache(maxsize=64)
def _read_topology(key: _CoresKey, *, by_own_size: bool) -> CpuTopology:
    machine = key.machine
    all_cpus = machine.cpus
    if not all_cpus:
        raise ConfigError.at("the machine", "at least one CPU for the CPU manager", 0)

    cores = [core for node in machine.numa_nodes for core in node.cores]
    if all_cpus.bit_count() < len(cores):
        raise ConfigError.at(
            "the machine", f"a CPU for each of its {len(cores)} cores", all_cpus.bit_count()
        )

    numa_ids_and_cpus = zip(machine.numa_node_ids, machine.node_cpus, strict=True)
    node_cpus = {numa_id: cpus for numa_id, cpus in numa_ids_and_cpus if cpus}
    socket_cpus = dict(zip(machine.sockets, machine.socket_cpus, strict=True))
    node_sockets = tuple(
        union(socket_cpus[core.socket] for core in node.cores) for node in machine.numa_nodes
    )
    per_core = all_cpus.bit_count() // len(cores)
    per_socket = all_cpus.bit_count() // len(socket_cpus)
    whole_core, whole_socket = (0, 0) if by_own_size else (per_core, per_socket)

    core_groups = _groups({min(core.cpus): core.bits for core in cores}, whole=whole_core)
    l3_groups = _groups(cpus_by_cache(machine), core_groups)
    sockets_outer = len(node_cpus) > len(socket_cpus)
    if sockets_outer:
        inner = _groups(node_cpus, core_groups, l3_groups)
        outer = _groups(socket_cpus, inner, whole=whole_socket)
    else:
        inner = _groups(socket_cpus, core_groups, whole=whole_socket)
        outer = _groups(node_cpus, inner, l3_groups)

    return CpuTopology(
        outer,
        sockets_outer=sockets_outer,
        node_cpus=machine.node_cpus,
        node_sockets=node_sockets,
        socket_cpus=machine.socket_cpus,
        cpus_per_core=per_core,
        cpus_per_l3_group=all_cpus.bit_count() // len(l3_groups),
    )


def cpus_by_cache(machine: Machine) -> dict[int, int]:
    """Return the CPUs of each group that the CPU manager takes for one L3 cache, as bit sets."""
    cache_cpus: defaultdict[int, int] = defaultdict(int)
    for node in machine.numa_nodes:
        for core in node.cores:
            cache_cpus[core.cache_group] |= core.bits

    return cache_cpus


def _groups(
    members: Mapping[int, int],
    parts: Sequence[CpuGroup] = (),
    l3_groups: Sequence[CpuGroup] = (),
    *,
    whole: int = 0,
) -> tuple[CpuGroup, ...]:
    """Return the groups with these CPUs, by id; `whole` if it is not each one's own size (0)."""
    groups = []
    for number, cpus in sorted(members.items()):
        size = cpus.bit_count()
        inside = tuple(part for part in parts if part.cpus & cpus)
        shared = tuple(l3_group for l3_group in l3_groups if l3_group.cpus & cpus)
        groups.append(CpuGroup(number, cpus, size, whole or size, inside, shared))

    return tuple(groups)


@lru_cache(maxsize=64)
def cpu_capacity(
    topology: CpuTopology, reserved: int, options: CpuOptions, profile: VersionProfile
) -> CpuCapacity:
    """Return the allocatable CPUs.

    Nodes of the same machine, reserved CPUs and options share the answer.

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

        sockets = tuple(
            bit_set(i for i, cpus in enumerate(topology.node_cpus) if cpus & socket_cpus)
            for socket_cpus in topology.socket_cpus
        )

    return CpuCapacity(
        topology,
        reserved,
        strict_reservation=options.strict_cpu_reservation,
        full_pcpus_only=options.full_pcpus_only,
        distributes=options.distribute_cpus_across_numa,
        spreads=options.distribute_cpus_across_cores,
        in_turns=profile.spread_in_turns_over_cores,
        by_l3=options.prefer_align_cpus_by_uncorecache,
        l3_rounds_down=profile.odd_l3_rest_rounds_down,
        whole_l3_first=profile.whole_l3_groups_first,
        sockets=sockets,
        # the sum is larger where a NUMA node has CPUs of two sockets
        irregular_size=(
            _irregular_size(topology, reserved) if sum(sockets) == union(sockets) else 0
        ),
    )


def _irregular_size(topology: CpuTopology, reserved: int) -> int | None:
    """Return the size of the smallest group that can count as free while some CPUs are not.

    Those CPUs are reserved, or belong to another NUMA node than the others. Requests of fewer CPUs
    do not take it as a whole. None: there is no such group.
    """
    smallest = None
    groups: list[CpuGroup] = list(topology.outer)
    while groups:
        group = groups.pop()
        groups.extend(group.parts)

        is_in_one_node = any(group.cpus & ~cpus == 0 for cpus in topology.node_cpus)
        if group.size > group.whole and (group.cpus & reserved or not is_in_one_node):
            smallest = group.size if smallest is None else min(smallest, group.size)

    return smallest
