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


def member(name: str, size: int = 4, group: str = "g", **fields: Any) -> dict[str, Any]:
    """Return a gated member; of an empty group a member of a PodGroup."""
    pod = gated_object(name, **fields)
    if group:
        pod["metadata"]["labels"] = {"alignup.dev/group": group}
        pod["metadata"]["annotations"] = {"alignup.dev/group-size": str(size)}
    else:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    return pod


def idle_member(name: str, size: int = 4) -> dict[str, Any]:
    """Return a gated member that asks for nothing exclusive."""
    pod = member(name, size)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return pod
