"""Pods whose claims count as resources of their node (KEP-5517), drawn at random, with claims that have their devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

NODE, DRIVER, KEY = "node-a", "dra.cpu", "dra.cpu/cores"
RESOURCES = ("cpu", "memory", "hugepages-2Mi")
CAPACITY = ("3", "1", "1500m")


def amount(random: Random, name: str, most: int = 4) -> str:
    """Return an amount of a resource, often one that others add up to."""
    if name == "cpu":
        return random.choice((f"{random.randint(1, most)}", f"{random.randint(1, 2 * most) * 500}m", f"{most}001m"))
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
        for one in mine:
            result: dict[str, Any] = {"request": "r", "driver": DRIVER, "pool": NODE, "device": one["name"]}
            if "capacity" in one and random.random() < 0.9:
                result["consumedCapacity"] = {KEY: random.choice(CAPACITY)} if random.random() < 0.9 else {}
            results.append(result)
        requests = [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]
        metadata = {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"}
        status = {"allocation": {"devices": {"results": results}}}
        claims.append({"metadata": metadata, "spec": {"devices": {"requests": requests}}, "status": status, "of": mine})
    offered = [one for claim in claims for one in claim.pop("of")] + devices
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    part = {
        "metadata": {"name": "slice"},
        "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": offered},
    }
    named = [{"name": f"a{number}", "resourceClaimName": f"c{number}"} for number in names]
    if random.random() < 0.1:
        named.append({"name": "again", "resourceClaimName": f"c{names[0]}"})
    return {"pod": _pod(random, named), "node": {"metadata": {"name": NODE}}, "slices": [part], "claims": claims}


def _device(random: Random, name: str) -> dict[str, Any]:
    one: dict[str, Any] = {"name": name}
    counted: dict[str, Any] = {}
    for resource in random.sample(RESOURCES, random.choice((0, 1, 1, 2))):
        how: dict[str, Any] = {}
        if random.random() < 0.6:
            if resource == "cpu" and random.random() < 0.5:
                how["mapping"] = {"capacityKey": KEY}
                if random.random() < 0.5:
                    how["mapping"]["capacityMultiplier"] = random.choice(("2", "500m", "1"))
                one |= {"capacity": {KEY: {"value": "64"}}, "allowMultipleAllocations": True}
            else:
                how["mapping"] = {"deviceMultiplier": amount(random, resource, 2)}
        if random.random() < 0.6 or not how:
            keys = random.sample(("perPod", "perContainer"), random.randint(1, 2))
            how["overhead"] = {key: amount(random, resource, 1) for key in keys}
        counted[resource] = how
    return one | ({"nodeAllocatableResources": counted} if counted else {})


def _pod(random: Random, claims: list[dict[str, Any]]) -> dict[str, Any]:
    containers = [_container(random, f"m{number}", claims) for number in range(random.randint(1, 3))]
    inits = [_container(random, f"i{number}", claims) for number in range(random.choice((0, 0, 1, 2)))]
    for one in inits:
        if random.random() < 0.4:
            one["restartPolicy"] = "Always"
    spec: dict[str, Any] = {"containers": containers, "resourceClaims": claims}
    spec |= {"initContainers": inits} if inits else {}
    if random.random() < 0.85:
        whole: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for name in RESOURCES:
            if random.random() < 0.7:
                least, most = amount(random, name, 9), amount(random, name, 12)
                if name.startswith("hugepages"):
                    least = most
                for kind, value in (("requests", least), ("limits", most)):
                    if random.random() < 0.7 or name.startswith("hugepages"):
                        whole[kind][name] = value
        spec["resources"] = {kind: amounts for kind, amounts in whole.items() if amounts}
    return {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": spec}


def _container(random: Random, name: str, claims: list[dict[str, Any]]) -> dict[str, Any]:
    requests, limits = {}, {}
    for resource in RESOURCES:
        value = amount(random, resource)
        share = 0.25 if resource.startswith("hugepages") else 0.7
        if random.random() < share:
            requests[resource] = value
            if resource.startswith("hugepages") or random.random() < 0.5:
                limits[resource] = value
        elif random.random() < share / 2 and not resource.startswith("hugepages"):
            limits[resource] = value
    used = [one["name"] for one in claims if random.random() < 0.6]
    resources: dict[str, Any] = {"requests": requests, "limits": limits}
    resources["claims"] = [{"name": one} for one in used]
    return {"name": name, "image": "none", "resources": {key: value for key, value in resources.items() if value}}
