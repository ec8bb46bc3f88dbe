"""Made-up nodes of every kind that a cluster may hold, and pods to try on them.

The nodes are loaded with pods.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from alignup.errors import ConfigError
from alignup.node import Node

if TYPE_CHECKING:
    from random import Random

GIBI = 1 << 30
RESOURCES = ("example.com/gpu", "example.com/nic")
_CPU_OPTIONS = (
    {},
    {},
    {},
    {"full-pcpus-only": "true"},
    {"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"},
    {"distribute-cpus-across-cores": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
    {"align-by-socket": "true"},
)


def machine_of(random: Random) -> dict[str, Any]:
    """Return a machine of 1 to 10 NUMA nodes.

    Some with gaps in their ids, cores of two sizes, or bare nodes.
    """
    count = random.choice([1, 2, 2, 4, 4, 4, 8, 8, 8, 10])
    sockets = random.choice([n for n in (1, 2, 4) if count % n == 0])
    cores, threads = random.choice([2, 4, 8]), random.choice([1, 2, 2, 2])
    ids = sorted(random.sample(range(12), count)) if random.random() < 0.1 else list(range(count))
    uneven, pages = random.random() < 0.15, random.random() < 0.4
    bare = random.randrange(count) if count > 1 and random.random() < 0.1 else -1
    nodes, cpu = [], 0
    for position, node in enumerate(ids):
        described: dict[str, Any] = {
            "id": node,
            "memory": random.choice([4, 8, 16]) * GIBI,
            "cores": [],
        }
        for _ in range(0 if position == bare else cores - (uneven and random.choice([0, 0, 1]))):
            size = threads - (uneven and threads > 1 and random.random() < 0.3)
            described["cores"].append(
                {
                    "cpus": list(range(cpu, cpu + size)),
                    "socket": position * sockets // count,
                    "l3": position,
                }
            )
            cpu += size

        if pages:
            described["hugepages"] = {
                "2Mi": random.choice([0, 256, 512]),
                "1Gi": random.choice([0, 1, 2]),
            }

        nodes.append(described)

    def distance(a: int, b: int) -> int:
        if a == b:
            return 10
        if a * sockets // count == b * sockets // count:
            return 12
        return 31

    for position, described in enumerate(nodes):
        described["distances"] = [distance(position, b) for b in range(count)]

    return {"numaNodes": nodes}


def kubelet_of(random: Random, machine: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with any policy, scope and options."""
    policy = random.choice(
        ["none", "best-effort", "best-effort", "restricted", "restricted", "single-numa-node"]
    )
    options = {"max-allowable-numa-nodes": "16"}
    if random.random() < 0.3:
        options["prefer-closest-numa-nodes"] = "true"

    cpus = [cpu for node in machine["numaNodes"] for core in node["cores"] for cpu in core["cpus"]]
    config: dict[str, Any] = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": random.choice(["container", "pod"]),
        "topologyManagerPolicyOptions": options,
    }
    if random.random() < 0.9:
        config["cpuManagerPolicy"] = "static"
        config["cpuManagerPolicyOptions"] = random.choice(_CPU_OPTIONS)
        config["reservedSystemCPUs"] = ",".join(
            map(str, random.choice([cpus[:1], cpus[:2], cpus[1:3]]))
        )

    if random.random() < 0.7:
        config["memoryManagerPolicy"] = "Static"
        first = machine["numaNodes"][0]["id"]
        config["reservedMemory"] = [{"numaNode": first, "limits": {"memory": "512Mi"}}]

    return config


