"""Random scenarios of `scenarios.py`, each changed in one way that a release may decide anew.

What is changed is the scenario's theme. A new option or field that decides something is a new
theme: a line of CHANGES.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from rig.scenarios import CPU_OPTIONS, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

Case = dict[str, Any]
Change = Callable[[Case, Random], None]


def fresh(seed: int, count: int) -> Iterator[tuple[str, Case]]:
    """Yield random scenarios, each with its theme."""
    for number in range(seed, seed + count):
        case, rng = scenario(number), Random(number)
        theme, change = rng.choice(CHANGES)
        change(case, rng)
        yield theme, case


def _as_it_is(_case: Case, _rng: Random) -> None:
    """Change nothing."""


# --- of the kubelet


def _static(case: Case) -> dict[str, Any]:
    """Set the static CPU policy, and return the kubelet's configuration."""
    kubelet: dict[str, Any] = case["kubelet"]
    kubelet["cpuManagerPolicy"] = "static"
    if not kubelet["reservedSystemCPUs"]:
        kubelet["reservedSystemCPUs"] = str(_cores(case)[0]["cpus"][0])
    return kubelet


def _options(*names: str) -> Change:
    """Return a change that sets these options of the static CPU policy."""

    def change(case: Case, rng: Random) -> None:
        kubelet = _static(case)
        kubelet["cpuManagerPolicyOptions"] = dict.fromkeys(names, "true")
        if "align-by-socket" in names:
            kubelet["topologyManagerPolicy"] = rng.choice(["none", "best-effort", "restricted"])

    return change


def _several_options(case: Case, rng: Random) -> None:
    """Set several options; a kubelet does not start with some of them together."""
    _options(*rng.sample(CPU_OPTIONS, rng.choice([2, 2, 3])))(case, rng)


def _wide_pods(case: Case, rng: Random) -> None:
    """Distribute CPUs for containers that fit several NUMA nodes, or only several of them."""
    _options("distribute-cpus-across-numa")(case, rng)
    case["kubelet"]["topologyManagerPolicy"] = rng.choice(["best-effort", "restricted"])
    _widen(case, rng)


# --- of pods


def _pods(case: Case) -> list[dict[str, Any]]:
    return [step["admit"] for step in case["steps"] if "admit" in step]


def _containers(case: Case) -> list[dict[str, Any]]:
    """Return the containers of all pods, those that ask for nothing left out."""
    return [
        container
        for pod in _pods(case)
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
        if container.get("resources")
    ]


def _set(container: dict[str, Any], resource: str, amount: str) -> None:
    for amounts in container["resources"].values():
        amounts[resource] = amount


def _widen(case: Case, rng: Random) -> None:
    """Let containers ask for up to all CPUs of one NUMA node, of several, or of all."""
    nodes = case["machine"]["numaNodes"]
    of_node = len([cpu for core in nodes[0]["cores"] for cpu in core["cpus"]])
    for container in _containers(case):
        _set(container, "cpu", str(rng.randint(1, of_node * rng.randint(1, len(nodes)))))


def _empty_resources(case: Case, rng: Random) -> None:
    """Give pods resources as a whole that have no entry."""
    for pod in _pods(case):
        pod["spec"]["resources"] = rng.choice([{}, {"requests": {}}, {"limits": {}}])


