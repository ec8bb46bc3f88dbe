"""Reads nodes from JSON lines: one node a line, with the pods that are on it already.

Machines with devices and a configuration of the same text are read once, since most nodes of a
cluster are alike. `alignup.node` makes the nodes; `docs/scenarios.md` lists the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from alignup.cluster.pod_texts import PodTexts
from alignup.errors import InputError, errors_at, warn
from alignup.kubernetes.kubelet_config import KUBELET, KubeletConfig
from alignup.kubernetes.versions import KubeletVersion, parse_version
from alignup.machine.device_inventory import EXTRA_KEYS, LoadedMachine
from alignup.machine.load import machine_with_devices_from_dict
from alignup.node import Node, plugins_of
from alignup.node.inputs import check_keys, node_object_of, version_of
from alignup.records import replace
from alignup.text.json_text import decode_json, numbered_lines

_NULL: Final = msgspec.Raw(b"null")


class TooManyPodsError(InputError):
    """Nodes have more pods that differ than are read."""


class _NodeLine(msgspec.Struct, rename="camel"):
    """A line on the wire; what is often the same is kept as text."""

    name: str
    machine: msgspec.Raw
    kubelet: msgspec.Raw = _NULL
    devices: msgspec.Raw = _NULL
    preferred_sets: msgspec.Raw = _NULL
    pods: list[msgspec.Raw] = []
    labels: dict[str, str] = {}
    kubelet_version: str | None = None
    node_object: dict[str, Any] | None = None
    resources: list[Any] | None = None
    dra_hints: bool = False
    reading: str = KUBELET
    keep_refused_bindings: bool = True
    single_numa_node_exclusive: str = msgspec.field(
        default="Required", name="singleNUMANodeExclusive"
    )


def read_nodes(
    lines: str | bytes | Iterable[str | bytes],
    source: str,
    *,
    skip_bad: bool = False,
    kubelet_version: KubeletVersion | str | None = None,
    most_different: int | None = None,
) -> dict[str, Node]:
    """Return the nodes by name; see `Cluster.from_json_lines`.

    Args:
        lines: as there.
        source: as there.
        skip_bad: as there.
        kubelet_version: as there.
        most_different: the most bytes of pods that are read, where those are read once that differ
            in their names only; None: any number.

    Raises:
        TooManyPodsError: they have more.
        InputError: a line is not of the form, a name comes twice, or a node refuses one of its
            pods.
        ConfigError: as there.
    """
    version = None if kubelet_version is None else parse_version(kubelet_version)
    reader = NodeReader(version, most_different)
    nodes: dict[str, Node] = {}
    errors: list[InputError] = []
    for where, line in numbered_lines(lines, source):
        try:
            with errors_at(where):
                name, node = reader.node(line)
                if name in nodes:
                    raise InputError.at("name", "a name that no other node has", name)
        except InputError as error:
            if not skip_bad or isinstance(error, TooManyPodsError):
                raise
            errors.append(error)
        else:
            nodes[name] = node

    if errors and not nodes:
        raise errors[0]

    for complaint in errors:
        warn(f"a node is ignored: {complaint}")

    if not nodes:
        raise InputError(f"no nodes in {source}")

    return nodes


class NodeReader:
    """Reads lines; machines and configurations of the same text are read once."""

    def __init__(
        self, version: KubeletVersion | None = None, most_different: int | None = None
    ) -> None:
        self._version = version
        self._most_different = most_different
        self._parts: dict[object, tuple[LoadedMachine, KubeletConfig]] = {}
        self._pods = PodTexts()

    def node(self, line: str | bytes) -> tuple[str, Node]:
        """Return the name and the node of one line, with its pods admitted."""
        wire, node = self.empty_node(line)
        for index, manifest in enumerate(wire.pods):
            admission = node.admit(self._pods.read(manifest))
            self._check_size()
            if not admission.admitted:
                why = f"{admission.reason} ({admission.message}) at pods[{index}]"
                raise InputError(f"the node does not admit its own pods in their order: {why}")
        return wire.name, node

    def _check_size(self) -> None:
        most = self._most_different
        if most is not None and self._pods.read_bytes > most:
            raise TooManyPodsError(
                f"pods that differ in more than their names have more than {most} bytes: give "
                "fewer nodes at once"
            )

    def empty_node(
        self, line: str | bytes, labels: Mapping[str, str] | None = None
    ) -> tuple[_NodeLine, Node]:
        """Return what one line says, and the node without its pods.

        `labels` go before those of the line.
        """
        wire = decode_json(line, "a node as a JSON object", kind=_NodeLine, once=True)
        check_keys(msgspec.json.decode(line, type=dict[str, msgspec.Raw]), f"node {wire.name!r}")
        node_object = node_object_of(wire.node_object)
        version = version_of({"kubeletVersion": wire.kubelet_version}, self._version, node_object)
        parts = wire.machine, wire.devices, wire.preferred_sets, wire.kubelet
        key = version, wire.reading, *map(bytes, parts)
        if key not in self._parts:
            named = zip(("machine", *EXTRA_KEYS), map(bytes, parts), strict=True)
            described: dict[str, Any] = {
                name: decode_json(text, "JSON", name) for name, text in named
            }
            loaded = machine_with_devices_from_dict(described)
            self._parts[key] = (
                loaded,
                KubeletConfig.from_dict(loaded.kubelet, version=version, reading=wire.reading),
            )

        loaded, config = self._parts[key]
        if node_object is not None and "pods" in node_object.allocatable:
            config = _taking(config, node_object.allocatable["pods"])

        own_labels: Mapping[str, str] = wire.labels
        if not own_labels and node_object:
            own_labels = node_object.labels

        node = Node(
            loaded.machine,
            config,
            loaded.devices,
            plugins_of(loaded.preferred_sets),
            labels={**own_labels, **(labels or {})},
            single_numa_node_exclusive=wire.single_numa_node_exclusive,
            keep_refused_bindings=wire.keep_refused_bindings,
        )
        if wire.resources is not None:
            node.know_claims(wire.resources, name=wire.name, dra_hints=wire.dra_hints)

        return wire, node


def _taking(config: KubeletConfig, pods: int) -> KubeletConfig:
    """Return a configuration of a kubelet that runs so many pods, as its Node object says."""
    reserve = replace(config.node_reserve, max_pods=max(0, pods), pods_per_core=0)
    return replace(config, node_reserve=reserve)
