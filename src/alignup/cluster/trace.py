"""Reads traces: pods that come and go over time, as JSON lines.

A line is `{"time": seconds, "admit": Pod, "duration": seconds}` (the duration may be missing: the pod stays until
it is removed), or `{"time": seconds, "remove": uid}`. Times do not go back. Pods are decoded by
`alignup.kubernetes.manifest` and placed by `alignup.cluster.simulation`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.errors import InputError
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.text.json_lines import errors_at, numbered_lines
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.kubernetes.pod import Pod

__all__ = ["Arrival", "Event", "Removal", "read_trace"]


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
    return Arrival(wire.time, _pod(wire.admit, templates), wire.duration)


def _pod(wire: _Manifest, templates: dict[bytes, Pod]) -> Pod:
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
