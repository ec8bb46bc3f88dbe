"""Writes metrics of a kubelet's node in Prometheus' text format.

They are amounts by NUMA node, and the alignment of containers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import needs_extra
from alignup.node.holdings import holdings_of

if TYPE_CHECKING:
    from alignup.kubelet.read import KubeletNode

# The fields of `PlaceAmounts` that are told, and what each is.
_AMOUNTS: Final = {
    "allocatable": "What containers can have for themselves: CPUs, bytes or devices.",
    "held": "What containers hold for themselves.",
    "free": "What nobody holds.",
}


def prometheus_text(kubelet_node: KubeletNode) -> str:
    """Return the metrics of a node in Prometheus' text format.

    What is allocatable, held and free, and how containers are aligned.

    Raises:
        InputError: the extra `metrics` is not installed.
    """
    with needs_extra("metrics need prometheus-client", "'alignup[metrics]'"):
        from prometheus_client import (  # noqa: PLC0415  # an extra
            CollectorRegistry,
            Gauge,
            generate_latest,
        )

    registry = CollectorRegistry()
    node = kubelet_node.node
    holdings = holdings_of(node)

    for amount, help_text in _AMOUNTS.items():
        gauge = Gauge(
            f"alignup_node_resource_{amount}",
            help_text,
            ("resource", "numa_nodes"),
            registry=registry,
        )
        for resource in holdings.resources:
            for place in resource.places:
                numa_nodes = ",".join(map(str, place.numa_nodes)) or "none"
                gauge.labels(resource.resource, numa_nodes).set(getattr(place, amount))

    spread = Gauge(
        "alignup_node_container_numa_nodes",
        "How many NUMA nodes the CPUs, memory and devices of a container lie in.",
        ("namespace", "pod", "container"),
        registry=registry,
    )
    for holding in holdings.containers:
        if holding:
            namespace, _, name = holding.pod.partition("/")
            mask = node.numa_nodes(holding.pod_uid, holding.container)
            spread.labels(namespace, name, holding.container).set(mask.bit_count())

    text: bytes = generate_latest(registry)
    return text.decode()
