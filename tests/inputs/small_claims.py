"""Random questions about claims, small enough for a walk without shortcuts.

They have the form of the vectors' lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

NODE = "node-a"
DRIVERS = ("gpu.example.com", "nic.example.com", "dra.cpu")
ROOT, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"
SELECTORS = (
    'device.attributes["{driver}"].model == "a"',
    'device.attributes["{driver}"].?model.orValue("z") in ["a", "b"]',
    'device.attributes["resource.kubernetes.io"].numaNode == 0',
    (
        'has(device.attributes["resource.kubernetes.io"].numaNode)'
        ' && device.attributes["resource.kubernetes.io"].numaNode != 1'
    ),
    'device.attributes["{driver}"].version.isGreaterThan(semver("1.5.0"))',
    'device.capacity["{driver}"].memory.compareTo(quantity("8Gi")) >= 0',
    '"memory" in device.capacity["{driver}"]',
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    'device.attributes["{driver}"].absent == 1',
    "device.absent",
    "true",
    "false",
)

DRIVER = "gpu.example.com"
GROUP = "resource.k8s.io/v1"


def scenario(random: Random, name: str, *, release: str = "1.37") -> dict[str, Any]:
    """Return one question."""
    features: dict[str, bool] = {}
    lists = random.random() < 0.2
    if lists:
        features["DRAListTypeAttributes"] = True

    for gate in (
        "DRAPartitionableDevices",
        "DRADeviceTaints",
        "DRAConsumableCapacity",
        "DRAPrioritizedList",
        "DRAAdminAccess",
    ):
        if random.random() < 0.02:
            features[gate] = False

    drivers = random.sample(DRIVERS, random.randint(1, 3))
    if release == "1.35":
        # nobody can say in which order that release tries two pools
        drivers = drivers[:1]

    slices: list[dict[str, Any]] = []
    for driver in drivers:
        slices += pool(random, driver, NODE, lists=lists, plain=release == "1.35")
        if random.random() < 0.2 and release != "1.35":
            slices += pool(
                random, driver, random.choice(("node-b", "fabric")), lists=lists, plain=False
            )

    return {
        "name": name,
        "release": release,
        "features": features if release != "1.35" else {},
        "node": {"metadata": {"name": NODE, "labels": {"zone": "a"}}},
        "slices": slices,
        "classes": [
            *(
                {
                    "metadata": {"name": driver},
                    "spec": {"selectors": [_cel(f'device.driver == "{driver}"')]},
                }
                for driver in DRIVERS
            ),
            {"metadata": {"name": "any"}, "spec": {}},
        ],
        "claims": [
            claim(random, number, drivers, plain=release == "1.35")
            for number in range(random.choice((1, 1, 2, 3)))
        ],
        "allocated": holding_claims(random, slices),
    }


def _cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


def pool(
    random: Random, driver: str, name: str, *, lists: bool, plain: bool
) -> list[dict[str, Any]]:
    """Return the slices of a pool."""
    counters = ("x", "y")[: random.randint(1, 2)] if random.random() < 0.25 and not plain else ()
    count = random.randint(1, 2)
    shape = random.randint(0, 2)
    slices = []
    for number in range(count):
        spec: dict[str, Any] = {
            "driver": driver,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": count + bool(counters)},
            "devices": [
                device(random, f"d{number}{index}", driver, counters, lists, shape)
                for index in range(random.randint(2, 5))
            ],
        }
        if plain or name in (NODE, "node-b"):
            spec["nodeName"] = name
        elif random.random() < 0.4:
            spec["allNodes"] = True
        elif random.random() < 0.5:
            spec["nodeSelector"] = _zone(random)
        else:
            spec["perDeviceNodeSelection"] = True
            for device_ in spec["devices"]:
                device_.update(
                    random.choice(
                        (
                            {"nodeName": NODE},
                            {"nodeName": "node-b"},
                            {"allNodes": True},
                            {"nodeSelector": _zone(random)},
                        )
                    )
                )

        if random.random() < 0.03 and not plain:
            spec["pool"]["resourceSliceCount"] += 1
        if random.random() < 0.03 and not plain:
            spec["pool"]["generation"] = 2
        slices.append(
            {
                "metadata": {"name": f"{driver}-{name}-{random.randint(0, 99)}-{number}"},
                "spec": spec,
            }
        )

    if counters:
        shared = [
            {
                "name": counter,
                "counters": {
                    key: {"value": str(random.randint(0, 9))} for key in ("slices", "memory")
                },
            }
            for counter in counters
        ]
        spec = {"driver": driver, "pool": dict(slices[0]["spec"]["pool"]), "sharedCounters": shared}
        spec |= {
            key: value
            for key, value in slices[0]["spec"].items()
            if key in ("nodeName", "allNodes", "nodeSelector")
        }
        if "perDeviceNodeSelection" in slices[0]["spec"]:
            spec["allNodes"] = True
        slices.append({"metadata": {"name": f"{driver}-{name}-counters"}, "spec": spec})

    random.shuffle(slices)
    return slices


def _zone(random: Random) -> dict[str, Any]:
    operator = random.choice(("In", "NotIn", "Exists"))
    values = {} if operator == "Exists" else {"values": [random.choice("ab")]}
    return {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": operator, **values}]}
        ]
    }


def device(
    random: Random, name: str, driver: str, counters: tuple[str, ...], lists: bool, shape: int
) -> dict[str, Any]:
    """Return a device; those of one shape are often alike."""
    described: dict[str, Any] = {"name": name}
    attributes: dict[str, Any] = {}
    if random.random() < 0.9:
        attributes["model" if random.random() < 0.8 else f"{driver}/model"] = {
            "string": random.choice("ab")
        }

    if random.random() < 0.9:
        if lists and random.random() < 0.5:
            attributes[NUMA] = {"ints": random.sample(range(3), random.randint(1, 3))}
        else:
            attributes[NUMA] = {"int": random.randint(0, 1 + shape)}

    if random.random() < 0.8:
        attributes[ROOT] = {"string": f"pci{random.randint(0, 1 + shape)}"}

    if random.random() < 0.3:
        attributes["version"] = {"version": random.choice(("1.2.3", "2.0.0"))}

    described["attributes"] = attributes
    if random.random() < 0.3:
        described["capacity"] = {"memory": memory(random)}

    if random.random() < 0.3:
        described["allowMultipleAllocations"] = True

    if random.random() < 0.1:
        described["taints"] = [
            {"key": "bad", "effect": random.choice(("NoSchedule", "NoExecute", "None"))}
        ]

    if counters and random.random() < 0.8:
        described["consumesCounters"] = [
            {
                "counterSet": random.choice(counters),
                "counters": {
                    key: {"value": str(random.randint(0, 4))}
                    for key in random.choice((("slices",), ("slices", "memory")))
                },
            }
        ]

    return described


def memory(random: Random) -> dict[str, Any]:
    """Return a capacity, often with a policy."""
    policies = (
        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
        {"default": "2Gi", "validValues": ["2Gi", "4Gi"]},
        {"default": "1Gi", "validRange": {"min": "1Gi", "max": "3Gi"}},
    )
    policy = {}
    if random.random() < 0.5:
        policy = {"requestPolicy": random.choice(policies)}

    return {"value": random.choice(("4Gi", "8Gi", "16Gi")), **policy}


def claim(random: Random, number: int, drivers: list[str], *, plain: bool) -> dict[str, Any]:
    """Return a claim."""
    requests = []
    for index in range(random.choice((1, 1, 2, 2, 3))):
        if random.random() < 0.25:
            ways = [
                {"name": f"w{way}", **device_request(random, drivers, plain=plain)}
                for way in range(random.randint(1, 3))
            ]
            requests.append({"name": f"r{index}", "firstAvailable": ways})
        else:
            exactly = device_request(random, drivers, plain=plain)
            if random.random() < 0.05:
                exactly["adminAccess"] = True
            requests.append({"name": f"r{index}", "exactly": exactly})

    devices: dict[str, Any] = {"requests": requests}
    constraints = []
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        kind = "matchAttribute"
        if random.random() < 0.3 and not plain:
            kind = "distinctAttribute"

        constraint: dict[str, Any] = {kind: random.choice((ROOT, NUMA, f"{drivers[0]}/model"))}
        if random.random() < 0.4:
            names = [request["name"] for request in requests]
            names += [
                f"{request['name']}/w0" for request in requests if "firstAvailable" in request
            ]
            constraint["requests"] = random.sample(names, random.randint(1, len(names)))

        constraints.append(constraint)

    if constraints:
        devices["constraints"] = constraints

    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default"},
        "spec": {"devices": devices},
    }


def device_request(random: Random, drivers: list[str], *, plain: bool) -> dict[str, Any]:
    """Return what a request asks for."""
    driver = random.choice(drivers)
    request: dict[str, Any] = {"deviceClassName": driver if random.random() < 0.8 else "any"}
    if random.random() < 0.1:
        request["allocationMode"] = "All"
    else:
        request["count"] = random.choice(
            (1, 1, 1, 1, 1, 2, 2, 3, 12 if random.random() < 0.1 else 1)
        )

    if random.random() < 0.2:
        request["selectors"] = [_cel(random.choice(SELECTORS).replace("{driver}", driver))]

    if random.random() < 0.15:
        request["tolerations"] = [{"key": "bad", "operator": "Exists"}]

    if random.random() < 0.15 and not plain:
        request["capacity"] = {
            "requests": {"memory": random.choice(("1Gi", "1536Mi", "3Gi", "6Gi"))}
        }

    return request


def holding_claims(random: Random, slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a claim that has some of the devices."""
    results = []
    for resource_slice in slices:
        for device_ in resource_slice["spec"].get("devices", ()):
            if random.random() < 0.07:
                result = {
                    "request": "r",
                    "driver": resource_slice["spec"]["driver"],
                    "pool": resource_slice["spec"]["pool"]["name"],
                    "device": device_["name"],
                }
                if device_.get("allowMultipleAllocations"):
                    result["shareID"] = "7cf3f1a2-6b0f-4f53-9f5e-1c2d3e4f5a6b"
                    if random.random() < 0.8 and "capacity" in device_:
                        result["consumedCapacity"] = {"memory": random.choice(("1Gi", "2Gi"))}
                elif random.random() < 0.1:
                    result["adminAccess"] = True

                results.append(result)

    return [
        {
            "metadata": {"name": "held", "namespace": "default"},
            "spec": {
                "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}
            },
            "status": {"allocation": {"devices": {"results": results}}},
        }
    ]


