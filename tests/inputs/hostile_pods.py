"""Pods that somebody may make who is allowed to make pods, and nothing else.

An API server takes most of them. They ask for much, for nothing of many things, for what no node
has, and say strange things of groups, nodes and policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.control_plane.gates.node_affinity import GATE
from inputs.watched_objects import pod_object

if TYPE_CHECKING:
    from random import Random

DEVICES = 30
"""Resources of devices that nodes have: more than one pod is judged by."""

DEVICE_NAMES = [f"example.com/device-{number}" for number in range(DEVICES)]

# More important than any of these pods.
ABOVE_ALL = 1_000_000_000

_SIZES = [f"hugepages-{1 << size}Mi" for size in range(12)]
_RESOURCES = [
    *(
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "example.com/absent",
        "hugepages-",
        "hugepages-x",
    ),
    *_SIZES,
    *DEVICE_NAMES,
]
_AMOUNTS = (
    *("0", "1", "2", "3", "7", "100", "0.5", "500m", "-1", "1e3", "1E", "1Mi", "2Mi", "1Gi", "9Gi"),
    *("9223372036854775807", "9223372036854775808"),
)
_SELECTORS = ({"zone": "east"}, {"zone": "none"}, {})
_TOLERATIONS: tuple[list[dict[str, str]], ...] = (
    [{"operator": "Exists"}],
    [{"key": "k", "operator": "Gt", "value": "5"}],
    [{"key": "k", "operator": "Lt", "value": "x"}],
    [{}],
)
_OPERATORS = ("In", "NotIn", "Gt", "Lt", "Exists", "DoesNotExist", "Unknown")
_POLICIES = (
    '{"numaTopologyPolicy": "SingleNUMANode"}',
    '{"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Required"}',
    '{"numaTopologyPolicy": "x"}',
    "{",
    "[]",
)
_POLICY = "scheduling.koordinator.sh/numa-topology-spec"
_GROUP_SIZES = ("1", "2", "2", "3", "0", "-1", "x", "", "99999999999999999999")


def hostile_pod(random: Random, name: str, *, is_gated: bool = True) -> dict[str, Any]:
    """Return a Pod that is bound to no node, with the gate of the keeper or without."""
    pod = pod_object(name, "", random.choice([0, 1, -5, -(1 << 31), ABOVE_ALL - 1]))
    pod["metadata"] |= {
        "namespace": random.choice(["default", "other"]),
        "creationTimestamp": f"2026-01-01T00:00:{random.randrange(60):02}Z",
        "resourceVersion": "1",
        "labels": {},
        "annotations": {},
    }
    spec = pod["spec"]
    if is_gated:
        spec["schedulingGates"] = [{"name": GATE}]

    spec["containers"] = [
        _container(random, f"c{number}") for number in range(random.choice([1, 1, 2, 3, 9]))
    ]
    if random.random() < 0.2:
        first = _container(random, "first")
        if random.random() < 0.5:
            first["restartPolicy"] = "Always"
        spec["initContainers"] = [first]

    for field, value in _further_fields(random).items():
        if random.random() < 0.2:
            spec[field] = value

    if random.random() < 0.4:
        pod["metadata"]["labels"]["alignup.dev/group"] = random.choice("gh")
        size = random.choice(_GROUP_SIZES)
        pod["metadata"]["annotations"]["alignup.dev/group-size"] = size
    if random.random() < 0.3:
        pod["metadata"]["annotations"][_POLICY] = random.choice(_POLICIES)

    return pod


def _further_fields(random: Random) -> dict[str, Any]:
    """Return values for fields of a spec."""
    expression = {
        "key": "zone",
        "operator": random.choice(_OPERATORS),
        "values": random.choice([[], ["east"], ["5"], ["x", "y"]]),
    }
    by_name = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    terms: list[dict[str, Any]] = random.choice(
        [[], [{}], [{"matchExpressions": [expression]}], [{"matchFields": [by_name]}]]
    )
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spread = {"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone", "maxSkew": 1}
    return {
        "resources": {"requests": _amounts(random), "limits": _amounts(random)},
        "overhead": _amounts(random),
        "nodeSelector": random.choice(_SELECTORS),
        "tolerations": random.choice(_TOLERATIONS),
        "affinity": {"nodeAffinity": required},
        "topologySpreadConstraints": [spread],
        "resourceClaims": [{"name": "c", "resourceClaimName": "claim"}],
        "preemptionPolicy": "Never",
        "schedulingGroup": {"podGroupName": "gang"},
    }


def _container(random: Random, name: str) -> dict[str, Any]:
    limits = _amounts(random)
    requests = limits
    if random.random() < 0.1:
        requests = _amounts(random)

    container = {"name": name, "image": "i", "resources": {"limits": limits, "requests": requests}}
    if random.random() < 0.1:
        port = random.choice([0, 80, 65535])
        container["ports"] = [{"containerPort": 80, "hostPort": port, "protocol": "TCP"}]
    return container


def _amounts(random: Random) -> dict[str, str]:
    """Return amounts of some resources; mostly with whole CPUs and memory."""
    names = random.sample(_RESOURCES, random.choice([0, 0, 0, 0, 1, 2, 5, 12, 40]))
    amounts = {name: random.choice(_AMOUNTS) for name in names}
    if random.random() < 0.8:
        amounts |= {"cpu": random.choice("1234"), "memory": "1Gi"}
    return amounts
