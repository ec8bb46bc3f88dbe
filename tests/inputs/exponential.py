"""Scenarios on which a product of all hints never ends.

Eight NUMA nodes, four or five resources, nothing narrow.
"""

from __future__ import annotations

from random import Random
from typing import Any

GIBI = 1 << 30
NODES = 8
CORES = 4
DEVICES_A_NODE = 3


def machine(random: Random) -> dict[str, Any]:
    """Return eight NUMA nodes in two sockets, with distances that may tie or not."""
    near, far = random.choice([(10, 21), (12, 32), (11, 11)])
    total = NODES * CORES

    def distance(node: int, neighbour: int) -> int:
        if node == neighbour:
            return 10
        if node // 4 == neighbour // 4:
            return near
        return far

    return {
        "numaNodes": [
            {
                "id": node,
                "memory": random.choice([16, 24, 32]) * GIBI,
                "distances": [distance(node, neighbour) for neighbour in range(NODES)],
                "cores": [
                    {"cpus": [core, core + total], "socket": node // 4}
                    for core in range(node * CORES, (node + 1) * CORES)
                ],
            }
            for node in range(NODES)
        ]
    }


def kubelet(random: Random) -> dict[str, Any]:
    """Return a configuration under which four lists of hints are merged."""
    closest: dict[str, Any] = {}
    if random.random() < 0.4:
        closest = {"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}

    return {
        "topologyManagerPolicy": random.choice(["restricted", "best-effort"]),
        "topologyManagerScope": random.choice(["container", "pod"]),
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        **closest,
    }


def inventory(random: Random) -> dict[str, list[dict[str, Any]]]:
    """Return two or three resources with devices all over the machine, some near two nodes."""
    resources = {}
    for kind in ("gpu", "nic", "fpga")[: random.choice([2, 2, 3])]:
        devices = []
        for number in range(NODES * DEVICES_A_NODE):
            node = number // DEVICES_A_NODE
            near = [node] if random.random() < 0.8 else sorted({node, random.randrange(NODES)})
            devices.append({"id": f"{kind}{number}", "numa": near})
        resources[f"example.com/{kind}"] = devices
    return resources


def pod(random: Random, uid: str, resources: list[str]) -> dict[str, Any]:
    """Return a Guaranteed pod whose containers ask for something of everything."""
    containers = []
    for number in range(random.choice([1, 1, 2])):
        limits = {
            "cpu": str(random.choice([1, 2, 5, 9, 17])),
            "memory": f"{random.choice([1, 4, 15, 30, 50])}Gi",
            **{resource: str(random.choice([1, 1, 2, 4, 7])) for resource in resources},
        }
        containers.append({"name": f"c{number}", "image": "i", "resources": {"limits": limits}})
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": containers}}


def scenario(seed: int) -> dict[str, Any]:
    """Return a scenario: pods come until the machine is full, and some go."""
    random = Random(seed)
    devices = inventory(random)
    steps: list[dict[str, Any]] = []
    live: list[str] = []
    for number in range(random.randint(4, 9)):
        if live and random.random() < 0.25:
            steps.append({"remove": live.pop(random.randrange(len(live)))})
        else:
            steps.append({"admit": pod(random, f"pod{number}", list(devices))})
            live.append(f"pod{number}")

    return {
        "name": f"exponential-{seed}",
        "machine": machine(random),
        "kubelet": kubelet(random),
        "devices": devices,
        "steps": steps,
    }
