"""Reads the API objects of a node: its pods (`kubectl get pods -o json`) and the Node itself (`kubectl get node`).

Which pods hold something is said by the state files, not here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from alignup.errors import InputError, errors_in
from alignup.kubelet.checkpoints import checksum_of, decode_checkpoint
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.node_fit import NodeObject, node_object
from alignup.kubernetes.pod import Pod, source_of
from alignup.kubernetes.pod_documents import PodDocument, pod_document
from alignup.text.json_text import decode_json
from alignup.text.typed import decode


def read_node_pods(data: bytes, source: str = "pods.json") -> tuple[PodDocument, ...]:
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
    with errors_in(source):
        return tuple(pod_document(item, f"items[{index}]") for index, item in enumerate(items))


class _Allocated(msgspec.Struct):
    data: str = ""
    checksum: int = 0


def read_allocated(data: bytes, source: str = "allocated_pods_state") -> dict[str, Any]:
    """Return by uid what a kubelet has allocated to each pod that it has admitted and not removed yet.

    Args:
        data: its own file (`pkg/kubelet/allocation/state/checkpoint.go`).
        source: the file's name in errors.

    Raises:
        InputError: it is damaged.
    """
    wire = decode_checkpoint(data, _Allocated, "the JSON of allocated resources", source)
    if checksum_of(f"(string){wire.data}") != wire.checksum:
        raise InputError(f"expected another checksum than {wire.checksum} at {source}")
    told: object = decode_json(wire.data, "the JSON of allocated resources", f"data in {source}")
    return decode(told, _Entries, f"data in {source}").entries


class _Entries(msgspec.Struct):
    entries: dict[str, Any] = msgspec.field(default_factory=dict)


def with_allocated(pod: Pod, entry: Any) -> Pod:
    """Return a pod with the CPU and memory that its kubelet has allocated, be it less than it now requests.

    Raises:
        InputError: the entry is not one of this pod.
    """
    if not isinstance(entry, dict):
        return pod
    containers = {name: _amounts(one) for name, one in (entry.get("ContainerResources") or {}).items()}
    whole = entry.get("PodLevelResources") if source_of(pod).raw_pod else None
    return resized_pod(pod, containers, whole and _amounts(whole))


def allocated_containers(entry: Any) -> set[str]:
    """Return the containers of a pod to which its kubelet has allocated something, which are all but most init ones."""
    found = entry.get("ContainerResources", entry) if isinstance(entry, dict) else {}  # 1.32 has the containers alone
    return set(found) if isinstance(found, dict) else set()


def _amounts(resources: Any) -> dict[str, Any]:
    return {kind: resources[kind] for kind in ("requests", "limits") if kind in resources}


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
