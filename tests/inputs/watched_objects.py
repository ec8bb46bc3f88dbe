"""Nodes, pods and reports as an API server holds them, for tests of what watches it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.control_plane.api_server.objects import PodReader, WatchedPod, decode_pod
from alignup.kubelet.node_resource_topology.report import (
    HOLDINGS,
    NODE,
    Report,
    decode_report,
    holdings_of,
)

if TYPE_CHECKING:
    from alignup.node import Node

GIBI = 1 << 30
KUBELET = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "topologyManagerPolicy": "single-numa-node",
}
READER = PodReader()


def description(**kubelet: Any) -> dict[str, Any]:
    """Return a node of two NUMA nodes of 4 CPUs and 8 GiB, with a GPU on each."""
    nodes = [
        {
            "id": node,
            "memory": 8 * GIBI,
            "cores": [{"cpus": [cpu], "socket": node} for cpu in range(4 * node, 4 * node + 4)],
        }
        for node in (0, 1)
    ]
    return {
        "machine": {"numaNodes": nodes},
        "kubelet": {**KUBELET, **kubelet},
        "devices": {"example.com/gpu": [{"id": "gpu0", "numa": 0}, {"id": "gpu1", "numa": 1}]},
    }


def topology(
    name: str, *, described: dict[str, Any] | None = None, holdings: Node | None = None, **free: Any
) -> dict[str, Any]:
    """Return a NodeResourceTopology object of the same node.

    `free` has the free amounts by zone, as in cpu=[3, 4].
    """
    totals = {"cpu": [3, 4], "memory": [7 * GIBI, 8 * GIBI], "example.com/gpu": [1, 1]}
    available = {
        **totals,
        **{key.replace("gpu", "example.com/gpu"): value for key, value in free.items()},
    }
    zones = [
        {
            "name": f"node-{zone}",
            "type": "Node",
            "resources": [
                {
                    "name": kind,
                    "capacity": str(totals[kind][zone]),
                    "allocatable": str(totals[kind][zone]),
                    "available": str(available[kind][zone]),
                }
                for kind in totals
            ],
        }
        for zone in (0, 1)
    ]
    annotations = {}
    if described is not None:
        annotations[NODE] = json.dumps(described)

    if holdings is not None:
        annotations[HOLDINGS] = msgspec.json.encode(holdings_of(holdings)).decode()

    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, "annotations": annotations},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "container"},
        ],
        "zones": zones,
    }


def report(name: str, **fields: Any) -> Report:
    """Return what a node reports; arguments as for `topology`."""
    return decode_report(json.dumps(topology(name, **fields)).encode())


def pod_object(name: str, node: str = "", priority: int = 0, **limits: Any) -> dict[str, Any]:
    """Return a Pod of one container, as in cpu=2, gpu=1; memory is 1 GiB if not given."""
    amounts = {"cpu": "1", "memory": "1Gi", **{key: str(value) for key, value in limits.items()}}
    if "gpu" in amounts:
        amounts["example.com/gpu"] = amounts.pop("gpu")

    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": amounts, "requests": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [container],
            "priority": priority,
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Pending"},
    }


def watched(name: str, node: str = "", priority: int = 0, **limits: Any) -> WatchedPod:
    """Return the record of such a pod."""
    return READER.read(decode_pod(json.dumps(pod_object(name, node, priority, **limits)).encode()))
