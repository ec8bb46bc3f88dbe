"""Random scenarios for the managers of a kubelet, in the form of docs/scenarios.md, from a seed.

Machines have cores and sockets of one size, and every uid is used once: what kubelets decide
otherwise on others is in the table of docs/deviations.md.
"""

from __future__ import annotations

from random import Random
from typing import Any

MIBI, GIBI = 1 << 20, 1 << 30
RESOURCES = ("example.com/gpu", "example.com/nic", "example.com/fpga")
CPU_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)


def scenario(seed: int) -> dict[str, Any]:
    """Return a scenario."""
    rng = Random(seed)
    machine = _machine(rng)
    devices = _devices(rng, machine)
    document = {
        "name": f"fresh-{seed}",
        "machine": machine,
        "kubelet": _kubelet(rng, machine),
        "devices": devices,
        "steps": list(_steps(rng, machine, devices)),
    }
    preferred = {
        name: _preferred(rng, devices_of_resource)
        for name, devices_of_resource in devices.items()
        if len(devices_of_resource) > 3 and rng.random() < 0.25
    }
    if preferred:
        document["preferredSets"] = preferred
    return document


def _machine(rng: Random) -> dict[str, Any]:
    count = rng.choice([1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 7, 8])
    threads = rng.choice([1, 2, 2, 2, 4])
    core_counts = [1, 2, 3, 4]
    if count < 5:
        core_counts = [1, 2, 3, 4, 4, 6, 8]
    cores = rng.choice(core_counts)
    sockets = rng.choice([divisor for divisor in range(1, count + 1) if count % divisor == 0])
    ids = list(range(count))
    if rng.random() < 0.1:
        ids = sorted(rng.sample(range(count + 3), count))

    total = count * cores
    by_turns = rng.random() < 0.2
    owner = [place % count if by_turns else place // cores for place in range(total)]
    adjacent, caches = rng.random() < 0.5, rng.choice([0, 0, 1, 1, 2, 3])
    sizes = rng.sample(["2Mi", "1Gi"], rng.choice([0, 0, 1, 2]))
    near = {(a, b): rng.choice([11, 12, 16, 21, 31]) for a in range(count) for b in range(a)}
    is_flat = rng.random() < 0.5
    nodes = []
    for place, id_ in enumerate(ids):
        core_numbers = [number for number, node in enumerate(owner) if node == place]
        distances = [255] * (ids[-1] + 1)
        for column, other_id in enumerate(ids):
            far = 21 if is_flat else near.get((max(place, column), min(place, column)), 10)
            distances[other_id] = 10 if place == column else far

        node: dict[str, Any] = {
            "id": id_,
            "memory": rng.choice([2, 4, 8, 16]) * GIBI
            + (3 * GIBI if sizes else 0)
            + rng.choice([0, 0, 4096]),
            "distances": distances,
            "cores": [
                {
                    "id": number,
                    "socket": place * sockets // count,
                    "cpus": [
                        number * threads + k if adjacent else number + k * total
                        for k in range(threads)
                    ],
                    **({"l3": place * caches + rank * caches // cores} if caches else {}),
                }
                for rank, number in enumerate(core_numbers)
            ],
        }
        if sizes:
            node["hugepages"] = {
                size: rng.choice([0, 1, 2, 256] if size == "2Mi" else [0, 1, 2]) for size in sizes
            }

        nodes.append(node)

    return {"numaNodes": nodes}


def _cpus(machine: dict[str, Any]) -> list[int]:
    return sorted(
        cpu for node in machine["numaNodes"] for core in node["cores"] for cpu in core["cpus"]
    )


def _kubelet(rng: Random, machine: dict[str, Any]) -> dict[str, Any]:
    nodes, cpus = machine["numaNodes"], _cpus(machine)
    policy = rng.choice(
        [
            "none",
            "best-effort",
            "best-effort",
            "restricted",
            "restricted",
            "single-numa-node",
            "single-numa-node",
        ]
    )
    config: dict[str, Any] = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": rng.choice(["container", "pod"]),
        "cpuManagerPolicy": rng.choice(["none", *["static"] * 11]),
        "memoryManagerPolicy": rng.choice(["None", "Static", "Static"]),
        "reservedSystemCPUs": "",
    }
    # with gaps in the numbers of nodes a kubelet panics
    if policy != "none" and rng.random() < 0.4 and nodes[-1]["id"] == len(nodes) - 1:
        config["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}

    if config["cpuManagerPolicy"] == "static":
        options = rng.sample(CPU_OPTIONS, rng.choice([0, 0, 1, 1, 1, 2, 2, 3, 5]))
        if options:
            config["cpuManagerPolicyOptions"] = dict.fromkeys(options, "true")
        first = nodes[0]["cores"][0]["cpus"]
        reserved = rng.choice(
            [cpus[:1], first, sorted(rng.sample(cpus, min(len(cpus), rng.choice([1, 2, 3]))))]
        )
        config["reservedSystemCPUs"] = ",".join(map(str, reserved))

    if config["memoryManagerPolicy"] == "Static":
        reserving_nodes = sorted(
            rng.sample(nodes, rng.choice([1, 1, 2]) if len(nodes) > 1 else 1),
            key=lambda node: node["id"],
        )
        config["reservedMemory"] = [
            {"numaNode": node["id"], "limits": {"memory": rng.choice(["256Mi", "512Mi", "1Gi"])}}
            for node in reserving_nodes
        ]

    return config


def _devices(rng: Random, machine: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    ids, devices_by_resource = [node["id"] for node in machine["numaNodes"]], {}
    for name in rng.sample(RESOURCES, rng.choice([0, 1, 1, 2, 3])):
        kind, count = (
            rng.choice(["one", "one", "one", "several", "none", "mixed"]),
            rng.choice([1, 2, 4, 4, 8]),
        )
        devices = []
        for place in range(count):
            home = {rng.choice(ids) if rng.random() < 0.2 else ids[place * len(ids) // count]}
            if kind == "several":
                home.add(rng.choice(ids))
            unknown = kind == "none" or (kind == "mixed" and rng.random() < 0.3)
            devices.append(
                {
                    "id": f"{name.partition('/')[2]}-{place}",
                    "numa": None if unknown else sorted(home),
                }
            )

        devices_by_resource[name] = devices

    return devices_by_resource


def _preferred(rng: Random, devices: list[dict[str, Any]]) -> list[list[str]]:
    ids = [device["id"] for device in devices]
    rng.shuffle(ids)
    return [sorted(ids[place : place + 2]) for place in range(0, len(ids) - 1, 2)]


def _steps(rng: Random, machine: dict[str, Any], devices: dict[str, Any]):
    alive: list[dict[str, Any]] = []
    for number in range(100 if rng.random() < 0.01 else rng.randint(2, 10)):
        if alive and rng.random() < 0.3:
            pod = alive.pop(rng.randrange(len(alive)))
            yield {"remove": pod["metadata"]["uid"]}
            continue
        pod = _pod(rng, f"u{number}", machine, devices)
        alive.append(pod)
        yield {"admit": pod}
        if pod["spec"].get("initContainers") and rng.random() < 0.5:
            yield {"start": f"u{number}", "container": pod["spec"]["containers"][0]["name"]}


def _pod(rng: Random, uid: str, machine: dict[str, Any], devices: dict[str, Any]) -> dict[str, Any]:
    kind = rng.choice([*["guaranteed"] * 8, "burstable", "best effort", "fraction"])
    count = 16
    if rng.random() < 0.97:
        count = rng.choice([1, 1, 1, 1, 2, 2, 3, 5])

    inits = []
    for place in range(rng.choice([0, 0, 0, 0, 1, 1, 2])):
        container = _container(rng, f"i{place}", kind, machine, devices)
        if rng.random() < 0.35:
            container["restartPolicy"] = "Always"
        inits.append(container)

    containers = [_container(rng, f"c{place}", kind, machine, devices) for place in range(count)]
    spec: dict[str, Any] = {"containers": containers}
    if inits:
        spec["initContainers"] = inits

    return {"metadata": {"name": f"p-{uid}", "namespace": "default", "uid": uid}, "spec": spec}


def _container(
    rng: Random, name: str, kind: str, machine: dict[str, Any], devices: dict[str, Any]
) -> dict[str, Any]:
    if kind == "best effort":
        return {"name": name, "image": "x"}

    cpus, nodes = len(_cpus(machine)), machine["numaNodes"]
    most = rng.choice([2, 2, max(1, cpus // len(nodes)), cpus // len(nodes) + 2, cpus])
    amounts = {
        "cpu": "1500m" if kind == "fraction" else str(rng.randint(1, max(1, most))),
        "memory": rng.choice(["64Mi", "512Mi", "1Gi", "2Gi", "3Gi", "5Gi", "9Gi"]),
    }
    for resource, resource_devices in devices.items():
        if rng.random() < 0.5:
            amounts[resource] = str(
                rng.randint(0 if rng.random() < 0.1 else 1, max(1, len(resource_devices) // 2))
            )

    for size in nodes[0].get("hugepages", ()):
        if rng.random() < 0.3:
            amounts[f"hugepages-{size}"] = (
                rng.choice(["0", "2Mi", "64Mi", "512Mi"]) if size == "2Mi" else "1Gi"
            )

    requests = dict(amounts)
    if kind == "burstable":
        requests |= {"cpu": "500m", "memory": "64Mi"}

    return {"name": name, "image": "x", "resources": {"limits": amounts, "requests": requests}}
