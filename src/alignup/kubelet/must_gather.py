"""Finds what matters of a node in the objects that OpenShift's must-gather collects of a cluster.

The Node tells by an annotation which MachineConfig it runs, and that has the file of the kubelet's configuration. Pods
are those of all namespaces that are bound to the node. The state files of the kubelet are not collected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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
    told = read_documents(files[there[name]], there[name])
    found = {"node.json": _json(told[0] if told else None)}
    config = f"{_CONFIGS}{_at(told, 0, 'metadata', 'annotations', _CURRENT)}.yaml"
    if config in files:
        found["var/lib/kubelet/config.yaml"] = files[config]
    lists = [path for path in files if _PODS.fullmatch(path)]
    if lists:
        documents = [one for path in lists if name.encode() in files[path] for one in read_documents(files[path], path)]
        pods = [pod for one in documents if isinstance(items := _at(one, "items"), list) for pod in items]
        found["pods.json"] = _json({"items": [pod for pod in pods if _at(pod, "spec", "nodeName") == name]})
    return found


def _at(value: Any, *path: str | int) -> Any:
    """Return what lies at a path of an object; None: it has no such place."""
    try:
        for key in path:
            value = value[key]
    except (LookupError, TypeError):
        return None
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()
