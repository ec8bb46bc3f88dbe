"""Fresh questions about claims, wider than those of `inputs.small_claims`.

They have the form of the vectors' lines.

A cluster's hardware is drawn first: what drivers offer (whole devices, partitions of cards, shares
of links, CPUs), in how many pools and slices, under which names. Then what others hold of it, and
what a pod asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

STANDARD = "resource.kubernetes.io"
ROOT, NUMA, BUS = f"{STANDARD}/pcieRoot", f"{STANDARD}/numaNode", f"{STANDARD}/pciBusID"
DRIVERS = ("gpu.example.com", "dra.cpu", "dra.net", "tpu.example.org", "fpga.lab", "a.b")
# Gates that a question may set otherwise than by default, and how often. `settable` says which a
# release has.
GATES = {
    "DRAListTypeAttributes": (True, 0.2),
    "DRAPartitionableDevices": (False, 0.03),
    "DRADeviceTaints": (False, 0.03),
    "DRAConsumableCapacity": (False, 0.03),
    "DRADeviceBindingConditions": (False, 0.05),
    "DRAFractionalCapacityRange": (True, 0.4),
}
SHARE = "8b0d1c1e-94a7-4f0e-9c4c-{:012d}"


def cel(expression: str) -> dict[str, Any]:
    """Return a selector."""
    return {"cel": {"expression": expression}}


def drawn(random: Random, name: str) -> dict[str, Any]:
    """Return a question, for every release; see `settable` for its gates."""
    question = _Drawing(random).question(name)
    if random.random() < 0.4:
        _respell(random, question)

    return question


def _respell(random: Random, question: dict[str, Any]) -> None:
    """Give some names their driver's domain, or take it away, and some versions a build.

    Rarely a name is there in both forms, and a version is none.
    """
    drivers = [resource_slice["spec"]["driver"] for resource_slice in question["slices"]]
    for resource_slice in question["slices"]:
        for device in resource_slice["spec"].get("devices", ()):
            _respell_device(random, device, resource_slice["spec"]["driver"])

    requests = [
        request for claim in question["claims"] for request in claim["spec"]["devices"]["requests"]
    ]
    for request in requests:
        for way in request.get("firstAvailable", (request.get("exactly"),)):
            if "capacity" in way:
                amounts = way["capacity"]["requests"]
                driver = random.choice(drivers or DRIVERS)
                way["capacity"]["requests"] = _respelled(random, amounts, driver)

    for claim in question["allocated"]:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if result.get("consumedCapacity"):
                amounts = result["consumedCapacity"]
                result["consumedCapacity"] = _respelled(random, amounts, result["driver"])


def _respell_device(random: Random, device: dict[str, Any], driver: str) -> None:
    """Respell the names of a device's attributes and capacities, and its versions."""
    for key in ("attributes", "capacity"):
        if key in device:
            device[key] = _respelled(random, device[key], driver)

    for value in device.get("attributes", {}).values():
        if "version" in value and random.random() < 0.5:
            value["version"] += random.choice(("+one", "+two", "+a.b", ".1"))


def _respelled(random: Random, values: dict[str, Any], driver: str) -> dict[str, Any]:
    """Return values by name, with some names in their other form."""
    respelled = {}
    for name, value in values.items():
        other = name.removeprefix(f"{driver}/") if "/" in name else f"{driver}/{name}"
        chosen = random.choice((name, name, other))
        respelled[chosen] = value
        if random.random() < 0.03:
            respelled[other] = value

    return respelled


def settable(features: dict[str, bool], release: str) -> dict[str, bool]:
    """Return those of the gates that a scheduler of a release can be started with."""
    lost = {
        "1.36": {"DRAFractionalCapacityRange"},
        "1.37": {"DRADeviceTaints"},
        "1.38": {"DRADeviceTaints", "DRAPartitionableDevices", "DRADeviceBindingConditions"},
    }[release]
    if not features.get("DRAConsumableCapacity", True):
        if release == "1.38":
            # it is on by default there, and needs the other gate
            features = {**features, "DRAFractionalCapacityRange": False}
        else:
            lost = {*lost, "DRAFractionalCapacityRange"}

    return {name: value for name, value in features.items() if name not in lost}


