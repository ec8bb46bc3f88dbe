"""Reads the API objects of a node: its pods (`kubectl get pods -o json`) and the Node itself (`kubectl get node`).

Which pods hold something is said by the state files, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.errors import InputError
from alignup.kubernetes.node_object import NodeObject, node_object
from alignup.kubernetes.pod_documents import pod_document
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from alignup.kubernetes.pod_documents import PodDocument


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
    try:
        return tuple(pod_document(item, f"items[{index}]") for index, item in enumerate(items))
    except InputError as error:
        raise type(error)(f"{error} in {source}") from None


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
