"""Computes the CPUs that a static CPU manager may give away, and refuses what a kubelet would not start with.

Which of them containers hold is known to `alignup.providers.cpu.provider`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from alignup.core.amounts.cpu_ledger import CpuCapacity
from alignup.errors import ConfigError
from alignup.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from alignup.core.cpu.cpu_group import CpuGroup
    from alignup.core.cpu.topology import CpuTopology
    from alignup.kubernetes.option_values import CpuOptions
    from alignup.kubernetes.versions import VersionProfile

__all__ = ["cpu_capacity"]


@lru_cache(maxsize=64)
def cpu_capacity(
    topology: CpuTopology, reserved: int, options: CpuOptions, profile: VersionProfile
) -> CpuCapacity:
    """Return what there is to give; nodes of the same machine, reserved CPUs and options share the answer.

    Raises:
        ConfigError: as `_check`.
    """
    _check(topology, reserved, options)
    sockets = _socket_nodes(topology) if options.align_by_socket else ()
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
        irregular=_is_irregular(topology, reserved) or _shares_nodes(sockets),
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


def _shares_nodes(sockets: tuple[int, ...]) -> bool:
    """Return whether a NUMA node has CPUs of two sockets."""
    seen = 0
    for mask in sockets:
        if seen & mask:
            return True
        seen |= mask
    return False


def _check(topology: CpuTopology, reserved: int, options: CpuOptions) -> None:
    """Refuse what the kubelet would not start with.

    Raises:
        ConfigError: reserved CPUs that the machine lacks, or align-by-socket with more sockets than nodes.
    """
    unknown = reserved & ~topology.cpus
    if unknown:
        raise ConfigError.at("reservedSystemCPUs", "CPUs of this machine", str(CPUSet.from_int(unknown)))
    if options.align_by_socket and len(topology.socket_cpus) > topology.numa_nodes:
        raise ConfigError.at(
            "cpuManagerPolicyOptions[align-by-socket]",
            f"no more sockets than the {topology.numa_nodes} NUMA nodes that have CPUs",
            len(topology.socket_cpus),
        )


def _socket_nodes(topology: CpuTopology) -> tuple[int, ...]:
    """Return for each socket the mask of the NUMA nodes that have CPUs of it."""
    return tuple(
        sum(1 << i for i, cpus in enumerate(topology.node_cpus) if cpus & socket)
        for socket in topology.socket_cpus
    )