def devices_of(random: Random, machine: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an inventory and preferred sets.

    Devices near one node, several, or none, in order or not, some sick.
    """
    ids = [node["id"] for node in machine["numaNodes"]]
    inventory: dict[str, Any] = {}
    sets: dict[str, Any] = {}
    for resource in random.sample(RESOURCES, random.choice([0, 1, 2, 2])):
        count = random.choice([2, 4, 8])
        style = random.choice(["one", "one", "one", "several", "none", "mixed", "scattered"])
        devices = []
        for index in range(count):
            home = ids[index * len(ids) // count] if style != "scattered" else random.choice(ids)
            near: list[int] | None = [home]
            if style == "several":
                near = sorted({home, random.choice(ids)})
            if style == "none" or (style == "mixed" and random.random() < 0.3):
                near = random.choice([None, None, []])
            devices.append({"id": f"d{index}", "numa": near, "healthy": random.random() < 0.95})

        inventory[resource] = devices
        if random.random() < 0.2:
            sets[resource] = [["d0", f"d{count - 1}"]]

    return inventory, sets


def pod_of(
    random: Random, uid: str, machine: dict[str, Any], inventory: dict[str, Any]
) -> dict[str, Any]:
    """Return a pod of one or several containers, some of them init containers or sidecars."""
    total = sum(len(core["cpus"]) for node in machine["numaNodes"] for core in node["cores"])
    per_node = max(1, total // len(machine["numaNodes"]))
    quality = random.choices(["guaranteed", "burstable", "fractional"], [10, 1, 1])[0]

    def container(name: str) -> dict[str, Any]:
        cpus = random.randint(
            1, max(1, min(total, random.choice([2, per_node, per_node + 2, 2 * per_node])))
        )
        limits = {
            "cpu": "1500m" if quality == "fractional" else str(cpus),
            "memory": random.choice(["256Mi", "1Gi", "2Gi", "5Gi", "9Gi"]),
        }
        for resource, devices in inventory.items():
            if random.random() < 0.5:
                limits[resource] = str(random.randint(0, max(1, len(devices) // 2)))

        if machine["numaNodes"][0].get("hugepages") and random.random() < 0.3:
            limits["hugepages-2Mi"] = random.choice(["64Mi", "512Mi"])

        if random.random() < 0.03:
            limits["hugepages-16Gi"] = "16Gi"

        requests = {**limits, "cpu": "500m"} if quality == "burstable" else limits
        return {"name": name, "image": "i", "resources": {"limits": limits, "requests": requests}}

    inits = [container(f"init-{index}") for index in range(random.choices([0, 1, 2], [6, 2, 1])[0])]
    for init in inits:
        if random.random() < 0.3:
            init["restartPolicy"] = "Always"

    containers = [
        container(f"c{index}") for index in range(random.choices([1, 2, 3], [6, 3, 1])[0])
    ]
    return {
        "metadata": {"name": uid, "uid": uid, "annotations": annotations_of(random)},
        "spec": {"initContainers": inits, "containers": containers},
    }


def annotations_of(random: Random) -> dict[str, str]:
    """Return annotations that bring a policy, for some pods."""
    if random.random() < 0.8:
        return {}
    policy = random.choice(["", "SingleNUMANode", "SingleNUMANode", "Restricted", "BestEffort"])
    spec = {
        "numaTopologyPolicy": policy,
        "singleNUMANodeExclusive": random.choice(["", "Required", "Preferred"]),
    }
    return {"scheduling.koordinator.sh/numa-topology-spec": json.dumps(spec)}


def node_of(random: Random) -> tuple[dict[str, Any], Node]:
    """Return a node with some pods on it, and what it was made from."""
    while True:
        machine = machine_of(random)
        inventory, sets = devices_of(random, machine)
        scenario = {
            "machine": machine,
            "kubelet": kubelet_of(random, machine),
            "devices": inventory,
            "preferredSets": sets,
        }
        try:
            node = Node.from_dict(scenario)
        except ConfigError:  # not every option goes with every machine
            continue

        for index in range(random.choice([0, 1, 2, 4, 6])):
            with suppress(ConfigError):  # a pod's own policy, on more NUMA nodes than go with one
                node.admit(pod_of(random, f"old-{index}", machine, inventory))

        return scenario, node
