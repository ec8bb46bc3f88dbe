"""Packs all that is read of a kubelet's node into one archive, to be looked at elsewhere, and nothing else.

Of pods, the Node and the configuration only the fields that are read are kept: no environment,
arguments, annotations or tokens. State files are kept as they are, since their checksums are over
all of them.
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
from alignup.kubelet.pod_resources import answers_of_kubelet
from alignup.kubernetes.pod_documents import STATIC_UID
from alignup.machine.archive import find_kernel_files, write_archive
from alignup.text.json_text import decode_json

WHAT: Final = "a node's archive"


@cache
def _shapes() -> Any:
    """Return what is kept of a Pod, a Node, a KubeletConfiguration and objects of claims, in the form of `kept`."""
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
    found = dict(_kubelet_files(files, config))
    if not found.keys() & {
        layout.CONFIG,
        layout.CPU_STATE,
        layout.MEMORY_STATE,
        layout.DEVICE_CHECKPOINT,
        layout.LIST,
    }:
        raise InputError(f"no files of a kubelet at {files.source}")

    for path, given in ((layout.PODS, pods), (layout.NODE, node), (layout.CLAIMS, claims)):
        document: Any = given
        if document is None and (data := files.read(path)) is not None:
            document = decode_json(data, "JSON of the API", files.place(path))
        if document is not None:
            found[path] = _json(_KEPT[path](document))

    kernel = files.kernel
    if kernel is not None:
        for name, text in find_kernel_files(kernel):
            found[name] = text.encode("ascii", "replace")

    write_archive(target, sorted(found.items()), WHAT)
    return sorted(found)


def _kubelet_files(
    files: layout.NodeFiles, config: layout.AnyPath | None
) -> Iterator[tuple[str, bytes]]:
    """Yield the configuration in effect, the state files and the PodResources answers, where they are there."""
    configuration = read_configuration(files, config)
    if configuration.source:
        yield layout.CONFIG, _json(kept(dict(configuration.fields), _shapes()["configuration"]))

    for path in sorted(layout.FILES - {layout.CONFIG, *_KEPT}):
        data = files.read(path)
        if data is not None:
            yield path, data

    if files.read(layout.LIST) is None:
        for path, answer in zip(
            (layout.LIST, layout.ALLOCATABLE), answers_of_kubelet(files) or (), strict=False
        ):
            yield path, _json(answer)


def _pods(document: Any) -> Any:
    """Return a List of pods with what is kept of each; a static pod has the uid by which its kubelet knows it."""
    if not isinstance(document, dict) or not isinstance(document.get("items") or [], list):
        raise InputError.at("the pods", "a List of Pods", document)
    items = []
    for item in document.get("items") or []:
        pod = kept(item, _shapes()["pod"])
        annotations = (
            (item.get("metadata") or {}).get("annotations") if isinstance(item, dict) else None
        )
        if isinstance(annotations, dict) and STATIC_UID in annotations:
            pod["metadata"]["uid"] = annotations[STATIC_UID]
        items.append(pod)
    return {"apiVersion": "v1", "kind": "PodList", "items": items}


def _claims(document: Any) -> Any:
    """Return a List of the objects of claims with what is kept of each."""
    if not isinstance(document, dict) or not isinstance(document.get("items") or [], list):
        raise InputError.at("the objects of claims", "a List of them", document)
    shapes, items = (
        _shapes()["claims"],
        [one for one in document.get("items") or [] if isinstance(one, dict)],
    )
    found = [kept(one, shapes[one["kind"]]) for one in items if one.get("kind") in shapes]
    return {"apiVersion": "v1", "kind": "List", "items": found}


_KEPT: Final = {
    layout.PODS: _pods,
    layout.NODE: lambda document: kept(document, _shapes()["node"]),
    layout.CLAIMS: _claims,
}


def kept(value: Any, shape: Any) -> Any:
    """Return the parts of a value that a shape names: None stands for anything, a list of one shape for each item."""
    if isinstance(shape, dict) and isinstance(value, dict):
        return {key: kept(value[key], inner) for key, inner in shape.items() if key in value}
    if isinstance(shape, list) and isinstance(value, list):
        return [kept(one, shape[0]) for one in value]
    return value if shape is None else None


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
