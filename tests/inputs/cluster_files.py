"""Nodes, topologies and pods as a user would write them."""

from __future__ import annotations

import json
from typing import Any

from inputs.machines import machine_of

TOPOLOGY = """
apiVersion: v1
kind: List
items:
- apiVersion: topology.node.k8s.io/v1alpha2
  kind: NodeResourceTopology
  metadata: {name: worker-a}
  topologyPolicies: [SingleNUMANodeContainerLevel]
  zones:
  - name: node-0
    type: Node
    costs: [{name: node-0, value: 10}, {name: node-1, value: 20}]
    resources:
    - {name: cpu, capacity: "10", allocatable: "8", available: "3"}
    - {name: memory, capacity: 16Gi, allocatable: 15Gi, available: 15Gi}
    - {name: ephemeral-storage, capacity: 16Gi}
    - {name: example.com/gpu, capacity: "2", allocatable: "2", available: "1"}
  - name: node-1
    type: Node
    costs: [{name: node-0, value: 20}, {name: node-1, value: 10}]
    resources:
    - {name: cpu, capacity: "10", allocatable: "10", available: "9"}
    - {name: memory, capacity: 16Gi, available: 8Gi}
    - {name: example.com/gpu, available: "2"}
"""


def node_line(name: str, cores: int = 4, policy: str = "single-numa-node", **more: Any) -> str:
    """Return a node of two NUMA nodes as a line of JSON."""
    return json.dumps(
        {
            "name": name,
            "machine": machine_of(2, cores),
            "kubelet": {
                "topologyManagerPolicy": policy,
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0",
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            },
            "devices": {
                "example.com/gpu": [{"id": "a", "numa": [0]}, {"id": "b", "numa": [1]}],
                "example.com/any": [{"id": "c", "numa": None}],
            },
            **more,
        }
    )


def pod_manifest(uid: str, cpus: int = 2, memory: str = "1Gi", **devices: int) -> dict[str, Any]:
    """Return a Guaranteed pod of one container; `gpu=1` asks for `example.com/gpu`."""
    limits = {"cpu": str(cpus), "memory": memory}
    limits.update({f"example.com/{name}": str(count) for name, count in devices.items()})
    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "c0", "image": "i", "resources": {"limits": limits}}]},
    }