def _whole_resources(*, managed: bool) -> Change:
    """Return a change that gives pods resources as a whole, perhaps with managers of these."""

    def change(case: Case, rng: Random) -> None:
        if managed:
            case["kubelet"]["featureGates"] = {
                "PodLevelResourceManagers": True,
                "CPUManagerPolicyAlphaOptions": True,
            }

        # an API server would fill them in for the pod as a whole, and nobody does so here
        for container in _containers(case):
            for amounts in container["resources"].values():
                for name in [name for name in amounts if name.startswith("hugepages-")]:
                    del amounts[name]

        for pod in _pods(case):
            cpus, mebibytes = 0.0, 0
            for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
                limits = (container.get("resources") or {}).get("limits") or {}
                cpus += _cpus_of(limits.get("cpu", "0"))
                mebibytes += _mebibytes_of(limits.get("memory", "0Mi"))
                if rng.random() < 0.4:
                    container["resources"] = {}

            amounts = {
                "cpu": str(-(-int(cpus * 2) // 2) + rng.choice([0, 1, 2])),
                "memory": f"{mebibytes + 256}Mi",
            }
            pod["spec"]["resources"] = {"limits": amounts, "requests": dict(amounts)}

    return change


def _cpus_of(amount: str) -> float:
    return int(amount[:-1]) / 1000 if amount.endswith("m") else int(amount)


def _mebibytes_of(amount: str) -> int:
    return int(amount[:-2]) * {"Gi": 1024, "Mi": 1}[amount[-2:]]


def _init_only(case: Case, rng: Random) -> None:
    """Let init containers ask for hugepages that no other container asks for."""
    case["kubelet"].update(memoryManagerPolicy="Static", topologyManagerScope="pod")
    case["kubelet"].setdefault("reservedMemory", [{"numaNode": 0, "limits": {"memory": "512Mi"}}])
    if case["machine"]["numaNodes"][0]["id"] != 0:
        case["kubelet"]["reservedMemory"][0]["numaNode"] = case["machine"]["numaNodes"][0]["id"]

    sizes = {"2Mi": ("64Mi", 512), "1Gi": ("1Gi", 2)}
    size = rng.choice(sorted(sizes))
    for node in case["machine"]["numaNodes"]:
        node["memory"] += 4 << 30
        node["hugepages"] = {size: sizes[size][1] * rng.choice([0, 1, 1, 2])}

    for container in _containers(case):
        for amounts in container["resources"].values():
            for name in [name for name in amounts if name.startswith("hugepages-")]:
                del amounts[name]

    for pod in _pods(case):
        init = {
            "name": "only",
            "image": "x",
            "resources": {
                kind: {"cpu": "1", "memory": "64Mi", f"hugepages-{size}": sizes[size][0]}
                for kind in ("limits", "requests")
            },
        }
        pod["spec"].setdefault("initContainers", []).insert(0, init)


# --- of machines


def _cores(case: Case) -> list[dict[str, Any]]:
    return [core for node in case["machine"]["numaNodes"] for core in node["cores"]]


def _reserved(case: Case, rng: Random) -> set[int]:
    """Set the static CPU policy with one option at most, and return the CPUs that are reserved."""
    kubelet = _static(case)
    options = rng.sample(CPU_OPTIONS, rng.choice([0, 1]))
    kubelet["cpuManagerPolicyOptions"] = dict.fromkeys(options, "true")
    return set(map(int, kubelet["reservedSystemCPUs"].split(",")))


def _cores_of_unequal_size(case: Case, rng: Random) -> None:
    """Take CPUs that are not reserved offline, and whole cores with them."""
    reserved = _reserved(case, rng)
    share = rng.choice([0.1, 0.3, 0.5])
    for node in case["machine"]["numaNodes"]:
        for core in node["cores"]:
            core["cpus"] = [
                cpu for cpu in core["cpus"] if cpu in reserved or rng.random() >= share
            ] or core["cpus"]


def _sockets_of_unequal_size(case: Case, rng: Random) -> None:
    """Give each NUMA node a socket, in their order, or take cores of some sockets away."""
    reserved = _reserved(case, rng)
    _widen(case, rng)
    nodes, socket = case["machine"]["numaNodes"], 0
    for node in nodes:
        if node is not nodes[0] and rng.random() < 0.4:
            socket += 1
        for core in node["cores"]:
            core["socket"] = socket

        left = rng.randint(1, len(node["cores"]))
        if rng.random() < 0.5:
            node["cores"] = [
                core
                for place, core in enumerate(node["cores"])
                if place < left or reserved & set(core["cpus"])
            ]


def _caches(*, over_nodes: bool) -> Change:
    """Return a change to L3 caches of any sizes, or to caches that NUMA nodes share."""

    def change(case: Case, rng: Random) -> None:
        _options("prefer-align-cpus-by-uncorecache")(case, rng)
        case["kubelet"]["topologyManagerPolicy"] = rng.choice(["none", "best-effort"])
        _widen(case, rng)
        cache, width = 0, rng.choice([1, 2, 3])
        for node in case["machine"]["numaNodes"]:
            for place, core in enumerate(node["cores"]):
                if over_nodes:
                    core["l3"] = place // width
                    continue
                cache += rng.random() < 0.4
                core["l3"] = cache
            cache += 1

    return change


# --- of time


def _restarts(case: Case, rng: Random) -> None:
    """Restart the kubelet at the end, and perhaps before."""
    steps = case["steps"]
    for _ in range(rng.choice([0, 0, 1])):
        steps.insert(rng.randint(1, len(steps)), {"restart": True})
    steps.append({"restart": True})
    steps[:] = [step for step in steps if "start" not in step]


def _restarts_with_starts(case: Case, rng: Random) -> None:
    """Restart the kubelet after init containers have ended."""
    steps = case["steps"]
    steps.insert(rng.randint(1, len(steps)), {"restart": True})
    steps.append({"restart": True})


def _whole_restarts(case: Case, rng: Random) -> None:
    """Restart the kubelet under pods that have resources of their own."""
    _whole_resources(managed=True)(case, rng)
    _restarts(case, rng)


CHANGES: list[tuple[str, Change]] = [
    ("as generated", _as_it_is),
    ("distribute-cpus-across-numa", _options("distribute-cpus-across-numa")),
    (
        "distribute-cpus-across-numa, align-by-socket",
        _options("distribute-cpus-across-numa", "align-by-socket"),
    ),
    ("distribute-cpus-across-numa, wide pods", _wide_pods),
    (
        "distribute-cpus-across-numa, full-pcpus-only",
        _options("distribute-cpus-across-numa", "full-pcpus-only"),
    ),
    ("full-pcpus-only", _options("full-pcpus-only")),
    ("align-by-socket", _options("align-by-socket")),
    ("distribute-cpus-across-cores", _options("distribute-cpus-across-cores")),
    ("prefer-align-cpus-by-uncorecache", _options("prefer-align-cpus-by-uncorecache")),
    ("strict-cpu-reservation", _options("strict-cpu-reservation")),
    ("options combined", _several_options),
    ("empty spec.resources", _empty_resources),
    ("spec.resources", _whole_resources(managed=False)),
    ("spec.resources, PodLevelResourceManagers", _whole_resources(managed=True)),
    ("hugepages of init containers only", _init_only),
    ("cores of unequal size", _cores_of_unequal_size),
    ("sockets of unequal size", _sockets_of_unequal_size),
    ("caches of unequal size", _caches(over_nodes=False)),
    ("caches over NUMA nodes", _caches(over_nodes=True)),
    ("restart", _restarts),
    ("restart after init containers", _restarts_with_starts),
    ("restart, PodLevelResourceManagers", _whole_restarts),
]
