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
    path: Path, asked: list[dict[str, Any]], seen: dict[str, Seen]
) -> list[float]:
    """Return, of each pod that waited for room and ran, the seconds from when some node had room for it until it ran.

    Room that another pod took does not count: it is the time since when some node, any, would have
    admitted it.

    Args:
        path: the nodes, as lines of JSON.
        asked: the manifests of all pods.
        seen: by name, what became of them.
    """
    nodes = {one.name: one for one in read_fleet(path.read_bytes(), "nodes")}
    pods: dict[str, Pod] = {}
    for manifest in asked:
        name = manifest["metadata"]["name"]
        pods[name] = read_pod({**manifest, "metadata": {**manifest["metadata"], "uid": name}})

    waiting: dict[str, set[str]] = {}
    since: dict[str, float] = {}
    found = []

    def look(name: str, node: str, now: float) -> None:
        takes = bool(nodes[node].node.try_admit(pods[name]))
        (waiting[name].add if takes else waiting[name].discard)(node)
        if not waiting[name]:
            since.pop(name, None)
        else:
            since.setdefault(name, now)

    for moment, _, what, name in happened(seen):
        one = seen[name]
        if what == "created":
            waiting[name] = set()
            for node in nodes:
                look(name, node, moment)
            continue

        if what == "bound":
            waiting.pop(name, None)
            began = since.pop(name, None)
            # without a beginning, a place got free in that very moment
            if one.waited and one.running is not None:
                found.append(one.running - min(moment, one.running if began is None else began))
            nodes[one.node].admit(pods[name])
        else:
            nodes[one.node].end(name)

        for other in waiting:
            look(other, one.node, moment)

    return found


def happened(seen: dict[str, Seen]) -> list[tuple[float, int, str, str]]:
    """Return the moments in which pods were created, bound, and ended, those of one moment by the server's order."""
    found = []
    for name, one in seen.items():
        found.append((one.created, 0, "created", name))
        if one.bound is not None:
            found.append((one.bound, one.version, "bound", name))
            if one.ended is not None:
                found.append((max(one.ended, one.bound), 0, "ended", name))
    return sorted(found)
