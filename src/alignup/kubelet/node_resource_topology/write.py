"""Writes NodeResourceTopology objects, for `node export`, `node publish` and `fleet`.

They are of version `topology.node.k8s.io/v1alpha2`, and like those of node-feature-discovery's
topology updater: zones are the NUMA nodes; only what managers give out exclusively is counted, CPUs
under a static CPU manager, memory under a Static memory manager, and devices; a device counts in
the zone of each NUMA node that it is near to; a zone leaves out a resource of which it has nothing.

Schedulers tell by the fingerprint whether an object is up to date: that of
`k8stopologyawareschedwg/podfingerprint`, version v001, which is xxHash (64 bits) of each pod's
name, with that of its namespace as the seed; then that of all these numbers, ascending, as 8 bytes
each, the lowest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, needs_extra, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from alignup.kubelet.read import KubeletNode
    from alignup.node import Node

# The first part of the words of `topologyPolicies`; the scope is the second.
POLICY_NAMES: Final = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}

# The attribute of a NodeResourceTopology that has the fingerprint.
ATTRIBUTE: Final = "nodeTopologyPodsFingerprint"

# The attribute that says which pods it is of.
METHOD_ATTRIBUTE: Final = "nodeTopologyPodsFingerprintMethod"

METHOD: Final = "all"
_PREFIX: Final = "pfp0v001"


def kubelet_topology_object(name: str, kubelet_node: KubeletNode) -> dict[str, Any]:
    """Return the object of a kubelet's node.

    Its fingerprint is that of the pods that PodResources lists, if it lists any.
    """
    return topology_object(name, kubelet_node.node, kubelet_node.records.listed)


def topology_object(name: str, node: Node, pods: Iterable[Any] | None = None) -> dict[str, Any]:
    """Return the object of a node with the pods that it has now, in JSON's types.

    Args:
        name: the name of the Node object.
        node: the node.
        pods: those of the fingerprint, with `namespace` and `name`; None: the node's. The
            fingerprint is left out, with a warning, where the extra `kubelet` is not installed.
    """
    policy = node.config.topology_manager_policy
    scope = node.config.topology_manager_scope
    legacy_policy = "None"
    if policy in POLICY_NAMES:
        level = "PodLevel" if scope == "pod" else "ContainerLevel"
        legacy_policy = f"{POLICY_NAMES[policy]}{level}"

    attributes = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    if pods is None:
        pods = node.pods
    try:  # by the fingerprint schedulers tell of which pods an object knows
        attributes |= {
            ATTRIBUTE: fingerprint((pod.namespace, pod.name) for pod in pods),
            METHOD_ATTRIBUTE: METHOD,
        }
    except InputError as error:
        warn(f"the object has no fingerprint of its pods, which schedulers compare: {error}")

    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "topologyPolicies": [legacy_policy],
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
        "zones": list(_zones(node)),
    }


def _zones(node: Node) -> Iterator[dict[str, Any]]:
    """Yield a zone for each NUMA node."""
    ids, distances = node.machine.numa_node_ids, node.machine.distance_matrix
    for position, numa_id in enumerate(ids):
        zone: dict[str, Any] = {"name": f"node-{numa_id}", "type": "Node"}
        if distances is not None:
            costs = zip(ids, distances[position], strict=True)
            zone["costs"] = [
                {"name": f"node-{near_id}", "value": distance} for near_id, distance in costs
            ]

        zone["resources"] = [
            {
                "name": resource,
                "capacity": str(capacity),
                "allocatable": str(allocatable),
                "available": str(available),
            }
            for resource, capacity, allocatable, available in _amounts(node, position)
            if capacity
        ]
        yield zone


def _amounts(node: Node, position: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield each resource of a NUMA node with its capacity, allocatable and available amounts."""
    machine = node.machine
    if node.cpu is not None:
        cpus = machine.node_cpus[position]
        allocatable = (cpus & int(node.cpu.allocatable_cpus)).bit_count()
        available = (cpus & int(node.cpu.free_cpus)).bit_count()
        yield "cpu", cpus.bit_count(), allocatable, available

    if node.memory is not None:
        capacity = machine.numa_nodes[position].memory_by_type
        for kind, sizes in node.memory.allocatable.items():
            free = node.memory.free[kind]
            yield kind, capacity.get(kind, 0), sizes[position], free[position]

    numa_id = machine.numa_node_ids[position]
    for resource, pool in node.pools.items():
        near = [
            device.id
            for device in pool.devices
            if device.numa_nodes is not None and numa_id in device.numa_nodes
        ]
        healthy = set(pool.ids(pool.healthy)).intersection(near)
        free_ids = healthy.intersection(pool.ids(pool.ledger.free))
        yield resource, len(near), len(healthy), len(free_ids)


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods, given as (namespace, name), in any order.

    Raises:
        InputError: the extra `kubelet` is not installed.
    """
    with needs_extra("the fingerprint of pods needs xxhash", "'alignup[kubelet]'"):
        import xxhash  # noqa: PLC0415  # an extra

    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    whole = xxhash.xxh64(b"".join(number.to_bytes(8, "little") for number in hashes))
    return f"{_PREFIX}{whole.hexdigest()}"
