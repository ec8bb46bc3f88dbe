"""Many nodes at once: which of them would admit a pod, and how well aligned."""

from __future__ import annotations

from alignup.cluster.cluster import REASONS, STRATEGIES, Cluster, Evaluation
from alignup.kubelet.node_resource_topology.read import read_amounts, read_node_resource_topologies

__all__ = ["REASONS", "STRATEGIES", "Cluster", "Evaluation", "read_amounts", "read_node_resource_topologies"]
