"""Writes the frame of a NodeResourceTopology object (`topology.node.k8s.io/v1alpha2`): attributes, zones, costs.

What is counted, and as which policy a node goes, is left to the caller. `alignup.node_resource_topology.read` reads
such objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.node_resource_topology.fingerprint import ATTRIBUTE, METHOD, METHOD_ATTRIBUTE, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from alignup.machine.machine import Machine
    from alignup.node import Node

    Amounts = Iterable[tuple[str, int, int, int]]

__all__ = ["written_object"]


def written_object(
    name: str,
    node: Node,
    pods: Iterable[tuple[str, str]],
    legacy_policy: str,
    amounts: Callable[[int], Amounts],
    further: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the object of a node, in JSON's types.

    Args:
        name: the node's name.
        node: its machine and configuration.
        pods: namespace and name of those that the amounts know, for the fingerprint.
        legacy_policy: policy and scope as the older list of policies has them.
        amounts: called with the position of a NUMA node; each resource with its capacity, and its allocatable and
            available amounts.
        further: attributes beside the policy, the scope and the fingerprint.

    Raises:
        InputError: the extra `kubelet` is not installed, which the fingerprint needs.
    """
    attributes = {
        "topologyManagerPolicy": node.config.topology_manager_policy,
        "topologyManagerScope": node.config.topology_manager_scope,
        ATTRIBUTE: fingerprint(pods),
        METHOD_ATTRIBUTE: METHOD,
        **(further or {}),
    }
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "topologyPolicies": [legacy_policy],
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
        "zones": list(_zones(node.machine, amounts)),
    }


def _zones(machine: Machine, amounts: Callable[[int], Amounts]) -> Iterator[dict[str, Any]]:
    """Yield a zone for each NUMA node."""
    distances = machine.distance_matrix
    for position, numa_id in enumerate(machine.numa_node_ids):
        zone: dict[str, Any] = {"name": f"node-{numa_id}", "type": "Node"}
        if distances is not None:
            zone["costs"] = [
                {"name": f"node-{other}", "value": distance}
                for other, distance in zip(machine.numa_node_ids, distances[position], strict=True)
            ]
        zone["resources"] = [
            {"name": resource, "capacity": str(there), "allocatable": str(given), "available": str(free)}
            for resource, there, given, free in amounts(position)
        ]
        yield zone
