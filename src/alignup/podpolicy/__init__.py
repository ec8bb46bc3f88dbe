"""A NUMA topology policy for each pod, after Koordinator's design: what it asks for, what follows from it.

For a node that admits pods itself: `pod_policy`, `effective_policy`, `ExclusivityTracker`. For a scheduler
before it: `alignup.podpolicy.scheduling`, under one of the two profiles in `alignup.podpolicy.profiles`. For
conformance cases: `alignup.podpolicy.koordinator`.
"""

from __future__ import annotations

from alignup.podpolicy.effective import (
    EffectivePolicy,
    PodPolicy,
    PolicyMismatch,
    effective_policy,
    node_policy,
    pod_policy,
)
from alignup.podpolicy.exclusivity import ExclusivityTracker, document_score
from alignup.podpolicy.occupancy import NumaNodeState, Occupancy
from alignup.podpolicy.status import Status, StatusCode

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
