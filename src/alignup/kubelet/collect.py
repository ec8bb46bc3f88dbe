"""Packs all that is read of a kubelet's node, and nothing else, into one archive.

It is to be looked at elsewhere.
Of pods, the Node and the configuration only the fields that are read are kept: no environment,
arguments or tokens, and only those annotations that decide something. State files are kept as they
are, since their checksums are over all of them; only what is allocated is written anew where it has
whole pods, as a kubelet 1.38 writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from alignup.errors import InputError
from alignup.kubelet import layout
from alignup.kubelet.config import read_configuration
from alignup.kubelet.pod_resources_client import answers_of_kubelet
from alignup.kubelet.read import without_pods
from alignup.kubernetes.pod_documents import STATIC_UID
from alignup.machine.archive import find_kernel_files, write_archive
from alignup.text.json_text import decode_json

WHAT: Final = "a node's archive"

# Without any of these there is no kubelet.
_OF_A_KUBELET: Final = (
    layout.CONFIG,
    layout.CPU_STATE,
    layout.MEMORY_STATE,
    layout.DEVICE_CHECKPOINT,
    layout.LIST,
)


@cache
def _shapes() -> Any:
    """Return what is kept of each kind of object, in the form of `kept`."""
    return json.loads(Path(__file__).with_suffix(".json").read_bytes())


def collect(
    files: layout.NodeFiles,
    target: layout.AnyPath,
    *,
    config: layout.AnyPath | None = None,
    pods: Mapping[str, Any] | None = None,
    node: Mapping[str, Any] | None = None,
    claims: Mapping[str, Any] | None = None,
) -> list[str]:
    """Pack a node's files into an archive, and return their names.

    Args:
        files: the node's files.
        target: the archive; its suffix (.tar.xz, .tar.gz or .tgz) says how it is compressed.
        config: the kubelet's configuration where it is elsewhere.
        pods: the List of its pods; None: that of the files, if there is one.
        node: the Node; None: that of the files, if there is one.
        claims: the List of the objects of claims; None: that of the files, if there is one.

    Raises:
        InputError: there is no file of a kubelet, one cannot be read, or the archive cannot be
            written.
    """
    contents = dict(_kubelet_files(files, config))
    if contents.keys().isdisjoint(_OF_A_KUBELET):
        raise InputError(f"no files of a kubelet at {files.source}")

    for path, fetched in ((layout.PODS, pods), (layout.NODE, node), (layout.CLAIMS, claims)):
        document = _recorded(files, path) if fetched is None else fetched
        if document is not None:
            contents[path] = _json(_KEPT[path](document))

    kernel = files.kernel
    if kernel is not None:
        for name, text in find_kernel_files(kernel):
            contents[name] = text.encode("ascii", "replace")

    write_archive(target, sorted(contents.items()), WHAT)
    return sorted(contents)


def _recorded(files: layout.NodeFiles, path: str) -> Any:
    """Return the object of the API in a file; None: there is no such file."""
    data = files.read(path)
    if data is None:
        return None
    return decode_json(data, "JSON of the API", files.place(path))


def _kubelet_files(
    files: layout.NodeFiles, config: layout.AnyPath | None
) -> Iterator[tuple[str, bytes]]:
    """Yield the configuration in effect, the state files and the PodResources answers, if any."""
    configuration = read_configuration(files, config)
    if configuration.source:
        yield layout.CONFIG, _json(kept(dict(configuration.fields), _shapes()["configuration"]))

    for path in sorted(layout.FILES - {layout.CONFIG, *_KEPT}):
        data = files.read(path)
        if data is not None and path == layout.ALLOCATED:
            data = without_pods(data)
        if data is not None:
            yield path, data

    if files.read(layout.LIST) is None:
        answers = answers_of_kubelet(files)
        if answers is not None:
            pods, allocatable = answers
            yield layout.LIST, _json(pods)
            yield layout.ALLOCATABLE, _json(allocatable)


def _pods(document: Any) -> Any:
    """Return a List of pods with what is kept of each.

    A static pod has the uid by which its kubelet knows it.
    """
    if not isinstance(document, dict) or not isinstance(document.get("items") or [], list):
        raise InputError.at("the pods", "a List of Pods", document)

    items = []
    for item in document.get("items") or []:
        pod = kept(item, _shapes()["pod"])
        if isinstance(item, dict):
            annotations = (item.get("metadata") or {}).get("annotations")
            if isinstance(annotations, dict) and STATIC_UID in annotations:
                pod["metadata"]["uid"] = annotations[STATIC_UID]
        items.append(pod)

    return {"apiVersion": "v1", "kind": "PodList", "items": items}


def _claims(document: Any) -> Any:
    """Return a List of the objects of claims with what is kept of each."""
    if not isinstance(document, dict) or not isinstance(document.get("items") or [], list):
        raise InputError.at("the objects of claims", "a List of them", document)

    shapes = _shapes()["claims"]
    items = [
        kept(item, shapes[item["kind"]])
        for item in document.get("items") or []
        if isinstance(item, dict) and item.get("kind") in shapes
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


_KEPT: Final = {
    layout.PODS: _pods,
    layout.NODE: lambda document: kept(document, _shapes()["node"]),
    layout.CLAIMS: _claims,
}


def kept(value: Any, shape: Any) -> Any:
    """Return the parts of a value that a shape names.

    None stands for anything, a list of one shape for each item.
    """
    if shape is None:
        return value
    if isinstance(shape, dict) and isinstance(value, dict):
        return {key: kept(value[key], inner) for key, inner in shape.items() if key in value}
    if isinstance(shape, list) and isinstance(value, list):
        return [kept(item, shape[0]) for item in value]
    return None


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
