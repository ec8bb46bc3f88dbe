"""Reads the API objects of a node: its pods (`kubectl get pods -o json`) and the Node itself (`kubectl get node`).

Which pods hold something is said by the state files, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.errors import InputError
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.kubernetes.node_object import NodeObject, node_object
from alignup.text.json_text import decode_json
from alignup.text.typed import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.kubernetes.pod import Pod

STATIC_UID = "kubernetes.io/config.hash"
"""The annotation with the uid by which a kubelet knows a static pod; the API server gives its copy another one."""
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod that is bound to the node."""

    pod: Pod
    """Its uid is the one by which the kubelet knows it."""
    phase: str
    node_name: str
    has_started: bool
    """Whether a kubelet has taken note of it."""
    container_ids: Mapping[str, str]
    """By the runtime's id, without its scheme, the container's name."""
    reason: str = ""
    """Why it has failed."""

    @property
    def is_active(self) -> bool:
        """Whether it can hold something."""
        return self.phase not in _ENDED


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str | None = None
    container_id: str | None = msgspec.field(name="containerID", default=None)


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    reason: str | None = None
    start_time: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Pod(msgspec.Struct):
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


def read_node_pods(data: bytes, source: str = "pods.json") -> tuple[NodePod, ...]:
    """Return the pods of a List, in its order.

    Args:
        data: a List of Pods, or one Pod, as JSON.
        source: its name in errors.

    Raises:
        InputError: it is no JSON, no List of Pods, or a Pod in it is none that an API server takes.
    """
    value: object = decode_json(data, "the JSON of a List of Pods", source)
    if not isinstance(value, dict):
        raise InputError.at(source, "a List of Pods", value)
    items = [value] if value.get("kind") == "Pod" else value.get("items")
    if items is None and str(value.get("kind", "")).endswith("List"):
        items = []  # an empty list may be left out
    if not isinstance(items, list):
        raise InputError.at(f"items in {source}", "a list of Pods", items)
    return tuple(_node_pod(item, f"items[{index}]", source) for index, item in enumerate(items))


def _node_pod(item: Any, place: str, source: str) -> NodePod:
    try:
        wire = decode(item, _Pod, place)
        pod = pod_from_manifest(item, place)
    except InputError as error:
        raise type(error)(f"{error} in {source}") from None
    status = wire.status or _PodStatus()
    uid = pod.annotations.get(STATIC_UID)
    containers = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return NodePod(
        pod if uid is None or uid == pod.uid else pod.renamed(uid=uid),
        status.phase or "",
        (wire.spec and wire.spec.node_name) or "",
        status.start_time is not None,
        {one.container_id.rpartition("//")[2]: one.name or "" for one in containers if one.container_id},
        status.reason or "",
    )


def read_node_object(data: bytes, source: str = "node.json") -> NodeObject:
    """Return what a Node says.

    Args:
        data: a Node, or a List of one Node, as JSON.
        source: its name in errors.

    Raises:
        InputError: it is no JSON, or no Node.
    """
    value: object = decode_json(data, "the JSON of a Node", source)
    if isinstance(value, dict) and isinstance(value.get("items"), list) and len(value["items"]) == 1:
        value = value["items"][0]
    return node_object(value, source)
