"""A NUMA topology policy for each pod, after Koordinator's design: what it asks for, what follows from it.

For a node that admits pods itself: `pod_policy`, `effective_policy`, `ExclusivityTracker`. For a scheduler
before it: `alignup.koordinator.scheduling`, under one of the two profiles in `alignup.koordinator.profiles`. For
conformance cases: `alignup.koordinator.koordinator`.
"""

from __future__ import annotations

from alignup.koordinator.effective import (
    EffectivePolicy,
    PodPolicy,
    PolicyMismatch,
    effective_policy,
    node_policy,
    pod_policy,
)
from alignup.koordinator.exclusivity import ExclusivityTracker, document_score
from alignup.koordinator.occupancy import NumaNodeState, Occupancy
from alignup.koordinator.status import Status, StatusCode

__all__ = [
    "EffectivePolicy",
    "ExclusivityTracker",
    "NumaNodeState",
    "Occupancy",
    "PodPolicy",
    "PolicyMismatch",
    "Status",
    "StatusCode",
    "document_score",
    "effective_policy",
    "node_policy",
    "pod_policy",
]
