"""Pods that wait behind the keeper's gate, as an API server has them."""

from __future__ import annotations

import json
from typing import Any

from alignup.control_plane.gates.node_affinity import GATE
from alignup.control_plane.gates.waiting_pods import GatedPodReader, WaitingPod
from inputs.watched_objects import pod_object

GATED_READER = GatedPodReader()


def gated_object(
    name: str,
    *,
    priority: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    namespace: str = "default",
    spec: dict[str, Any] | None = None,
    **limits: Any,
) -> dict[str, Any]:
    """Return a Pod with the gate; further arguments as for `pod_object`."""
    pod = pod_object(name, "", priority, **limits)
    pod["metadata"] |= {
        "namespace": namespace,
        "creationTimestamp": created,
        "resourceVersion": "1",
    }
    pod["spec"] |= {"schedulingGates": [{"name": GATE}], **(spec or {})}
    return pod


def waiting_pod(name: str, **fields: Any) -> WaitingPod:
    """Return the record of such a pod."""
    pod = GATED_READER.decode(json.dumps(gated_object(name, **fields)).encode())
    assert isinstance(pod, WaitingPod)
    return pod
