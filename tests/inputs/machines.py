"""Made-up machines of any size, nodes on them, and pods that ask for something of everything."""

from __future__ import annotations

from typing import Any

from alignup.node import Node

GIBI = 1 << 30


def machine_of(numa_nodes: int, cores: int) -> dict[str, Any]:
    """Return a machine of so many NUMA nodes in two sockets.

    Each has so many cores (of two CPUs) and 32 GiB.
    """
    total = numa_nodes * cores

    return {
        "numaNodes": [
            {
                "id": node,
                "memory": 32 * GIBI,
                "distances": [10 if node == neighbour else 20 for neighbour in range(numa_nodes)],
                "cores": [
                    {"cpus": [core, core + total], "socket": 2 * node // numa_nodes}
                    for core in range(node * cores, (node + 1) * cores)
                ],
            }
            for node in range(numa_nodes)
        ]
    }


def busy_node(numa_nodes: int = 4, cores: int = 4) -> Node:
    """Return a node with CPUs, memory and two device resources, restricted."""
    return Node.from_dict(
        {
            "machine": machine_of(numa_nodes, cores),
            "kubelet": {
                "topologyManagerPolicy": "restricted",
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0",
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            },
            "devices": {
                f"example.com/{kind}": [
                    {"id": f"{kind}{index}", "numa": [index // 2]}
                    for index in range(2 * numa_nodes)
                ]
                for kind in ("gpu", "nic")
            },
        }
    )


def manifest(uid: str, cpus: int, gibi: int, devices: int) -> dict[str, Any]:
    """Return a Guaranteed pod with one container."""
    limits = {
        "cpu": str(cpus),
        "memory": f"{gibi}Gi",
        "example.com/gpu": str(devices),
        "example.com/nic": str(devices),
    }
    return {
        "metadata": {"uid": uid, "name": uid},
        "spec": {"containers": [{"name": "c0", "image": "i", "resources": {"limits": limits}}]},
    }
