"""Exports a kubelet's node: as a NodeResourceTopology object for schedulers, and as metrics for Prometheus.

Amounts are those of `alignup.node.holdings`. The object is as the exporters of the ecosystem publish it
(`topology.node.k8s.io/v1alpha2`), with the state files as its source in place of PodResources alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.node.holdings import holdings_of
from alignup.node_resource_topology.write import written_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubelet.read import KubeletNode
    from alignup.machine.machine import Machine
    from alignup.node.holdings import ContainerHolding, Holdings

__all__ = ["node_resource_topology", "prometheus_text"]

_SOURCE: Final = "alignupSource"
"""The attribute that says where the amounts come from."""
_POLICY_NAMES: Final = {
    ("single-numa-node", "container"): "SingleNUMANodeContainerLevel",
    ("single-numa-node", "pod"): "SingleNUMANodePodLevel",
    ("restricted", "container"): "RestrictedContainerLevel",
    ("restricted", "pod"): "RestrictedPodLevel",
    ("best-effort", "container"): "BestEffortContainerLevel",
    ("best-effort", "pod"): "BestEffortPodLevel",
}


def node_resource_topology(found: KubeletNode, name: str) -> dict[str, Any]:
    """Return the NodeResourceTopology object of a node, in JSON's types.

    Zones are the NUMA nodes; what is available is allocatable less held. Devices near several NUMA nodes count in each
    of their zones, those near none in no zone, as in the ecosystem's exporters.

    Args:
        found: the node.
        name: its name.

    Raises:
        InputError: the extra `kubelet` is not installed, which the fingerprint of its pods needs.
    """
    node = found.node
    policy, scope = node.config.topology_manager_policy, node.config.topology_manager_scope
    return written_object(
        name,
        node,
        _pods(found),
        _POLICY_NAMES.get((policy, scope), "None"),
        partial(_amounts, node.machine, holdings_of(node)),
        {_SOURCE: ", ".join(_sources(found))},
    )


def _pods(found: KubeletNode) -> list[tuple[str, str]]:
    """Return namespace and name of the pods: those that PodResources lists, else those that can hold something."""
    records = found.records
    if records.listed is not None:
        return [(pod.namespace, pod.name) for pod in records.listed]
    return [(pod.namespace, pod.name) for pod in found.node.pods]


def _sources(found: KubeletNode) -> Iterator[str]:
    """Yield what the amounts were read from."""
    state, records = found.records.state, found.records
    for name, there in (
        ("cpu_manager_state", state.cpu),
        ("memory_manager_state", state.memory),
        ("kubelet_internal_checkpoint", state.devices),
        ("PodResources", records.listed or records.allocatable),
        ("pods", records.pods),
    ):
        if there is not None:
            yield name


def _amounts(machine: Machine, holdings: Holdings, position: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield the amounts of each resource on a NUMA node, those of all places that it is in together."""
    numa_id = machine.numa_node_ids[position]
    if holdings.amounts("cpu") is None:  # no manager gives them out: all are there for all
        count = machine.node_cpus[position].bit_count()
        yield "cpu", count, count, count
    for one in holdings.resources:
        near = [place for place in one.places if numa_id in place.numa_nodes]
        if near:
            yield (
                one.resource,
                sum(place.capacity for place in near),
                sum(place.allocatable for place in near),
                sum(place.free for place in near),
            )


def prometheus_text(found: KubeletNode) -> str:
    """Return what is allocatable, held and free, and how containers are aligned, in Prometheus' text format.

    Raises:
        InputError: the extra `metrics` is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise InputError(
            "expected prometheus-client for metrics, which is not installed: pip install 'alignup[metrics]'"
        ) from error
    registry = CollectorRegistry()
    holdings = holdings_of(found.node)
    labels = ("resource", "numa_nodes")
    gauges = {
        what: Gauge(f"alignup_node_resource_{what}", help_, labels, registry=registry)
        for what, help_ in (
            ("allocatable", "What containers can have for themselves: CPUs, bytes or devices."),
            ("held", "What containers hold for themselves."),
            ("free", "What nobody holds."),
        )
    }
    for one in holdings.resources:
        for place in one.places:
            where = ",".join(map(str, place.numa_nodes)) or "none"
            for what, gauge in gauges.items():
                gauge.labels(one.resource, where).set(getattr(place, what))
    names = ("namespace", "pod", "container")
    spread = Gauge(
        "alignup_node_container_numa_nodes",
        "How many NUMA nodes the CPUs, memory and devices of a container lie in.",
        names,
        registry=registry,
    )
    for holding in holdings.containers:
        if holding:
            spread.labels(*_names(holding)).set(
                found.node.numa_nodes(holding.pod_uid, holding.container).bit_count()
            )
    text: bytes = generate_latest(registry)
    return text.decode()


def _names(holding: ContainerHolding) -> tuple[str, str, str]:
    """Return namespace, pod and container."""
    namespace, _, name = holding.pod.partition("/")
    return namespace, name, holding.container