def classes_of(case: dict[str, Any]) -> set[str]:
    """Return which kinds of things a question has in it."""
    requests = [
        request for claim in case["claims"] for request in claim["spec"]["devices"]["requests"]
    ]
    ways = [
        way
        for request in requests
        for way in request.get("firstAvailable", (request.get("exactly"),))
    ]
    devices = [
        device
        for resource_slice in case["slices"]
        for device in resource_slice["spec"].get("devices", ())
    ]
    constraints = [
        constraint
        for claim in case["claims"]
        for constraint in claim["spec"]["devices"].get("constraints", ())
    ]
    pools = {
        (resource_slice["spec"]["driver"], resource_slice["spec"]["pool"]["name"])
        for resource_slice in case["slices"]
    }
    specs = [manifest["spec"] for manifest in (*case["classes"], *case["claims"])]

    present = {
        "several pools": len(pools) > 1,
        "several slices a pool": len(case["slices"]) > len(pools),
        "slices by node selector": any(
            "nodeSelector" in resource_slice["spec"] for resource_slice in case["slices"]
        ),
        "devices by node selector": any(
            "perDeviceNodeSelection" in resource_slice["spec"] for resource_slice in case["slices"]
        ),
        "two generations": len(
            {str(resource_slice["spec"]["pool"]) for resource_slice in case["slices"]}
        )
        > len(pools),
        "shared counters": any(
            "sharedCounters" in resource_slice["spec"] for resource_slice in case["slices"]
        ),
        "shareable devices": any(device.get("allowMultipleAllocations") for device in devices),
        "request policies": any(
            "requestPolicy" in capacity
            for device in devices
            for capacity in _values(device, "capacity")
        ),
        "requests of capacity": any("capacity" in way for way in ways),
        "taints": any(device.get("taints") for device in devices),
        "tolerations": any(way.get("tolerations") for way in ways),
        "admin access": any(way.get("adminAccess") for way in ways),
        "firstAvailable": any("firstAvailable" in request for request in requests),
        "matchAttribute": any("matchAttribute" in constraint for constraint in constraints),
        "distinctAttribute": any("distinctAttribute" in constraint for constraint in constraints),
        "allocationMode All": any(way.get("allocationMode") == "All" for way in ways),
        "selectors": any(way.get("selectors") for way in ways),
        "lists of attributes": any(
            key.endswith("s")
            for device in devices
            for attribute in _values(device, "attributes")
            for key in attribute
        ),
        "config": any(
            spec.get("config") or spec.get("devices", {}).get("config") for spec in specs
        ),
        "several claims": len(case["claims"]) > 1,
        "claims that hold devices": any(
            claim["status"]["allocation"]["devices"]["results"] for claim in case["allocated"]
        ),
        "binding conditions": any(device.get("bindingConditions") for device in devices),
        "more than 32 devices": sum(way.get("count", 1) for way in ways) > 32,
        "gates off their defaults": bool(case["features"]),
    }
    return {kind for kind, is_there in present.items() if is_there}


