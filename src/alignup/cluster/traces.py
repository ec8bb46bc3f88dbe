"""Traces: pods that come and go, from a text or made up.

A line of a trace is `{"time": seconds, "admit": Pod, "duration": seconds}` (the duration may be
missing: the pod stays until it is removed), `{"time": seconds, "remove": uid}`, or
`{"time": seconds, "group": PodGroup, JobSet or LeaderWorkerSet}`, which says how many members of a
group have to run together. Times do not go back.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.errors import InputError, errors_at
from alignup.kubernetes.groups import (
    GROUP_KINDS,
    GroupSizes,
    Membership,
    group_object,
    is_member,
    membership_of,
)
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.pod import OS_LABEL, Pod, is_pinned_memory
from alignup.records import Record, replace
from alignup.text.json_text import decode_json, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alignup.cluster.cluster import Cluster
    from alignup.kubernetes.groups import GroupObject

# Shares of a NUMA node's CPUs, each with how many of sixteen pods request that share.
_PARTS = ((1 / 8, 5), (1 / 4, 4), (1 / 2, 3), (3 / 4, 2), (1, 1), (2, 1))

# About the share of a cluster's CPUs that is requested once arrivals and ends balance.
_LOAD = 0.8
_MEAN_DURATION = 1000.0
_GIBIBYTE = 1 << 30


class Arrival(Record):
    """A pod that wants to run.

    Attributes:
        time: seconds since some beginning.
        duration: seconds from its admission to its end; None: until it is removed.
        membership: the group whose member it is; None: it goes alone. Where that has no size, all
            members in the trace have to run together.
    """

    time: float
    pod: Pod
    duration: float | None = None
    membership: Membership | None = None


class Removal(Record):
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


class _SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str | None = None


class _GroupedSpec(msgspec.Struct, rename="camel"):
    scheduling_group: _SchedulingGroup | None = None


class _Line(msgspec.Struct):
    time: float
    admit: _Manifest | None = None
    remove: str | None = None
    duration: float | None = None
    group: dict[str, Any] | None = None


class _Template(Record):
    """A pod that was read.

    Attributes:
        pod_group: the name of the PodGroup of those that have its spec; empty: they have none.
    """

    pod: Pod
    pod_group: str


def read_trace(
    lines: str | bytes | Iterable[str | bytes], source: str = "the trace"
) -> list[Event]:
    """Return the events of a trace, in order.

    Args:
        lines: the text, or its lines.
        source: the name of the trace in errors.

    Raises:
        InputError: a line is not of the form, a time goes back, or a pod comes twice.
    """
    reader = _TraceReader()
    uids: set[str] = set()
    events: list[Event] = []
    time = float("-inf")
    for where, line in numbered_lines(lines, source):
        with errors_at(where):
            wire = decode_json(line, "an event as a JSON object", kind=_Line, once=True)
            event = reader.read(wire)
            if wire.time < time:
                raise InputError.at("time", f"a time not before {time:g}", wire.time)
            if isinstance(event, Arrival) and event.pod.uid in uids:
                raise InputError.at("metadata.uid", "a uid that has not come yet", event.pod.uid)

        time = wire.time
        if isinstance(event, Arrival):
            uids.add(event.pod.uid)
        if event is not None:
            events.append(event)

    return [reader.sized(event) for event in events]


class _TraceReader:
    """Reads lines of a trace; pods of equal specs share what they are made of."""

    def __init__(self) -> None:
        self._templates: dict[bytes, _Template] = {}
        self._sizes = GroupSizes()

    def read(self, wire: _Line) -> Event | None:
        """Return the event of a line; None: it only says how large a group is.

        Raises:
            InputError: it is no event, or its pod cannot be read.
        """
        keys = [key for key in ("admit", "remove", "group") if getattr(wire, key) is not None]
        if not keys or len(keys) > 1:
            given_keys = "both" if keys else "neither"
            raise InputError.at("the event", 'either "admit" or "remove"', given_keys)
        if wire.remove is not None:
            return Removal(wire.time, wire.remove)
        if wire.group is not None:
            self._sizes.seen(_group_object(wire.group))
            return None
        if wire.duration is not None and wire.duration < 0:
            raise InputError.at("duration", "seconds, not negative", wire.duration)

        assert wire.admit is not None  # noqa: S101  # one of the three is there
        template = self._template(wire.admit)
        membership = _membership(wire.admit, template)
        return Arrival(wire.time, _named(wire.admit, template), wire.duration, membership)

    def sized(self, event: Event) -> Event:
        """Return an event with the number of members that an object says, on whatever line."""
        if not isinstance(event, Arrival) or event.membership is None:
            return event
        return replace(event, membership=self._sizes.resized(event.membership))

    def _template(self, wire: _Manifest) -> _Template:
        metadata = wire.metadata
        labels = metadata.get("labels")
        system = labels.get(OS_LABEL) if isinstance(labels, dict) else None
        key = bytes(wire.spec) + msgspec.json.encode((metadata.get("annotations"), system))
        template = self._templates.get(key)
        if template is None:
            spec: object = decode_json(bytes(wire.spec), "JSON", "admit.spec")
            manifest = {
                "apiVersion": wire.api_version,
                "kind": wire.kind,
                "metadata": metadata,
                "spec": spec,
            }
            pod = read_pod(manifest)
            grouped = decode_json(bytes(wire.spec), "a pod's spec", "admit.spec", kind=_GroupedSpec)
            group = grouped.scheduling_group
            template = _Template(pod, (group and group.pod_group_name) or "")
            self._templates[key] = template

        return template


def _named(wire: _Manifest, template: _Template) -> Pod:
    """Return the pod of a manifest, which differs from its template by its names only."""
    metadata = wire.metadata
    names = {"uid": metadata.get("uid"), "name": metadata.get("name")}
    names["namespace"] = metadata.get("namespace", "default")
    if all(isinstance(value, str) and value for value in names.values()):
        return template.pod.renamed(**names)

    spec: object = decode_json(bytes(wire.spec), "JSON", "admit.spec")
    return read_pod(
        {"apiVersion": wire.api_version, "kind": wire.kind, "metadata": metadata, "spec": spec}
    )


def _membership(wire: _Manifest, template: _Template) -> Membership | None:
    """Return the group of a pod.

    Raises:
        InputError: it cannot be told.
    """
    labels = wire.metadata.get("labels") or {}
    if not isinstance(labels, dict):
        raise InputError.at("metadata.labels", "a mapping", labels)

    pod = template.pod
    if not template.pod_group and not is_member(labels, pod.annotations):
        return None
    namespace = str(wire.metadata.get("namespace") or pod.namespace)
    return membership_of(namespace, labels, pod.annotations, template.pod_group)


def _group_object(manifest: Mapping[str, Any]) -> GroupObject:
    """Return the object that says how many members a group has.

    Raises:
        InputError: it is none.
    """
    item = group_object(manifest, "group")
    if item is None:
        expected = f"one of {', '.join(GROUP_KINDS)}"
        raise InputError.at("group.kind", expected, manifest.get("kind"))
    return item


def synthetic_trace(cluster: Cluster, arrivals: int, seed: int = 0) -> list[Event]:
    """Return a trace of so many arrivals.

    Args:
        cluster: What the pods are made for.
        arrivals: How many pods.
        seed: The same seed makes the same trace.
    """
    random = Random(seed)  # noqa: S311  # pods, not secrets
    templates = [_template(cluster, part) for part, _ in _PARTS]
    weights = [weight for _, weight in _PARTS]
    cpus = sum(
        pods[0].exclusive_cpus * weight for pods, weight in zip(templates, weights, strict=True)
    )
    capacity = sum(node.machine.cpu_count for node in cluster.nodes)
    rate = _LOAD * capacity / (_MEAN_DURATION * cpus / sum(weights))
    time = 0.0
    events: list[Event] = []
    for number in range(arrivals):
        time += random.expovariate(rate)
        template = random.choice(random.choices(templates, weights)[0])
        pod = template.renamed(uid=f"synthetic-{number}", name=f"synthetic-{number}")
        events.append(Arrival(time, pod, random.expovariate(1 / _MEAN_DURATION)))

    return events


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
    limits = {
        "cpu": str(cpus),
        "memory": f"{gibibytes}Gi",
        **{name: str(count) for name, count in devices.items()},
    }
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return read_pod(
        {"metadata": {"name": "synthetic", "uid": "synthetic"}, "spec": {"containers": [container]}}
    )
