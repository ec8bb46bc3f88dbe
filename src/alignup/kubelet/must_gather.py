"""Finds what matters of a node in the objects that OpenShift's must-gather collects of a cluster.

The Node tells by an annotation which MachineConfig it runs, and that has the file of the kubelet's configuration. Pods
are those of all namespaces that are bound to the node. The state files of the kubelet are not collected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from alignup.errors import InputError
from alignup.text.counting import some_of
from alignup.text.documents import read_documents

TOPS: Final = frozenset({"cluster-scoped-resources", "namespaces"})
_NODES: Final = "cluster-scoped-resources/core/nodes/"
_CONFIGS: Final = "cluster-scoped-resources/machineconfiguration.openshift.io/machineconfigs/"
_PODS: Final = re.compile(r"namespaces/[^/]+/core/pods\.ya?ml")
_CURRENT: Final = "machineconfiguration.openshift.io/currentConfig"
_SHOWN: Final = 6


def is_wanted(path: str) -> bool:
    """Return whether a file of a must-gather is read."""
    return path.startswith((_NODES, _CONFIGS)) or _PODS.fullmatch(path) is not None


def node_files(files: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Return the files of a node by the paths of the layout; none if these are not of a must-gather.

    Args:
        files: those of the must-gather that are wanted.
        name: the node's; where there is one only, it may be another.

    Raises:
        InputError: there are several nodes, and none has that name; or a file is no YAML.
    """
    there = {path.removeprefix(_NODES).removesuffix(".yaml"): path for path in files if path.startswith(_NODES)}
    if not there:
        return {}
    if name not in there and len(there) > 1:
        names = some_of(list(there), _SHOWN)
        raise InputError(f"expected the files of one node, got those of {names}; --node-name NAME chooses one")
    name = name if name in there else next(iter(there))
    (node,) = _objects(files, there[name])
    found = {"node.json": _json(node)}
    config = f"{_CONFIGS}{((node.get('metadata') or {}).get('annotations') or {}).get(_CURRENT)}.yaml"
    if config in files:
        found["var/lib/kubelet/config.yaml"] = files[config]
    lists = [path for path in files if _PODS.fullmatch(path) and name.encode() in files[path]]
    pods = [pod for path in lists for one in _objects(files, path) for pod in one.get("items") or ()]
    mine = [pod for pod in pods if (pod.get("spec") or {}).get("nodeName") == name]
    if any(map(_PODS.fullmatch, files)):
        found["pods.json"] = _json({"kind": "List", "items": mine})
    return found


def _objects(files: Mapping[str, bytes], path: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file."""
    for one in read_documents(files[path], path):
        if not isinstance(one, dict):
            raise InputError.at(path, "an object of Kubernetes", one)
        yield one


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()
