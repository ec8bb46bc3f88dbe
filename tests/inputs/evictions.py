"""Clusters whose pods may be evicted for pods that wait."""

from __future__ import annotations

import json
from typing import Any

from alignup.control_plane.api_server.objects import decode_budget
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.node_fit import NodeObject
from inputs.waiting_pods import GATED_READER
from inputs.watched_objects import description, pod_object, report

EMPTY = Description().template(json.dumps(description()), {})
ROOM = {"cpu": 7000, "memory": 15 << 30, "pods": 110, "example.com/gpu": 2}
OWNER = [{"kind": "ReplicaSet", "name": "r", "uid": "1", "controller": True}]


def bound(
    name: str,
    node: str,
    *,
    owners: Any = OWNER,
    leaving: bool = False,
    since: str = "2026-01-01T00:00:00Z",
    **fields: Any,
) -> Any:
    pod = pod_object(name, node, **fields)
    pod["status"]["startTime"] = since
    pod["metadata"] |= {"ownerReferences": owners, "labels": {"app": name}}
    if leaving:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return GATED_READER.decode(json.dumps(pod).encode())


def keeper_of(nodes: dict[str, list[Any]], **fields: Any) -> Keeper:
    """Return a keeper of nodes of 3 and 4 CPUs, single-numa-node, with the pods that are there."""
    keeper = Keeper(ClusterState())
    pods = [pod for there in nodes.values() for pod in there]
    keeper.pods_listed(pods, 0)
    keeper.nodes_listed([NodeObject(name, allocatable=ROOM, **fields) for name in nodes], 0)
    for name, there in nodes.items():
        holder = EMPTY.copy()
        for pod in there:
            assert holder.admit(pod.pod)
        keeper.state.report_seen(report(name, described=description(), holdings=holder), 0)
    return keeper


def budget(name: str, app: str, allowed: int) -> Any:
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }
    return decode_budget(json.dumps(document).encode())
