"""How long pods stayed pending although a node had room for them.

The bindings and ends of a run are played again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup import read_pod
from alignup.control_plane.publishers.fleet import read_fleet

if TYPE_CHECKING:
    from pathlib import Path

    from alignup import Pod
    from rig.outcome import Seen


def waits_beside_room(
    path: Path, manifests: list[dict[str, Any]], records: dict[str, Seen]
) -> list[float]:
    """Return how long pods waited though some node had room for them.

    Of each that waited for room and ran, it is the seconds from when a node had room until it ran.
    Room that another pod took does not count: it is the time since when some node, any, would have
    admitted it.

    Of a pod that came with a gate it is noted whether it had to wait: whether no node had room when
    it came.

    Args:
        path: the nodes, as lines of JSON.
        manifests: the manifests of all pods.
        records: by name, what became of them.
    """
    nodes = {node.name: node for node in read_fleet(path.read_bytes(), "nodes")}
    pods = pods_by_name(manifests)
    waiting: dict[str, set[str]] = {}
    since: dict[str, float] = {}
    waits = []

    def look(name: str, node: str, now: float) -> None:
        if nodes[node].node.try_admit(pods[name]):
            waiting[name].add(node)
        else:
            waiting[name].discard(node)

        if not waiting[name]:
            since.pop(name, None)
        else:
            since.setdefault(name, now)

    for moment, _, event, name in happened(records):
        record = records[name]
        if event == "created":
            waiting[name] = set()
            for node in nodes:
                look(name, node, moment)
            # the condition of one with a gate does not tell
            record.waited |= record.gated and not waiting[name]
            continue

        if event == "bound":
            waiting.pop(name, None)
            # without a beginning, a place got free in that very moment
            beginning = since.pop(name, record.running)
            if record.waited and record.running is not None:
                waits.append(record.running - min(moment, beginning))
            nodes[record.node].admit(pods[name])
        else:
            nodes[record.node].end(name)

        for waiting_name in waiting:
            look(waiting_name, record.node, moment)

    return waits


def pods_by_name(manifests: list[dict[str, Any]]) -> dict[str, Pod]:
    """Return pods whose uids are their names."""
    pods = {}
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        pods[name] = read_pod({**manifest, "metadata": {**manifest["metadata"], "uid": name}})

    return pods


def happened(records: dict[str, Seen]) -> list[tuple[float, int, str, str]]:
    """Return the moments in which pods were created, bound, and ended.

    Those of one moment are in the server's order.
    """
    events = []
    for name, record in records.items():
        events.append((record.created, 0, "created", name))
        if record.bound is not None:
            events.append((record.bound, record.version, "bound", name))
            if record.ended is not None:
                events.append((max(record.ended, record.bound), 0, "ended", name))
    return sorted(events)
