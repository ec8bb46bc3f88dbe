"""Many nodes at once: which of them would admit a pod, and how well aligned."""

from __future__ import annotations

from alignup.cluster.cluster import REASONS, STRATEGIES, Cluster, Evaluation

__all__ = ["REASONS", "STRATEGIES", "Cluster", "Evaluation"]
