"""Pods with claims on nodes.

Most are random ones whose claims have their devices and count as resources of the node (KEP-5517).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from alignup import read_pod
from alignup.errors import AllocationError
from alignup.kubernetes.node_fit import requests_of
from alignup.node import Node
from alignup.topology_manager.hints import TopologyHint

if TYPE_CHECKING:
    from random import Random

    from alignup.kubernetes.pod import Pod

NODE, DRIVER, KEY = "node-a", "dra.cpu", "dra.cpu/cores"
RESOURCES = ("cpu", "memory", "hugepages-2Mi")
# What a pod requests and is limited to, and what a container requests of that.
LAVISH = {"cpu": ("12", "12500m", "100m"), "memory": ("12Gi", "12800Mi", "64Mi")}
CAPACITY = ("3", "1", "1500m")


def amount(random: Random, name: str, most: int = 4) -> str:
    """Return an amount of a resource, often one that others add up to."""
    if name == "cpu":
        return random.choice(
            (f"{random.randint(1, most)}", f"{random.randint(1, 2 * most) * 500}m", f"{most}001m")
        )
    if name == "memory":
        return random.choice((f"{random.randint(1, most)}Gi", f"{random.randint(1, most) * 512}Mi"))
    return f"{random.randint(1, most) * 2}Mi"


def drawn_pod(random: Random) -> dict[str, Any]:
    """Return a question: `pod`, `node`, `slices`, `claims`, as objects of the API."""
    devices = [_device(random, f"d{number}") for number in range(random.randint(1, 5))]
    claims, names = [], random.sample(range(9), random.randint(1, 3))
    for number in names:
        mine, devices = devices[: random.randint(1, 2)], devices[2:]
        results = []
        for device in mine:
            result: dict[str, Any] = {
                "request": "r",
                "driver": DRIVER,
                "pool": NODE,
                "device": device["name"],
            }
            if "capacity" in device and random.random() < 0.9:
                result["consumedCapacity"] = (
                    {KEY: random.choice(CAPACITY)} if random.random() < 0.9 else {}
                )

            results.append(result)

        requests = [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]
        metadata = {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"}
        status = {"allocation": {"devices": {"results": results}}}
        claims.append(
            {
                "metadata": metadata,
                "spec": {"devices": {"requests": requests}},
                "status": status,
                "of": mine,
            }
        )

    offered = [device for claim in claims for device in claim.pop("of")] + devices
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    part = {
        "metadata": {"name": "slice"},
        "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": offered},
    }
    named = [{"name": f"a{number}", "resourceClaimName": f"c{number}"} for number in names]
    if random.random() < 0.1:
        named.append({"name": "again", "resourceClaimName": f"c{names[0]}"})

    return {
        "pod": _pod(random, named),
        "node": {"metadata": {"name": NODE}},
        "slices": [part],
        "claims": claims,
    }


def _device(random: Random, name: str) -> dict[str, Any]:
    device: dict[str, Any] = {"name": name}
    counted: dict[str, Any] = {}
    for resource in random.sample(RESOURCES, random.choice((0, 1, 1, 2))):
        how: dict[str, Any] = {}
        if random.random() < 0.6:
            if resource == "cpu" and random.random() < 0.5:
                how["mapping"] = {"capacityKey": KEY}
                if random.random() < 0.5:
                    how["mapping"]["capacityMultiplier"] = random.choice(("2", "500m", "1"))
                device |= {"capacity": {KEY: {"value": "64"}}, "allowMultipleAllocations": True}
            else:
                how["mapping"] = {"deviceMultiplier": amount(random, resource, 2)}

        if random.random() < 0.6 or not how:
            keys = random.sample(("perPod", "perContainer"), random.randint(1, 2))
            how["overhead"] = {key: amount(random, resource, 1) for key in keys}

        counted[resource] = how

    return device | ({"nodeAllocatableResources": counted} if counted else {})


def _pod(random: Random, claims: list[dict[str, Any]]) -> dict[str, Any]:
    # where little is requested and the pod requests much, limits are what claims can be too much
    # for
    is_lavish = random.random() < 0.5
    containers = [
        _container(random, f"m{number}", claims, is_lavish)
        for number in range(random.randint(1, 3))
    ]
    inits = [
        _container(random, f"i{number}", claims, is_lavish)
        for number in range(random.choice((0, 0, 1, 2)))
    ]
    for container in inits:
        if random.random() < 0.4:
            container["restartPolicy"] = "Always"

    spec: dict[str, Any] = {"containers": containers, "resourceClaims": claims}
    spec |= {"initContainers": inits} if inits else {}
    if random.random() < 0.85:
        whole: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for name in RESOURCES:
            if random.random() < 0.7:
                least, most = amount(random, name, 4), amount(random, name, 12)
                if is_lavish and name in LAVISH:
                    least, most, _ = LAVISH[name]
                if name.startswith("hugepages"):
                    least = most
                for kind, value in (("requests", least), ("limits", most)):
                    if random.random() < 0.7 or name.startswith("hugepages"):
                        whole[kind][name] = value

        spec["resources"] = {kind: amounts for kind, amounts in whole.items() if amounts}

    return {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": spec}


def _container(
    random: Random, name: str, claims: list[dict[str, Any]], is_lavish: bool
) -> dict[str, Any]:
    requests, limits = {}, {}
    for resource in RESOURCES:
        value = amount(random, resource)
        share = 0.7
        if resource.startswith("hugepages"):
            share = 0.25

        if is_lavish and resource in LAVISH:
            requests[resource], limits[resource] = LAVISH[resource][2], amount(random, resource, 12)
        elif random.random() < share:
            requests[resource] = value
            if resource.startswith("hugepages") or random.random() < 0.5:
                limits[resource] = value
        elif random.random() < share / 2 and not resource.startswith("hugepages"):
            limits[resource] = value

    used = [claim["name"] for claim in claims if random.random() < 0.6]
    resources: dict[str, Any] = {"requests": requests, "limits": limits}
    resources["claims"] = [{"name": name} for name in used]
    return {
        "name": name,
        "image": "none",
        "resources": {key: value for key, value in resources.items() if value},
    }


def outcome(question: dict[str, Any], release: str = "1.37") -> tuple[str, dict[str, int]]:
    """Return why a scheduler refuses a pod on its node, or what it counts of the pod there.

    Raises:
        InputError: the API server would refuse the pod.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pod = read_pod(question["pod"])

    kinds = (("ResourceSlice", "slices"), ("ResourceClaim", "claims"))
    group = {"apiVersion": "resource.k8s.io/v1"}
    node = Node.from_dict(
        {
            "machine": "xeon-2s",
            "kubeletVersion": release,
            "kubelet": {
                "topologyManagerPolicy": "none",
                "featureGates": {"DRANodeAllocatableResources": True},
            },
            "devices": {},
            "resources": [
                {**group, "kind": kind, **manifest}
                for kind, key in kinds
                for manifest in question[key]
            ],
            "nodeObject": {"kind": "Node", **question["node"]},
        }
    )
    pod = node.read(pod)
    assert node.claims is not None
    try:
        node.claims.allocate(pod, pod.all_containers[0], TopologyHint(None, preferred=True))
    except AllocationError as error:
        return str(error), {}

    return "", requests_of(node.claims.counted(pod))