def slice_of(
    nodes: Sequence[int | None], *, node: str = "n", driver: str = DRIVER
) -> dict[str, Any]:
    """Return a slice with a device near each of these NUMA nodes; None: it does not say."""
    return {
        "kind": "ResourceSlice",
        "apiVersion": GROUP,
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"d{place}", "attributes": {} if numa is None else {NUMA: {"int": numa}}}
                for place, numa in enumerate(nodes)
            ],
        },
    }


def class_of(driver: str = DRIVER) -> dict[str, Any]:
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {
        "kind": "DeviceClass",
        "apiVersion": GROUP,
        "metadata": {"name": driver},
        "spec": {"selectors": [selector]},
    }


def template(count: int = 1, *drivers: str, name: str = "t", **exactly: Any) -> dict[str, Any]:
    requests = [
        {
            "name": driver.partition(".")[0],
            "exactly": {"deviceClassName": driver, "count": count, **exactly},
        }
        for driver in drivers or (DRIVER,)
    ]

    spec = {"spec": {"devices": {"requests": requests}}}
    metadata = {"name": name, "namespace": "default"}
    return {
        "kind": "ResourceClaimTemplate",
        "apiVersion": GROUP,
        "metadata": metadata,
        "spec": spec,
    }


def claim_named(name: str) -> dict[str, Any]:
    manifest = template(name=name)
    return {**manifest, "kind": "ResourceClaim", "spec": manifest["spec"]["spec"]}
