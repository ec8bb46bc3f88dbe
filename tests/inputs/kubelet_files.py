"""Writes the files of a kubelet from a node of ours.

State files with right checksums, PodResources answers, pods.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from alignup.kubelet.checkpoints import read_cpu_state, read_device_checkpoint, read_memory_state
from inputs.kernel_trees import server, write

__all__ = ["CONFIG", "EXAMPLE", "gib", "guaranteed", "signed", "write_node", "write_root"]

EXAMPLE = Path(__file__).parents[1] / "kubelet_node"
"""A node that a kubelet 1.36.3 wrote.

Four NUMA nodes, eight pods, and its verdicts on twelve more.
"""

CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "systemReserved": {"memory": "924Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "topologyManagerPolicy": "best-effort",
}


def gib(count):
    return int(count * 2**30)


def guaranteed(name, *wishes, init=(), node_name="node-a"):
    """Return the manifest of a running pod.

    Its containers ask for (CPUs, GiB) or (CPUs, GiB, GPUs).
    """

    def container(prefix, number, wish):
        amounts = {"cpu": str(wish[0]), "memory": f"{wish[1]}Gi"}
        if len(wish) > 2:
            amounts["nvidia.com/gpu"] = str(wish[2])
        return {
            "name": f"{prefix}{number}",
            "image": "none",
            "resources": {"requests": amounts, "limits": amounts},
        }

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": node_name,
            "initContainers": [container("i", number, wish) for number, wish in enumerate(init)],
            "containers": [container("c", number, wish) for number, wish in enumerate(wishes)],
        },
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    }


def signed(document, kind):
    """Return a checkpoint's text with the checksum that a kubelet would give it."""
    read = {"cpu": read_cpu_state, "memory": read_memory_state, "devices": read_device_checkpoint}[
        kind
    ]
    key = "checksum"
    if kind == "devices":
        key = "Checksum"

    document = {**document, key: 0}
    document[key] = read(json.dumps(document).encode()).expected_checksum
    return json.dumps(document, separators=(",", ":"))


def cpu_document(node):
    entries = {}
    for pod in node.pods:
        for container in pod.all_containers:
            cpus = node.cpu.cpus(pod.uid, container.name)
            if cpus is not None:
                entries.setdefault(pod.uid, {})[container.name] = str(cpus)

    return {"policyName": "static", "defaultCpuSet": str(node.cpu.shared_cpus), "entries": entries}


def memory_document(node):
    ids = node.machine.numa_node_ids
    entries = {}
    blocks = []
    for pod in node.pods:
        for container in pod.all_containers:
            listed = [
                {"numaAffinity": list(block.numa_nodes), "type": block.type, "size": block.size}
                for block in node.memory.blocks(pod.uid, container.name)
            ]
            if listed:
                entries.setdefault(pod.uid, {})[container.name] = listed
                blocks += listed

    reserved = {
        (entry.numa_node, kind): size
        for entry in node.config.reserved_memory
        for kind, size in entry.limits
    }
    machine_state = {}
    for position, numa_id in enumerate(ids):
        mine = [block for block in blocks if numa_id in block["numaAffinity"]]
        tables = {}
        for kind, amounts in node.memory.allocatable.items():
            allocatable = amounts[position]
            free = node.memory.free[kind][position]
            kept = reserved.get((numa_id, kind), 0)
            pages = 0
            if kind == "memory":
                pages = sum(
                    page_amounts[position] + reserved.get((numa_id, page), 0)
                    for page, page_amounts in node.memory.allocatable.items()
                    if page != "memory"
                )

            tables[kind] = {
                "total": allocatable + kept + pages,
                "systemReserved": kept,
                "allocatable": allocatable,
                "reserved": allocatable - free,
                "free": free,
            }

        cells = next((block["numaAffinity"] for block in mine), [numa_id])
        machine_state[str(numa_id)] = {
            "numberOfAssignments": len(mine),
            "memoryMap": tables,
            "cells": cells,
        }

    return {"policyName": "Static", "machineState": machine_state, "entries": entries}


def device_document(node):
    entries = []
    for pod in node.pods:
        for container in pod.all_containers:
            for resource, ids in node.devices.devices(pod.uid, container.name).items():
                by_node = {}
                for device in node.devices.pools[resource].devices:
                    if device.id in ids:
                        for numa_id in device.numa_nodes or (-1,):
                            by_node.setdefault(str(numa_id), []).append(device.id)

                entries.append(
                    {
                        "PodUID": pod.uid,
                        "ContainerName": container.name,
                        "ResourceName": resource,
                        "DeviceIDs": by_node,
                        "AllocResp": base64.b64encode(b"\n\x06\n\x01A\x12\x01B").decode(),
                    }
                )

    registered = {
        resource: [device.id for device in pool.devices]
        for resource, pool in node.devices.pools.items()
    }
    return {"Data": {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}}


def topology(nodes):
    return {"nodes": [{"ID": str(node)} if node else {} for node in nodes]}


def answers(node):
    """Return the answers to List and GetAllocatableResources, as protobuf's JSON."""
    listed = []
    for pod in node.pods:
        containers = []
        for container in pod.containers:
            allocation = node.allocation(pod.uid, container.name)
            containers.append(
                {
                    "name": container.name,
                    "cpu_ids": [str(cpu) for cpu in allocation.cpus or ()],
                    "memory": [
                        {
                            "memory_type": b.type,
                            "size": str(b.size),
                            "topology": topology(b.numa_nodes),
                        }
                        for b in allocation.memory
                    ],
                    "devices": [
                        {"resource_name": resource, "device_ids": list(ids)}
                        for resource, ids in allocation.devices.items()
                    ],
                }
            )

        listed.append({"name": pod.name, "namespace": pod.namespace, "containers": containers})

    devices = [
        {
            "resource_name": resource,
            "device_ids": [device.id],
            **({"topology": topology(device.numa_nodes)} if device.numa_nodes else {}),
        }
        for resource, pool in (node.devices.pools if node.devices else {}).items()
        for device in pool.devices
        if device.healthy
    ]
    allocatable = {
        "devices": devices,
        "cpu_ids": [str(cpu) for cpu in node.cpu.allocatable_cpus] if node.cpu else [],
    }
    return {"pod_resources": listed}, allocatable


def write_root(root, files=None):
    """Write a machine and a kubelet's configuration beneath a folder.

    The caches of single cores are left out.
    """
    files = files or server()
    write(
        root,
        {
            path: text
            for path, text in files.items()
            if "/index0/" not in path and "/index1/" not in path
        },
    )

    state = root / "var/lib/kubelet"
    (state / "device-plugins").mkdir(parents=True)
    (root / "podresources").mkdir()
    (state / "config.yaml").write_text(json.dumps(CONFIG))
    return root


def write_node(root, node, manifests):
    """Write what a kubelet would have written beside the machine of `write_root`."""
    state = root / "var/lib/kubelet"
    (state / "cpu_manager_state").write_text(signed(cpu_document(node), "cpu"))
    memory = memory_document(node) if node.memory else {"policyName": "None", "machineState": {}}
    (state / "memory_manager_state").write_text(signed(memory, "memory"))
    if node.devices:
        path = state / "device-plugins/kubelet_internal_checkpoint"
        path.write_text(signed(device_document(node), "devices"))

    listed, allocatable = answers(node)
    (root / "podresources/list.json").write_text(json.dumps(listed))
    (root / "podresources/allocatable.json").write_text(json.dumps(allocatable))
    (root / "pods.json").write_text(
        json.dumps({"kind": "PodList", "apiVersion": "v1", "items": list(manifests)})
    )
    return root
