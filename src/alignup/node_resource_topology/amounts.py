"""Counts what the NodeResourceTopology object of a node says, as topology exporters do: what is given out exclusively.

The object is written by `alignup.node_resource_topology.write`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from alignup.node_resource_topology.write import written_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.node import Node

__all__ = ["topology_object"]

_LEGACY: Final = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}
"""The policies in the older list of policies, without the level that comes after single-numa-node."""


def topology_object(name: str, node: Node) -> dict[str, Any]:
    """Return the object of a node with the pods that it has now.

    Only what is given out exclusively is counted: CPUs under a static CPU manager, memory under a Static memory
    manager, and devices; a device counts on each NUMA node that it is near to.
    """
    config = node.config
    return written_object(
        name,
        node,
        ((pod.namespace, pod.name) for pod in node.pods),
        _legacy_policy(config.topology_manager_policy, config.topology_manager_scope),
        partial(_amounts, node),
    )


def _legacy_policy(policy: str, scope: str) -> str:
    """Return policy and scope in one word."""
    if policy not in _LEGACY:
        return "None"
    level = "PodLevel" if scope == "pod" else "ContainerLevel"
    return f"{_LEGACY[policy]}{level}" if policy == "single-numa-node" or scope == "pod" else _LEGACY[policy]


def _amounts(node: Node, position: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield each resource of a NUMA node with its capacity and its allocatable and available amounts."""
    machine = node.machine
    if node.cpu is not None:
        local = machine.node_cpus[position]
        counts = [(local & int(cpus)).bit_count() for cpus in (node.cpu.allocatable_cpus, node.cpu.free_cpus)]
        yield "cpu", local.bit_count(), counts[0], counts[1]
    if node.memory is not None:
        numa_node = machine.numa_nodes[position]
        pages = {f"hugepages-{one.size}": one.size_bytes * one.count for one in numa_node.hugepages}
        capacity = {"memory": numa_node.memory - sum(pages.values()), **pages}
        for kind, allocatable in node.memory.allocatable.items():
            free = node.memory.free[kind]
            yield kind, capacity.get(kind, 0), allocatable[position], free[position]
    if node.devices is not None:
        free_ids, numa_id = node.devices.free, machine.numa_node_ids[position]
        for resource, pool in node.devices.pools.items():
            here = [
                one.id for one in pool.devices if one.numa_nodes is not None and numa_id in one.numa_nodes
            ]
            healthy = set(pool.ids(pool.healthy)).intersection(here)
            yield resource, len(here), len(healthy), len(healthy.intersection(free_ids[resource]))
