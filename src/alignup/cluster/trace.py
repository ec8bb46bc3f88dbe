"""Traces: pods that come and go over time, read from JSON lines or made at random.

A line is `{"time": seconds, "admit": Pod, "duration": seconds}` (the duration may be missing: the pod stays until
it is removed), or `{"time": seconds, "remove": uid}`. Times do not go back. `alignup.cluster.simulation` plays them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.errors import InputError
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.kubernetes.pod import Pod
from alignup.kubernetes.pod_requests import is_pinned_memory
from alignup.text.json_text import decode_json, errors_at, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that wants to run."""

    time: float
    """Seconds since some beginning."""
    pod: Pod
    duration: float | None = None
    """Seconds from its admission to its end; None: until it is removed."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The end of a pod."""

    time: float
    uid: str


Event = Arrival | Removal


class _Manifest(msgspec.Struct, rename="camel"):
    """A manifest on the wire; the part that is often the same is kept as text."""

    metadata: dict[str, Any]
    spec: msgspec.Raw
    api_version: Any = "v1"
    kind: Any = "Pod"


class _Line(msgspec.Struct):
    time: float
    admit: _Manifest | None = None
    remove: str | None = None
    duration: float | None = None


def read_trace(lines: str | bytes | Iterable[str | bytes], source: str = "the trace") -> list[Event]:
    """Return the events of a trace, in order.

    Args:
        lines: the text, or its lines.
        source: the name of the trace in errors.

    Raises:
        InputError: a line is not of the form, a time goes back, or a pod comes twice.
    """
    decoder = msgspec.json.Decoder(_Line)
    templates: dict[bytes, Pod] = {}
    seen: set[str] = set()
    events: list[Event] = []
    time = float("-inf")
    for where, line in numbered_lines(lines, source):
        with errors_at(where):
            event = _event(decoder, line, templates)
            if event.time < time:
                raise InputError.at("time", f"a time not before {time:g}", event.time)
            if isinstance(event, Arrival) and event.pod.uid in seen:
                raise InputError.at("metadata.uid", "a uid that has not come yet", event.pod.uid)
        if isinstance(event, Arrival):
            seen.add(event.pod.uid)
        time = event.time
        events.append(event)
    return events


def _event(decoder: msgspec.json.Decoder[_Line], line: str | bytes, templates: dict[bytes, Pod]) -> Event:
    """Return the event of one line."""
    wire = decode_json(line, "an event as a JSON object", decode=decoder.decode)
    if (wire.admit is None) == (wire.remove is None):
        raise InputError.at("the event", 'either "admit" or "remove"', sorted(msgspec.to_builtins(wire)))
    if wire.remove is not None:
        return Removal(wire.time, wire.remove)
    if wire.duration is not None and wire.duration < 0:
        raise InputError.at("duration", "seconds, not negative", wire.duration)
    assert wire.admit is not None  # noqa: S101  # one of the two is there
    return Arrival(wire.time, _admitted_pod(wire.admit, templates), wire.duration)


def _admitted_pod(wire: _Manifest, templates: dict[bytes, Pod]) -> Pod:
    """Return the pod; one whose spec and annotations were seen before differs from that by its names only."""
    metadata = wire.metadata
    key = bytes(wire.spec) + msgspec.json.encode(metadata.get("annotations"))
    template = templates.get(key)
    names = [metadata.get("uid"), metadata.get("name"), metadata.get("namespace", "default")]
    if template is not None and all(isinstance(one, str) and one for one in names):
        return replace(template, uid=str(names[0]), name=str(names[1]), namespace=str(names[2]))
    templates[key] = pod_from_manifest(
        {
            "apiVersion": wire.api_version,
            "kind": wire.kind,
            "metadata": metadata,
            "spec": decode_json(bytes(wire.spec), "JSON", "admit.spec"),
        }
    )
    return templates[key]


_PARTS = ((1 / 8, 5), (1 / 4, 4), (1 / 2, 3), (3 / 4, 2), (1, 1), (2, 1))
"""Of the CPUs of a NUMA node, and how many of sixteen pods ask for so many."""

_MEAN_DURATION = 1000.0
_GIBIBYTE = 1 << 30


def synthetic_trace(cluster: Cluster, arrivals: int, seed: int = 0, load: float = 0.8) -> list[Event]:
    """Return a trace of so many arrivals.

    Args:
        cluster: What the pods are made for.
        arrivals: How many pods.
        seed: The same seed makes the same trace.
        load: About which part of the cluster's CPUs are asked for once as many pods come as go.
    """
    random = Random(seed)  # noqa: S311  # pods, not secrets
    templates = [_template(cluster, part) for part, _ in _PARTS]
    weights = [weight for _, weight in _PARTS]
    cpus = sum(pod.exclusive_cpus * weight for pod, weight in zip(_plain(templates), weights, strict=True))
    capacity = sum(node.machine.cpu_count for node in cluster.nodes)
    rate = load * capacity / (_MEAN_DURATION * cpus / sum(weights))
    time = 0.0
    events: list[Event] = []
    for number in range(arrivals):
        time += random.expovariate(rate)
        template = random.choice(random.choices(templates, weights)[0])
        pod = Pod(
            uid=f"synthetic-{number}",
            name=f"synthetic-{number}",
            containers=template.containers,
            qos=template.qos,
            exclusive_cpus=template.exclusive_cpus,
            memory=template.memory,
            devices=template.devices,
        )
        events.append(Arrival(time, pod, random.expovariate(1 / _MEAN_DURATION)))
    return events


def _plain(templates: list[list[Pod]]) -> list[Pod]:
    """Return the first pod of each size."""
    return [pods[0] for pods in templates]


def _template(cluster: Cluster, part: float) -> list[Pod]:
    """Return pods of one size: without devices, and with some of each resource."""
    nodes = [node for machine in cluster.nodes for node in machine.machine.numa_nodes if node.cores]
    smallest = min(nodes, key=lambda node: sum(len(core.cpus) for core in node.cores))
    cpus = max(1, round(part * sum(len(core.cpus) for core in smallest.cores)))
    memory = max(1, int(part * smallest.memory / _GIBIBYTE / 2))
    pods = [_synthetic_pod(cpus, memory, {})]
    devices = [name for name in cluster.resources if name != "cpu" and not is_pinned_memory(name)]
    pods.extend(_synthetic_pod(cpus, memory, {resource: max(1, int(part))}) for resource in devices)
    return pods


def _synthetic_pod(cpus: int, gibibytes: int, devices: dict[str, int]) -> Pod:
    limits = {"cpu": str(cpus), "memory": f"{gibibytes}Gi", **{name: str(count) for name, count in devices.items()}}
    return pod_from_manifest(
        {
            "metadata": {"name": "synthetic", "uid": "synthetic"},
            "spec": {"containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]},
        }
    )
