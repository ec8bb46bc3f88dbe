"""Random questions about devices of counter sets that have to go together.

They have the form of the vectors' lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

NODE = "node-a"
DRIVER = "gpu.example.com"
GROUPS = ("a", "b", "c")
SETS = ("s0", "s1")


def scenario(random: Random, name: str, release: str) -> dict[str, Any]:
    """Return one, with the gate on."""
    density = random.choice((0.2, 0.5, 0.9))
    counters = {"memory": {"value": str(random.choice((4, 8, 100)))}}
    specs = [{"sharedCounters": [{"name": name, "counters": counters} for name in SETS]}]
    for part in range(random.randint(1, 2)):
        devices = [
            _device(random, f"d{part}{number}", density) for number in range(random.randint(2, 6))
        ]
        specs.append({"devices": devices})

    slices = [
        {
            "metadata": {"name": f"slice-{number}"},
            "spec": {
                "driver": DRIVER,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": len(specs)},
                "nodeName": NODE,
                **spec,
            },
        }
        for number, spec in enumerate(specs)
    ]
    devices = [device for spec in specs for device in spec.get("devices", ())]
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    features = {"DRADeviceCompatibilityGroups": True}
    if random.random() < 0.2:
        features["DRAListTypeAttributes"] = True

    return {
        "name": name,
        "release": release,
        "features": features,
        "node": {"metadata": {"name": NODE, "labels": {}}},
        "slices": slices,
        "classes": [{"metadata": {"name": DRIVER}, "spec": {"selectors": selectors}}],
        "claims": [_claim(random, number) for number in range(random.choice((1, 1, 2)))],
        "allocated": _holding(random, devices),
    }


def _device(random: Random, name: str, density: float) -> dict[str, Any]:
    device: dict[str, Any] = {
        "name": name,
        "attributes": {"model": {"string": random.choice("xy")}},
    }
    uses = []
    for counter_set in random.sample(SETS, random.choice((0, 1, 1, 1, 2))):
        use: dict[str, Any] = {
            "counterSet": counter_set,
            "counters": {"memory": {"value": str(random.choice((1, 1, 2)))}},
        }
        groups = [group for group in GROUPS if random.random() < density]
        if groups:
            use["compatibilityGroups"] = groups
        uses.append(use)

    if uses:
        device["consumesCounters"] = uses
    if random.random() < 0.15:
        device["allowMultipleAllocations"] = True
        device["capacity"] = {"share": {"value": "4", "requestPolicy": {"default": "1"}}}

    return device


def _claim(random: Random, number: int) -> dict[str, Any]:
    requests = []
    for place in range(random.randint(1, 2)):
        way: dict[str, Any] = {"deviceClassName": DRIVER, "allocationMode": "ExactCount"}
        way["count"] = random.choice((1, 1, 2, 3))
        if random.random() < 0.4:
            model = random.choice("xy")
            expression = f'device.attributes["{DRIVER}"].model == "{model}"'
            way["selectors"] = [{"cel": {"expression": expression}}]
        if random.random() < 0.1:
            del way["count"]
            way["allocationMode"] = "All"

        request = {"name": f"r{place}", "exactly": way}
        if random.random() < 0.2:
            other = {
                "name": "other",
                "deviceClassName": DRIVER,
                "allocationMode": "ExactCount",
                "count": 1,
            }
            request = {"name": f"r{place}", "firstAvailable": [{**way, "name": "first"}, other]}

        requests.append(request)

    return {
        "metadata": {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"},
        "spec": {"devices": {"requests": requests}},
    }


def _holding(random: Random, devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return claims that hold some devices, or shares of them."""
    claims = []
    for device in devices:
        if random.random() > 0.12:
            continue

        result: dict[str, Any] = {
            "request": "r",
            "driver": DRIVER,
            "pool": NODE,
            "device": device["name"],
        }
        if device.get("allowMultipleAllocations"):
            result["shareID"] = "8b0d1c1e-94a7-4f0e-9c4c-000000000001"
            result["consumedCapacity"] = {"share": "1"}

        claims.append(
            {
                "metadata": {
                    "name": f"h-{device['name']}",
                    "namespace": "default",
                    "uid": device["name"],
                },
                "spec": {"devices": {"requests": []}},
                "status": {"allocation": {"devices": {"results": [result]}}},
            }
        )

    return claims
