"""Many nodes at once: which of them would admit a pod, and how well aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.cluster.cluster import REASONS, STRATEGIES, Cluster, Evaluation

if TYPE_CHECKING:
    from alignup.kubelet.node_resource_topology.read import (
        read_amounts,
        read_node_resource_topologies,
    )

__all__ = [
    "REASONS",
    "STRATEGIES",
    "Cluster",
    "Evaluation",
    "read_amounts",
    "read_node_resource_topologies",
]


def __getattr__(name: str) -> Any:
    """Return what reads NodeResourceTopology objects, when it is asked for.

    The modules that do import those of this package.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    from alignup.kubelet.node_resource_topology import read  # noqa: PLC0415 - see above

    return getattr(read, name)
