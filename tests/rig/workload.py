"""A mixed cluster and a mixed workload for a control plane of the rig."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from alignup.control_plane.publishers.fleet import DURATION

if TYPE_CHECKING:
    from pathlib import Path

GIBI = 1 << 30
POLICIES = (
    ("single-numa-node", "container"),
    ("single-numa-node", "pod"),
    ("restricted", "container"),
    ("restricted", "pod"),
    ("best-effort", "container"),
    ("none", "container"),
)
CPUS = 8
"""Of each NUMA node."""


def distance(first: int, second: int, count: int) -> int:
    """Return the distance of two of so many NUMA nodes, which are on two sockets."""
    if first == second:
        return 10
    if first * 2 // count == second * 2 // count:
        return 12
    return 32


def node(number: int, random: Random) -> dict[str, Any]:
    """Return a node of 2 to 8 NUMA nodes, with a GPU on each and a NIC on every second one."""
    count = (2, 4, 8)[number % 3]
    policy, scope = POLICIES[number % len(POLICIES)]
    nodes = [
        {
            "id": numa_id,
            "memory": 32 * GIBI,
            "cores": [
                {"cpus": [cpu, cpu + count * CPUS // 2], "socket": numa_id * 2 // count}
                for cpu in range(numa_id * CPUS // 2, (numa_id + 1) * CPUS // 2)
            ],
            "distances": [distance(numa_id, column, count) for column in range(count)],
        }
        for numa_id in range(count)
    ]
    gpus = [{"id": f"gpu{numa_id}", "numa": numa_id} for numa_id in range(count)]
    nics = [{"id": f"nic{numa_id}", "numa": numa_id} for numa_id in range(0, count, 2)]

    return {
        "name": f"node-{number:04}",
        "machine": {"numaNodes": nodes},
        "kubelet": {
            "topologyManagerPolicy": policy,
            "topologyManagerScope": scope,
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": random.choice([0, 1]), "limits": {"memory": "1Gi"}}],
        },
        "devices": {"example.com/gpu": gpus, "example.com/nic": nics},
    }


def single_numa_nodes(count: int) -> list[dict[str, Any]]:
    """Return nodes of two NUMA nodes, of the policy single-numa-node."""
    described = [node(3 * number, Random(1)) for number in range(count)]
    for line in described:
        line["kubelet"]["topologyManagerPolicy"] = "single-numa-node"
    return described


def container(name: str, random: Random) -> dict[str, Any]:
    """Return a container that asks for a part of a NUMA node, or for a little more than one."""
    amounts = {
        "cpu": str(random.choice([1, 2, 2, 3, 4, 4, 6, 8])),
        "memory": f"{random.choice([1, 4, 8, 16])}Gi",
    }
    if random.random() < 0.35:
        amounts["example.com/gpu"] = str(random.choice([1, 1, 1, 2]))
    if random.random() < 0.1:
        amounts["example.com/nic"] = "1"
    return {"name": name, "image": "none", "resources": {"limits": amounts, "requests": amounts}}


def pod(number: int, seconds: float, random: Random) -> dict[str, Any]:
    """Return a pod of one or two containers that runs for a while.

    A few ask for no CPUs of their own.
    """
    containers = [container("a", random)]
    if random.random() < 0.15:
        containers.append(container("b", random))

    if random.random() < 0.1:
        containers[0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:05}",
            "namespace": "default",
            "annotations": {DURATION: f"{random.uniform(0.5, 1.5) * seconds:.1f}s"},
        },
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
    }


def cpus_of(manifest: dict[str, Any]) -> float:
    """Return the CPUs that a pod asks for."""
    cpus = 0.0
    for requester in manifest["spec"]["containers"]:
        text = requester["resources"]["requests"]["cpu"]
        if text.endswith("m"):
            cpus += float(text[:-1]) / 1000
        else:
            cpus += float(text)

    return cpus


def workload(
    nodes: int, pods: int, seconds: float, seed: int = 1
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return nodes and pods; pods run for so many seconds on average."""
    random = Random(seed)  # as above
    described = [node(number, random) for number in range(nodes)]
    manifests = [pod(number, seconds, random) for number in range(pods)]
    return described, manifests


def span_for(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]], seconds: float, load: float
) -> float:
    """Return the time within which pods have to come so that they ask for a part of all CPUs."""
    return sum(map(cpus_of, pods)) * seconds / (load * allocatable(nodes))


def allocatable(nodes: list[dict[str, Any]]) -> float:
    """Return the CPUs that nodes can give to pods."""
    return sum(len(node_line["machine"]["numaNodes"]) * CPUS - 1 for node_line in nodes)


def write_nodes(folder: Path, nodes: list[dict[str, Any]]) -> Path:
    """Write nodes to a file."""
    path = folder / "nodes.jsonl"
    path.write_text("\n".join(map(json.dumps, nodes)))
    return path