def is_told(answer: dict[str, Any], refusal: str, requests: dict[str, int]) -> bool:
    """Return whether an outcome is the scheduler's: one of its refusals, or what it counts."""
    if answer["refusals"]:
        # errors name the claim in several ways
        reason = refusal.split(": ", 1)[-1]
        return bool(refusal) and any(recorded.endswith(reason) for recorded in answer["refusals"])
    return not refusal and requests == {
        name: amount for name, amount in answer["requests"].items() if amount
    }


def pod_with_claim(
    name: str = "p", *, cpu: int = 2, memory: str = "1Gi", reference: dict[str, str] | None = None
) -> Pod:
    """Return a Guaranteed pod whose container uses one claim, of the template `t` by default."""
    spec = {
        "resourceClaims": [{"name": "c", **(reference or {"resourceClaimTemplateName": "t"})}],
        "containers": [
            {
                "name": "main",
                "resources": {"claims": [{"name": "c"}], "limits": {"cpu": cpu, "memory": memory}},
            }
        ],
    }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_pod({"metadata": {"name": name}, "spec": spec})


def node_with_claims(
    resources: list[dict[str, Any]], *, hints: bool = False, policy: str = "single-numa-node"
) -> Node:
    """Return a node of two NUMA nodes with static CPUs, and the objects that claims need."""
    return Node.from_dict(
        {
            "machine": "xeon-2s",
            "kubelet": {
                "cpuManagerPolicy": "static",
                "topologyManagerPolicy": policy,
                "reservedSystemCPUs": "0",
            },
            "devices": {},
            "resources": resources,
            "draHints": hints,
        }
    )