def _values(device: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    yield from device.get(key, {}).values()


class _Drawing:
    """One question in the making."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.features = {
            name: value for name, (value, share) in GATES.items() if random.random() < share
        }
        self.has_lists = "DRAListTypeAttributes" in self.features
        self.node = random.choice(("node-a", "node-10", "worker.example.com", "n"))
        self.labels = {"zone": random.choice("abc"), "rack": str(random.randint(1, 12))}
        self.drivers = random.sample(DRIVERS, random.choice((1, 1, 2, 2, 3, 4)))
        self.is_single = (
            not {"DRAConsumableCapacity", "DRADeviceBindingConditions"} - self.features.keys()
        )
        if self.is_single:
            # without these gates an allocator may be chosen that tries pools in no order
            self.drivers = self.drivers[:1]

        # what a driver's devices may be told apart by, for selectors and constraints
        self.models = {
            driver: random.sample(("a100", "h100", "x", "B", "10"), random.randint(1, 3))
            for driver in DRIVERS
        }
        self.prefixed = {driver: random.random() < 0.2 for driver in DRIVERS}
        self.kinds = {
            driver: random.choice(
                ("whole", "whole", "cards", "cards", "links", "cpus", "mixed", "mixed")
            )
            for driver in DRIVERS
        }
        self.spread = random.randint(1, 4)
        # in half of them little stands in the way, so that much is found
        self.trouble = random.choice((0.1, 1))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def goes_wrong(self, share: float) -> bool:
        return self.chance(share * self.trouble)

    def question(self, name: str) -> dict[str, Any]:
        random = self.random
        slices: list[dict[str, Any]] = []
        for driver in self.drivers:
            for pool in self.pools():
                slices += self.slices(driver, pool)

        random.shuffle(slices)
        count = random.choice((1, 1, 1, 1, 1, 2, 2, 3) if self.trouble < 1 else (1, 1, 2, 3, 4))
        claims = [
            self.claim(f"{random.choice(('c', 'b', 'claim'))}-{number}") for number in range(count)
        ]
        return {
            "name": name,
            "features": self.features,
            "node": {"metadata": {"name": self.node, "labels": self.labels}},
            "slices": slices,
            "classes": self.classes(),
            "claims": claims,
            "allocated": self.holders(slices),
        }

    # --- what there is

    def pools(self) -> list[str]:
        further = [pool for pool in ("fabric", "node-9", "zone/b", "A") if self.chance(0.15)]
        if self.is_single:
            return [self.node]
        return [self.node, *further]

    def slices(self, driver: str, pool: str) -> list[dict[str, Any]]:
        """Return the slices of a pool.

        Its devices dealt out, its counters in slices of their own.
        """
        random = self.random
        sets, devices = self.devices(driver)
        parts = random.choice((1, 1, 2, 3))
        cuts = sorted(random.randint(0, len(devices)) for _ in range(parts - 1))
        dealt = [
            devices[start:end] for start, end in zip([0, *cuts], [*cuts, len(devices)], strict=True)
        ]
        tell: dict[str, Any] = {"generation": random.randint(1, 12)}
        tell["resourceSliceCount"] = parts + bool(sets)
        if self.goes_wrong(0.04):
            tell["resourceSliceCount"] += random.choice((-1, 1)) if parts > 1 else 1

        contents = [{"devices": share, **self.reach(pool, share)} for share in dealt]
        if sets:
            reach = {
                key: value
                for key, value in contents[0].items()
                if key not in ("devices", "perDeviceNodeSelection")
            }
            contents.append({"sharedCounters": sets, **(reach or {"allNodes": True})})

        if self.chance(0.08):
            # the driver has published anew, and an old slice is still there; or a new one is there
            # already
            odd = random.choice((-1, 1 if self.chance(0.3) else -1))
            older = [
                {**device, "name": f"old-{device['name']}"}
                for device in random.sample(devices, min(2, len(devices)))
            ]
            contents.append({"devices": older, **self.reach(pool, older), "odd": odd})

        names = random.sample(range(1000), len(contents))
        slices = []
        for number, content in zip(names, contents, strict=True):
            odd = content.pop("odd", 0)
            spec = {
                "driver": driver,
                "pool": {"name": pool, **tell, "generation": tell["generation"] + odd},
                **content,
            }
            slices.append(
                {"metadata": {"name": f"{random.choice('abz')}{number}-{driver}"}, "spec": spec}
            )

        return slices

    def reach(self, pool: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
        """Return for which nodes a slice is; the devices are told where each says so itself."""
        random = self.random
        if pool == self.node:
            return {"nodeName": pool}
        if pool == "node-9":
            return {"nodeName": random.choice((pool, self.node))}

        kind = random.choice(("all", "selector", "device"))
        if kind == "all":
            return {"allNodes": True}
        if kind == "selector":
            return {"nodeSelector": self.node_selector()}

        for device in devices:
            device.update(
                random.choice(
                    (
                        {"allNodes": True},
                        {"allNodes": True},
                        {"nodeName": self.node},
                        {"nodeName": "node-9"},
                        {"nodeSelector": self.node_selector()},
                    )
                )
            )

        return {"perDeviceNodeSelection": True}

    def node_selector(self) -> dict[str, Any]:
        random = self.random
        needs = random.choice(
            (
                {"key": "zone", "operator": "In", "values": random.sample("abc", 2)},
                {"key": "zone", "operator": "NotIn", "values": [random.choice("abc")]},
                {"key": "rack", "operator": "Gt", "values": ["2"]},
                {"key": "rack", "operator": "Lt", "values": ["11"]},
                {"key": "zone", "operator": "Exists"},
                {"key": "none", "operator": "DoesNotExist"},
            )
        )
        term: dict[str, Any] = {"matchExpressions": [needs]}
        if self.chance(0.2):
            term["matchFields"] = [
                {"key": "metadata.name", "operator": "In", "values": [self.node]}
            ]

        return {"nodeSelectorTerms": [term]}

    def devices(self, driver: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return counter sets and devices of a pool."""
        random, kind = self.random, self.kinds[driver]
        sets: list[dict[str, Any]] = []
        devices: list[dict[str, Any]] = []
        if kind in ("cards", "mixed"):
            for card in range(random.randint(1, 3)):
                own, parts = self.card(f"card-{card}", random.choice((2, 4)))
                sets += own
                devices += [
                    self.described(driver, part, random.randrange(self.spread)) for part in parts
                ]

        if kind in ("whole", "mixed"):
            prefix = random.choice(("gpu-", "d", "x"))
            most = 8
            if self.chance(0.05):
                most = 40

            devices += [
                self.described(driver, {"name": f"{prefix}{number}"}, number * self.spread // most)
                for number in random.sample(range(most), random.randint(1, most))
            ]

        if kind in ("links", "cpus"):
            for number in range(random.randint(1, 4)):
                device: dict[str, Any] = {
                    "name": f"{kind}{number}",
                    "capacity": self.capacities(kind),
                }
                if self.chance(0.85):
                    device["allowMultipleAllocations"] = True
                devices.append(self.described(driver, device, number % self.spread))

        if self.goes_wrong(0.03) and devices:
            devices.append(dict(random.choice(devices)))  # of one name twice: an invalid pool

        if self.goes_wrong(0.03) and sets:
            sets.pop()

        return sets, devices

    def card(self, name: str, slots: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the counters of a card, and the partitions that it may be cut into, as MIG's."""
        random = self.random
        counters = {f"slot-{slot}": {"value": "1"} for slot in range(slots)}
        counters["memory"] = {"value": f"{slots * 10 + random.choice((0, 0, -5))}Gi"}
        parts = []
        size = slots
        while size:
            for start in range(0, slots, size):
                used = {f"slot-{slot}": {"value": "1"} for slot in range(start, start + size)}
                used["memory"] = {"value": f"{size * 10 + random.choice((0, 0, 0, 1))}Gi"}
                uses = [{"counterSet": name, "counters": used}]
                part: dict[str, Any] = {"name": f"{name}-{size}g-{start}", "consumesCounters": uses}
                part["capacity"] = {"memory": {"value": f"{size * 10}Gi"}}
                if self.chance(0.05):
                    part["allowMultipleAllocations"] = True
                parts.append(part)

            size //= 2

        if self.chance(0.3):
            random.shuffle(parts)

        return [{"name": name, "counters": counters}], parts

    def capacities(self, kind: str) -> dict[str, Any]:
        random = self.random
        capacities = {}
        names = ("bandwidth", "dra.net/queues") if kind == "links" else ("dra.cpu/cpu", "memory")
        for name in names[: random.randint(1, 2)]:
            whole = random.choice((4, 8, 10, 64))
            capacity: dict[str, Any] = {"value": f"{whole}{random.choice(('', 'G', 'Gi', '000m'))}"}
            suffix = ""
            if capacity["value"][-1] in "Gi":
                suffix = capacity["value"].lstrip("0123456789")

            if self.chance(0.7):
                capacity["requestPolicy"] = self.policy(whole, suffix)
            capacities[name] = capacity
        return capacities

    def policy(self, whole: int, suffix: str) -> dict[str, Any]:
        random = self.random
        least = random.choice((1, 1, 2))
        default = f"{random.choice((least, least, whole))}{suffix}"
        if self.chance(0.35):
            values = sorted({least, 2 * least, whole // 2, whole})
            return {
                "default": f"{values[0]}{suffix}",
                "validValues": [f"{value}{suffix}" for value in values],
            }

        limits: dict[str, Any] = {"min": f"{least}{suffix}"}
        if self.chance(0.2) and not suffix:
            limits["min"] = default = random.choice(("500m", "100m", "1500m"))

        if self.chance(0.5):
            limits["max"] = f"{max(whole // random.choice((1, 2)), least)}{suffix}"

        if self.chance(0.6):
            limits["step"] = random.choice(
                (f"1{suffix}", f"2{suffix}", "500m" if not suffix else f"1{suffix}")
            )

        return {"validRange": limits} | ({"default": default} if self.chance(0.8) else {})

    def attributes(self, driver: str, place: int) -> dict[str, Any]:
        random = self.random

        def named(name: str) -> str:
            if self.prefixed[driver]:
                return f"{driver}/{name}"
            return name

        versions = ("1.2.3", "1.10.0", "2.0.0-rc1", "2.0.0")
        offered: tuple[tuple[float, str, dict[str, Any]], ...] = (
            (0.93, named("model"), {"string": random.choice(self.models[driver])}),
            (0.9, ROOT, {"string": f"pci{place:04x}:00"}),
            (0.9, NUMA, {"int": place // 2}),
            (0.3, BUS, {"string": f"0000:{random.randint(0, 255):02x}:00.0"}),
            (0.4, named("driverVersion"), {"version": random.choice(versions)}),
            (0.3, named("healthy"), {"bool": self.chance(0.7)}),
            (0.4, named("index"), {"int": random.randint(0, 7)}),
        )
        attributes = {name: value for share, name, value in offered if self.chance(share)}
        if self.has_lists and self.chance(0.6):
            attributes[NUMA] = {"ints": random.sample(range(4), random.randint(1, 3))}
            if self.chance(0.5):
                attributes[ROOT] = {
                    "strings": [f"pci000{at}:00" for at in random.sample(range(3), 2)]
                }
            if self.chance(0.3):
                attributes[named("driverVersion")] = {"versions": ["1.2.3", "2.0.0"]}

        return attributes

    def described(self, driver: str, device: dict[str, Any], place: int) -> dict[str, Any]:
        """Return a device with attributes, and perhaps taints and conditions."""
        random = self.random
        device = {**device, "attributes": self.attributes(driver, place)}
        if "capacity" not in device and self.chance(0.4):
            device["capacity"] = {"memory": {"value": random.choice(("16Gi", "40Gi", "80Gi"))}}

        if self.goes_wrong(0.12):
            device["taints"] = [self.taint() for _ in range(random.choice((1, 1, 2)))]

        if self.chance(0.04):
            device |= {
                "bindingConditions": ["example.com/ready"],
                "bindingFailureConditions": ["example.com/failed"],
            }

        if self.chance(0.05):
            device["bindsToNode"] = True

        return device

    def taint(self) -> dict[str, Any]:
        random = self.random
        effect = random.choice(("NoSchedule", "NoSchedule", "NoExecute", "None"))
        key = random.choice(("example.com/unhealthy", "example.com/reserved"))
        return {"key": key, "effect": effect} | (
            {"value": random.choice(("hot", "cold"))} if self.chance(0.5) else {}
        )

    def classes(self) -> list[dict[str, Any]]:
        classes = [
            {
                "metadata": {"name": driver},
                "spec": {"selectors": [cel(f"device.driver == '{driver}'")]},
            }
            for driver in DRIVERS
        ]
        classes.append({"metadata": {"name": "any"}, "spec": {}})
        own, domain = self.drivers[0], self.drivers[0]
        model = self.random.choice(self.models[own])
        chosen = [
            cel(f"device.driver == '{own}'"),
            cel(f"device.attributes['{domain}'].?model.orValue('') == '{model}'"),
        ]
        classes.append({"metadata": {"name": "chosen"}, "spec": {"selectors": chosen}})
        for device_class in classes:
            if self.chance(0.15):
                parameters = {"apiVersion": "example.com/v1", "kind": "Mode", "mode": "shared"}
                device_class["spec"]["config"] = [
                    {"opaque": {"driver": own, "parameters": parameters}}
                ]

        self.random.shuffle(classes)
        return classes

    # --- what is asked for

    def claim(self, name: str) -> dict[str, Any]:
        random = self.random
        requests = []
        for number in range(
            random.choice((1, 1, 1, 2, 2, 2) if self.trouble < 1 else (1, 1, 2, 3, 4))
        ):
            own = f"{random.choice(('r', 'gpu', 'a'))}{number}"
            if self.chance(0.25):
                ways = [{"name": f"w{way}", **self.way()} for way in range(random.randint(1, 4))]
                requests.append({"name": own, "firstAvailable": ways})
                continue

            exactly = self.way()
            if self.chance(0.08):
                exactly["adminAccess"] = self.chance(0.85)
            requests.append({"name": own, "exactly": exactly})

        devices: dict[str, Any] = {"requests": requests}
        constraints = [self.constraint(requests) for _ in range(random.choice((0, 0, 0, 1, 1, 2)))]
        if constraints:
            devices["constraints"] = constraints

        if self.chance(0.1):
            parameters = {"apiVersion": "example.com/v1", "kind": "Mode", "mode": "own"}
            devices["config"] = [
                {
                    "requests": [requests[0]["name"]],
                    "opaque": {"driver": self.drivers[0], "parameters": parameters},
                }
            ]

        return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}

    def constraint(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        random = self.random
        own = random.choice(self.drivers)
        rare = random.choice(("index", "driverVersion", "healthy"))
        names = (ROOT, ROOT, NUMA, NUMA, NUMA, f"{own}/model", f"{own}/model", f"{own}/{rare}")
        kind = "matchAttribute"
        if self.chance(0.3):
            kind = "distinctAttribute"

        constraint: dict[str, Any] = {kind: random.choice(names)}
        if self.chance(0.4):
            request_names = [request["name"] for request in requests]
            request_names += [
                f"{it['name']}/{way['name']}"
                for it in requests
                for way in it.get("firstAvailable", ())
            ]
            constraint["requests"] = random.sample(
                request_names, random.randint(1, len(request_names))
            )

        return constraint

    def way(self) -> dict[str, Any]:
        random = self.random
        driver = random.choice(self.drivers)
        request: dict[str, Any] = {
            "deviceClassName": random.choice((driver,) * 8 + ("any", "chosen"))
        }
        if self.goes_wrong(0.015):
            request["deviceClassName"] = "no-such-class"

        if self.chance(0.06):
            request["allocationMode"] = "All"
        elif self.chance(0.7):
            request["allocationMode"] = "ExactCount"
            request["count"] = random.choice((1, 1, 1, 1, 2, 3, 4)) if self.chance(0.3) else 1
            if self.goes_wrong(0.06):
                request["count"] = random.choice((6, 8, 20, 32, 33))

        if self.chance(0.25):
            request["selectors"] = [
                cel(self.expression(driver)) for _ in range(random.choice((1, 1, 1, 2)))
            ]

        if self.chance(0.2):
            request["tolerations"] = [self.toleration() for _ in range(random.choice((1, 1, 2)))]

        is_shared = self.kinds[driver] in ("links", "cpus")
        if self.chance(0.6 if is_shared else 0.05 * self.trouble):
            request["capacity"] = {"requests": self.amounts(driver)}

        return request

    def amounts(self, driver: str) -> dict[str, str]:
        random = self.random
        names = {"links": ("bandwidth", "dra.net/queues"), "cpus": ("dra.cpu/cpu", "memory")}
        capacity_names = names.get(self.kinds[driver], ("memory", "memory"))
        if self.goes_wrong(0.08):
            capacity_names = ("bandwidth", "none")
        chosen = capacity_names[:1] if self.chance(0.8) else capacity_names
        units = ("", "00m") if self.trouble < 1 else ("", "G", "Gi", "000m", "00m")
        return {
            name: f"{random.choice((1, 1, 2, 3, 4, 5, 8))}{random.choice(units)}" for name in chosen
        }

    def toleration(self) -> dict[str, Any]:
        random = self.random
        key = random.choice(("example.com/unhealthy", "example.com/reserved"))
        toleration = random.choice(
            (
                {"operator": "Exists"},
                {"key": key, "operator": "Exists"},
                {"key": key, "operator": "Equal", "value": "hot"},
                {"key": key, "value": "cold"},
                {"key": key},
            )
        )
        effect = {}
        if self.chance(0.3):
            effect = {"effect": random.choice(("NoSchedule", "NoExecute"))}

        return {**toleration, **effect}

    def expression(self, driver: str) -> str:
        random = self.random
        own = f'device.attributes["{driver}"]'
        everybody = f'device.attributes["{STANDARD}"]'
        capacity = f'device.capacity["{driver}"]'
        model = random.choice((*self.models[driver], "none"))
        text = random.choice(
            (
                f'{own}.model == "{model}"',
                f'{own}.?model.orValue("") in ["{model}", "x"]',
                f'has({own}.model) && {own}.model.startsWith("{model[0]}")',
                f'{own}.?model.orValue("A").lowerAscii().matches("^[a-z0-9]+$")',
                f"{own}.?index.orValue(3) % 2 == {random.randint(0, 1)}",
                f"has({own}.index) ? {own}.index > {random.randint(0, 5)} : false",
                f"{own}.?healthy.orValue(true)",
                f'{own}.?driverVersion.orValue(semver("0.0.1")).isGreaterThan(semver("1.9.0"))',
                f"{everybody}.?numaNode.orValue(9) == {random.randint(0, 1)}",
                f'{everybody}.?pcieRoot.orValue("") != "pci000{random.randint(0, 3)}:00"',
                f'has({everybody}.pciBusID) && {everybody}.pciBusID.split(":")[1] > "7f"',
                f'cel.bind(a, {own}, "model" in a && a.model == "{model}")',
                f'{own}.exists(name, name == "model")',
                f'has({capacity}.memory) && {capacity}.memory.compareTo(quantity("20Gi")) >= 0',
                f'{capacity}.?memory.orValue(quantity("1Gi")).isLessThan(quantity("40Gi"))',
                f'"memory" in {capacity}',
                f'device.driver == "{driver}" || device.driver.endsWith(".net")',
                "device.allowMultipleAllocations",
                "!device.allowMultipleAllocations",
                "device.allowMultipleAllocations == false || true",
            )
        )
        if self.has_lists and self.chance(0.3):
            text = f"{everybody}.numaNode.includes({random.randint(0, 3)})"

        if self.goes_wrong(0.1):
            failing = (
                "device.none",
                "1 / 0 == 1",
                "device.driver",
                f"{own}.absent == 1",
                f"{own}.healthy",
            )
            others = (
                f"{everybody}.numaNode <= 1",
                f'{capacity}.memory.isGreaterThan(quantity("10Gi"))',
            )
            text = random.choice((*failing, *others))

        return text

    # --- what others hold

    def holders(self, slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
        random = self.random
        share = random.choice((0, 0.03, 0.1, 0.2)) * (self.trouble**0.5)
        results_by_claim: list[list[dict[str, Any]]] = [[] for _ in range(random.randint(1, 3))]
        number = 0
        for resource_slice in slices:
            for device in resource_slice["spec"].get("devices", ()):
                while self.chance(share):
                    number += 1
                    place = {
                        "driver": resource_slice["spec"]["driver"],
                        "pool": resource_slice["spec"]["pool"]["name"],
                    }
                    result: dict[str, Any] = {"request": "r", **place, "device": device["name"]}
                    is_shareable = device.get("allowMultipleAllocations") and self.chance(0.95)
                    if is_shareable:
                        result["shareID"] = SHARE.format(number)
                        taken = {
                            name: random.choice(("1", "2", "1Gi", "2G", "1500m", "4"))
                            for name in device.get("capacity", {})
                        }
                        if taken and self.chance(0.9):
                            result["consumedCapacity"] = taken
                    elif self.chance(0.1):
                        result["adminAccess"] = True

                    random.choice(results_by_claim).append(result)
                    if not is_shareable:
                        break

        if self.chance(0.05):
            results_by_claim[0].append(
                {"request": "r", "driver": self.drivers[0], "pool": "gone", "device": "gone"}
            )

        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}}
        return [
            {
                "metadata": {"name": f"held-{at}", "namespace": "default"},
                "spec": spec,
                "status": {"allocation": {"devices": {"results": results}}},
            }
            for at, results in enumerate(results_by_claim)
        ]
