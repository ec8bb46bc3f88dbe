"""Random pods that ask for extended resources which classes of devices serve.

Each scenario is a node with its device plugins and its ResourceSlices, classes, claims, and pods in
their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

GROUP = "resource.k8s.io/v1"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
MODELS = ("a", "b")


def scenario(random: Random, name: str) -> dict[str, Any]:
    """Return one; all of its names begin with its own."""
    drivers = [f"{kind}.{name}.example.com" for kind in ("gpu", "nic")[: random.randint(1, 2)]]
    classes = []
    served = []
    for number in range(random.randint(1, 4)):
        driver = random.choice(drivers)
        expression = f'device.driver == "{driver}"'
        if random.random() < 0.4:
            expression += f' && device.attributes["{driver}"].model == "{random.choice(MODELS)}"'

        class_name = f"{name}-{random.choice('abcxyz')}{number}"
        spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
        if random.random() < 0.7:
            spec["extendedResourceName"] = (
                f"{random.choice(('', 'x.'))}{name}.example.com/r{number}"
            )
            served.append(spec["extendedResourceName"])
        if random.random() < 0.5:
            served.append(f"{IMPLICIT}{class_name}")

        classes.append(_object("DeviceClass", class_name, spec))

    if random.random() < 0.3 and any("extendedResourceName" in kind["spec"] for kind in classes):
        # two classes serve one resource; which of their own names counts is left open
        first = random.choice([kind for kind in classes if "extendedResourceName" in kind["spec"]])
        second_name = f"{name}-{random.choice('abcxyz')}-second"
        selectors = [{"cel": {"expression": f'device.driver == "{random.choice(drivers)}"'}}]
        shared_name = first["spec"]["extendedResourceName"]
        second = {"selectors": selectors, "extendedResourceName": shared_name}
        classes.append(_object("DeviceClass", second_name, second))
        taken = f"{IMPLICIT}{first['metadata']['name']}"
        served = [resource for resource in served if resource != taken]
        random.shuffle(classes)

    plugins = {f"{name}.example.com/plugin": random.randint(1, 4)}
    for resource in served:
        if resource.startswith(IMPLICIT):
            continue
        if random.random() < 0.25:
            plugins[resource] = random.choice((0, 0, 1, 2, 4))

    claims = []
    if random.random() < 0.25:
        exactly = {"deviceClassName": random.choice(classes)["metadata"]["name"]}
        requests = [{"name": "r", "exactly": exactly}]
        claims.append(
            _object("ResourceClaim", f"{name}-claim", {"devices": {"requests": requests}})
        )

    resources = [*served, *random.sample(sorted(plugins), 1)]
    return {
        "name": name,
        "release": "1.37",
        "node": {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": {
                    "cpu": "64",
                    "memory": "64Gi",
                    "pods": "110",
                    "ephemeral-storage": "64Gi",
                    **{resource: str(count) for resource, count in plugins.items()},
                },
            },
        },
        "slices": [_slice(random, name, driver) for driver in drivers],
        "classes": classes,
        "claims": claims,
        "pods": [
            _pod(random, f"{name}-{number}", name, resources, claims)
            for number in range(random.randint(2, 4))
        ],
    }


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _slice(random: Random, node: str, driver: str) -> dict[str, Any]:
    devices: list[dict[str, Any]] = []
    for number in range(random.choice((4, 8, 12, 16, 40))):
        device: dict[str, Any] = {
            "name": f"d{number}",
            "attributes": {"model": {"string": random.choice(MODELS)}},
        }
        if random.random() < 0.1:
            device["allowMultipleAllocations"] = True
            device["capacity"] = {"memory": {"value": "8Gi"}}

        devices.append(device)

    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    return _object("ResourceSlice", f"{node}-{driver}", spec)


def _pod(
    random: Random, name: str, node: str, resources: list[str], claims: list[dict[str, Any]]
) -> dict[str, Any]:
    density = random.choice((0.1, 0.2, 0.4))
    containers = [_container(random, f"c{number}", resources, density) for number in range(11)]
    init_count = random.choice((0, 0, 1, 2, 3, 8))
    init_containers = containers[:init_count]
    for container in init_containers:
        if random.random() < 0.3:
            container["restartPolicy"] = "Always"

    spec: dict[str, Any] = {
        "initContainers": init_containers,
        "containers": containers[init_count : init_count + random.randint(1, 3)],
        "nodeSelector": {"kubernetes.io/hostname": node},
    }
    if claims and random.random() < 0.5:
        claim_name = claims[0]["metadata"]["name"]
        spec["resourceClaims"] = [{"name": "own", "resourceClaimName": claim_name}]
        user = random.choice(spec["containers"])
        user["resources"]["claims"] = [{"name": "own"}]

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _container(random: Random, name: str, resources: list[str], density: float) -> dict[str, Any]:
    limits: dict[str, str] = {}
    for resource in resources:
        if random.random() < density:
            limits[resource] = str(random.choice((0, 1, 1, 1, 1, 2, 2, 3)))
            if random.random() < 0.01:
                limits[resource] = "20"  # two of these are more than a claim may have

    requests: dict[str, str] = {}
    for resource, amount in (("cpu", "100m"), ("memory", "1Mi"), ("ephemeral-storage", "1Mi")):
        if random.random() < 0.3:
            random.choice((limits, requests))[resource] = amount

    return {"name": name, "image": "none", "resources": {"limits": limits, "requests": requests}}
