"""Writes Events on pods, where people look for them: `kubectl describe pod`.

Needs the extra `cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.control_plane.api_server.api_client import CONFLICT, Api, accepting, now, object_path

if TYPE_CHECKING:
    from alignup.kubernetes.wire import Metadata

# Letters of a message.
_LONGEST_EVENT: Final = 1024

# Seconds between two Events.
EVENT_SECONDS: Final = 0.2

# Events that wait to be written; further ones are dropped.
MOST_EVENTS: Final = 100


async def write_event(
    api: Api, about: Metadata, reason: str, message: str, component: str, *, once: bool = False
) -> None:
    """Write a warning about a pod, where people look for it: `kubectl describe pod`.

    With `once`, nothing is written where somebody has written one like that: it is named by the
    pod's uid.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    metadata = {"namespace": about.namespace}
    accepted: tuple[int, ...] = ()
    if once:
        metadata["name"] = f"{reason.lower()}.{about.uid}"
        accepted = (CONFLICT,)
    else:
        metadata["generateName"] = f"{about.name}."

    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
    }

    moment = now()
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": pod,
        "reason": reason,
        "message": message[:_LONGEST_EVENT],
        "type": "Warning",
        "source": {"component": component},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }

    path = object_path("/api/v1/namespaces", about.namespace, "events")
    with accepting(*accepted):
        await api.request("POST", path, event)
