"""Writes metrics of a kubelet's node in Prometheus' text format: amounts by NUMA node, and alignment of containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.errors import needs_extra
from alignup.node.holdings import holdings_of

if TYPE_CHECKING:
    from alignup.kubelet.read import KubeletNode


def prometheus_text(found: KubeletNode) -> str:
    """Return what is allocatable, held and free, and how containers are aligned, in Prometheus' text format.

    Raises:
        InputError: the extra `metrics` is not installed.
    """
    with needs_extra("metrics need prometheus-client", "'alignup[metrics]'"):
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  # an extra

    registry = CollectorRegistry()
    holdings = holdings_of(found.node)
    labels = ("resource", "numa_nodes")
    told = {
        "allocatable": "What containers can have for themselves: CPUs, bytes or devices.",
        "held": "What containers hold for themselves.",
        "free": "What nobody holds.",
    }
    gauges = {
        what: Gauge(f"alignup_node_resource_{what}", told[what], labels, registry=registry)
        for what in told
    }
    for one in holdings.resources:
        for place in one.places:
            where = ",".join(map(str, place.numa_nodes)) or "none"
            for what, gauge in gauges.items():
                gauge.labels(one.resource, where).set(getattr(place, what))

    names = ("namespace", "pod", "container")
    what = "How many NUMA nodes the CPUs, memory and devices of a container lie in."
    spread = Gauge("alignup_node_container_numa_nodes", what, names, registry=registry)
    for holding in holdings.containers:
        if holding:
            namespace, _, name = holding.pod.partition("/")
            numa_nodes = found.node.numa_nodes(holding.pod_uid, holding.container)
            spread.labels(namespace, name, holding.container).set(numa_nodes.bit_count())

    text: bytes = generate_latest(registry)
    return text.decode()
