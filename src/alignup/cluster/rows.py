"""Makes what a cluster judges: rows of nodes, whose ledgers they share, or of amounts; and the requests of a pod."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from alignup.core.amounts.board import LIMITS, Distances, Row
from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger
from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from alignup.core.amounts.memory_ledger import MemoryCapacity, MemoryLedger
from alignup.errors import InputError
from alignup.kubernetes.kubelet_config import KUBELET, TOPOLOGY_POLICIES
from alignup.kubernetes.pod import Container, Pod, is_pinned_memory
from alignup.kubernetes.quantity import LARGEST
from alignup.kubernetes.versions import VersionProfile
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from alignup.node import Node

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
# Capacity, allocatable and available amounts of a resource, one for each NUMA node.
Amounts = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def row_of_node(node: Node) -> Row:
    """Return what a cluster sees of a node: what the node admits and removes is seen there at once.

    A node asks itself where a provider of a user, a wrapped provider or a device plugin takes part.
    """
    config, machine = node.config, node.machine
    built_in = tuple(provider for provider in (node.devices, node.cpu, node.memory) if provider is not None)
    plugins = any(pool.preference is not None for pool in node.pools.values())
    distances = machine.distance_matrix
    return Row(
        numa_nodes=len(machine.numa_nodes),
        policy=TOPOLOGY_POLICIES.index(config.topology_manager_policy),
        pod_scope=config.topology_manager_scope == "pod",
        cpu=node.cpu.ledger if node.cpu else None,
        memory=node.memory.ledger if node.memory else None,
        devices={resource: pool.ledger for resource, pool in node.pools.items()},
        distances=None if distances is None else _shared_distances(distances),
        prefer_closest=config.topology_manager_policy_options.prefer_closest_numa_nodes,
        # what judges rows merges as a kubelet does
        needs_node=plugins or node.manager.providers != built_in or config.reading != KUBELET,
        changes=node.manager.lock.changes,
    )


class NodeAmounts(Record):
    """The facts about a node of which only amounts are known; each amount comes once for each NUMA node.

    Attributes:
        resources: capacity, allocatable and available CPUs, bytes of each type, and devices; what is missing is not
            aligned.
    """

    numa_nodes: int
    policy: str = "none"
    scope: str = "container"
    resources: Mapping[str, Amounts] = field(default_factory=dict)
    distances: tuple[tuple[int, ...], ...] | None = None

    @property
    def memory(self) -> dict[str, Amounts]:
        """The amounts of each type of memory."""
        return {name: one for name, one in self.resources.items() if is_pinned_memory(name)}

    @property
    def devices(self) -> dict[str, Amounts]:
        """The amounts of each resource of devices."""
        return {name: one for name, one in self.resources.items() if name != "cpu" and not is_pinned_memory(name)}


def row_of_amounts(amounts: NodeAmounts, profile: VersionProfile = _NEWEST_PROFILE) -> Row:
    """Return the row of a node of which only amounts are known: its admissions are an upper bound.

    Args:
        amounts: what is known.
        profile: what the kubelet's release does where releases differ.
    """
    cpu = memory = None
    if "cpu" in amounts.resources:
        capacity, allocatable, available = amounts.resources["cpu"]
        cpu = CpuLedger.from_counts(_counted_cpus(capacity, allocatable), list(available))
    if pinned := amounts.memory:
        there = tuple((kind, known[1]) for kind, known in sorted(pinned.items()))
        memory = MemoryLedger.from_counts(
            _counted_memory(there, profile.memory_groups_checked), {kind: known[2] for kind, known in pinned.items()}
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
            for resource, (_, totals, available) in amounts.devices.items()
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
        raise InputError.at("singleNUMANodeExclusive", "the same value for every node of a cluster", found)
    return found[0] if found else "Required"


# Exclusive CPUs, (type, bytes) of memory, (resource, count) of devices, and whether all of it is handed on.
Request = tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], bool]


def request_of(one: Pod | Container) -> Request:
    """Return what a pod or container asks for.

    Memory that is no whole number of bytes offers no hints and fails to allocate, as the largest amount does.
    """
    if isinstance(one, Container):
        fractional, is_reusable = bool(one.fractional_memory), one.is_init and not one.is_sidecar
    else:
        fractional, is_reusable = any(each.fractional_memory for each in one.all_containers), False
    memory = tuple((kind, LARGEST) for kind, _ in one.memory) if fractional else one.memory
    return one.exclusive_cpus, memory, one.devices, is_reusable


def requests_of(pod: Pod, resources: Collection[str]) -> list[Request]:
    """Return what a pod asks for as a whole, then what each of its containers does.

    Args:
        pod: the pod; one without containers asks for nothing in the place of one.
        resources: the device resources that some node has.

    Raises:
        InputError: it asks for more types of memory, or for more of these resources, than a compiled row holds.
    """
    asking: list[Pod | Container] = [pod, *pod.all_containers]
    types = {kind for one in asking for kind, _ in one.memory}
    known = {resource for one in asking for resource, _ in one.devices}
    for asked, most, what in (
        (types, LIMITS[0], "types of memory"),
        (known.intersection(resources), LIMITS[1], "device resources"),
    ):
        if len(asked) > most:
            raise InputError.at("the pod", f"at most {most} {what}", len(asked))
    requests = [request_of(one) for one in asking]
    return requests if len(requests) > 1 else [*requests, (0, (), (), False)]
