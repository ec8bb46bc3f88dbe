"""Makes the rows that a cluster judges: of a node, whose ledgers it shares, or of amounts where no more is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger
from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from alignup.core.amounts.memory_capacity import MemoryCapacity
from alignup.core.amounts.memory_ledger import MemoryLedger
from alignup.core.amounts.row import Distances, Row
from alignup.errors import InputError
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.versions import VersionProfile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.node import Node

__all__ = ["NodeAmounts", "one_default", "row_of_amounts", "row_of_node"]

_shared_distances = lru_cache(maxsize=1024)(Distances)
_counted_cpus = lru_cache(maxsize=1024)(
    lambda capacity, allocatable: CpuCapacity.from_counts(list(capacity), list(allocatable))
)
_counted_memory = lru_cache(maxsize=1024)(
    lambda allocatable, checks_groups: MemoryCapacity(dict(allocatable), checks_groups=checks_groups)
)
_counted_devices = lru_cache(maxsize=1024)(
    lambda totals, over_all_nodes: DeviceInventory.from_counts(list(totals), over_all_nodes=over_all_nodes)
)
_NEWEST_PROFILE = VersionProfile()


def row_of_node(node: Node) -> Row:
    """Return what a cluster sees of a node: what the node admits and removes is seen there at once.

    A node asks itself where a provider of a user, a wrapped provider or a device plugin takes part.
    """
    config, machine = node.config, node.machine
    built_in = tuple(provider for provider in (node.devices, node.cpu, node.memory) if provider is not None)
    pools = node.devices.pools if node.devices else {}
    plugins = any(pool.preference is not None for pool in pools.values())
    distances = machine.distance_matrix
    return Row(
        numa_nodes=len(machine.numa_nodes),
        policy=TOPOLOGY_POLICIES.index(config.topology_manager_policy),
        pod_scope=config.topology_manager_scope == "pod",
        cpu=node.cpu.ledger if node.cpu else None,
        memory=node.memory.ledger if node.memory else None,
        devices={resource: pool.ledger for resource, pool in pools.items()},
        distances=None if distances is None else _shared_distances(distances),
        prefer_closest=config.topology_manager_policy_options.prefer_closest_numa_nodes,
        asks_itself=plugins or node.manager.providers != built_in,
    )


@dataclass(frozen=True, slots=True)
class NodeAmounts:
    """The facts about a node of which only amounts are known; each amount comes once for each NUMA node."""

    numa_nodes: int
    policy: str = "none"
    scope: str = "container"
    cpus: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    """Capacity, allocatable and available CPUs; None: they are not aligned."""
    memory: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Type -> allocatable and available bytes."""
    devices: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Resource -> allocatable and available devices."""
    distances: tuple[tuple[int, ...], ...] | None = None


def row_of_amounts(amounts: NodeAmounts, profile: VersionProfile = _NEWEST_PROFILE) -> Row:
    """Return the row of a node of which only amounts are known: its yes is an upper bound.

    Args:
        amounts: what is known.
        profile: what the kubelet's release does where releases differ.
    """
    cpu = memory = None
    if amounts.cpus is not None:
        capacity, allocatable, available = amounts.cpus
        cpu = CpuLedger.from_counts(_counted_cpus(capacity, allocatable), list(available))
    if amounts.memory:
        there = tuple((kind, known[0]) for kind, known in sorted(amounts.memory.items()))
        memory = MemoryLedger.from_counts(
            _counted_memory(there, profile.memory_groups_checked),
            {kind: known[1] for kind, known in amounts.memory.items()},
        )
    return Row(
        numa_nodes=amounts.numa_nodes,
        policy=TOPOLOGY_POLICIES.index(amounts.policy),
        pod_scope=amounts.scope == "pod",
        cpu=cpu,
        memory=memory,
        devices={
            resource: DeviceLedger.from_counts(
                _counted_devices(totals, profile.device_hints_over_all_nodes), list(available)
            )
            for resource, (totals, available) in amounts.devices.items()
        },
        distances=None if amounts.distances is None else _shared_distances(amounts.distances),
        upper_bound=True,
    )


def one_default(defaults: Sequence[str]) -> str:
    """Return the default of exclusivity that all nodes share; `Required` if there is no node.

    Raises:
        InputError: they differ.
    """
    found = sorted(set(defaults))
    if len(found) > 1:
        expected = "the same value for every node of a cluster"
        raise InputError.at("singleNUMANodeExclusive", expected, found)
    return found[0] if found else "Required"
