"""Reads nodes from JSON lines: one node a line, with the pods that are on it already.

Machines, configurations and inventories with the same text are read once, since most nodes of a cluster are alike.
`alignup.node` makes the nodes; `docs/scenarios.md` lists the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from alignup.errors import InputError, errors_at, warn
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.kubernetes.versions import KubeletVersion, parse_version
from alignup.machine.device_inventory import Device, decode_inventory, decode_preferred_sets
from alignup.machine.load import described_machine
from alignup.node import Node, plugins_of
from alignup.node.inputs import check_keys, node_object_of, version_of
from alignup.text.json_text import decode_json, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.machine.loaded import LoadedMachine

_T = TypeVar("_T")
_NULL: Final = msgspec.Raw(b"null")


class _NodeLine(msgspec.Struct, rename="camel"):
    """A line on the wire; what is often the same is kept as text."""

    name: str
    machine: msgspec.Raw
    kubelet: msgspec.Raw = _NULL
    devices: msgspec.Raw = _NULL
    preferred_sets: dict[str, Any] | None = None
    pods: list[dict[str, Any]] = []
    labels: dict[str, str] = {}
    kubelet_version: str | None = None
    node_object: dict[str, Any] | None = None
    resources: list[Any] | None = None
    dra_hints: bool = False
    single_numa_node_exclusive: str = msgspec.field(default="Required", name="singleNUMANodeExclusive")


def read_nodes(
    lines: str | bytes | Iterable[str | bytes],
    source: str,
    *,
    skip_bad: bool = False,
    kubelet_version: KubeletVersion | str | None = None,
) -> dict[str, Node]:
    """Return the nodes by name; see `Cluster.from_json_lines`.

    Raises:
        InputError: a line is not of the form, a name comes twice, or a node refuses one of its pods.
        ConfigError: a kubelet would refuse to start on one of the nodes.
    """
    reader = NodeReader(None if kubelet_version is None else parse_version(kubelet_version))
    nodes: dict[str, Node] = {}
    errors: list[InputError] = []
    for where, line in numbered_lines(lines, source):
        try:
            with errors_at(where):
                name, node = reader.node(line)
                if name in nodes:
                    raise InputError.at("name", "a name that no other node has", name)
        except InputError as error:
            if not skip_bad:
                raise
            errors.append(error)
        else:
            nodes[name] = node
    if errors and not nodes:
        raise errors[0]
    for complaint in errors:
        warn(f"a node is ignored: {complaint}")
    if not nodes:
        raise InputError(f"expected at least one node, got none in {source}")
    return nodes


class NodeReader:
    """Reads lines, and keeps what it has read by its text."""

    def __init__(self, version: KubeletVersion | None) -> None:
        self._version = version
        self._decoder = msgspec.json.Decoder(_NodeLine)
        self._keys = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._read: dict[tuple[str, bytes], Any] = {}

    def node(self, line: str | bytes) -> tuple[str, Node]:
        """Return the name and the node of one line, with its pods admitted."""
        wire = decode_json(line, "a node as a JSON object", decode=self._decoder.decode)
        check_keys(self._keys.decode(line), f"node {wire.name!r}")
        loaded: LoadedMachine = self._once("machine", wire.machine, described_machine)
        whole = bytes(wire.machine)
        known = node_object_of({"nodeObject": wire.node_object})
        version = version_of({"kubeletVersion": wire.kubelet_version}, self._version, known)

        def read_config(data: Any) -> KubeletConfig:
            return KubeletConfig.from_dict(loaded.kubelet if data is None else data, version=version)

        def read_inventory(data: Any) -> Mapping[str, Sequence[Device]]:
            return loaded.devices if data is None else decode_inventory(data, loaded.machine)

        # what is missing comes with the machine, against which an inventory is checked
        beside = whole if wire.kubelet == _NULL else b""
        config = self._once(f"kubelet {version}", wire.kubelet, read_config, beside)
        inventory = self._once("devices", wire.devices, read_inventory, whole)
        sets = loaded.preferred_sets if wire.devices == _NULL else {}
        if wire.preferred_sets is not None:
            sets = decode_preferred_sets(wire.preferred_sets, inventory)
        node = Node(
            loaded.machine,
            config,
            inventory,
            plugins_of(sets),
            labels=wire.labels or (known.labels if known else None),
            single_numa_node_exclusive=wire.single_numa_node_exclusive,
        )
        if wire.resources is not None:
            node.know_claims(wire.resources, name=wire.name, dra_hints=wire.dra_hints)
        for index, manifest in enumerate(wire.pods):
            admission = node.admit(pod_from_manifest(manifest))
            if not admission.admitted:
                raise InputError(
                    f"expected pods that the node admits in their order, got {admission.reason} "
                    f"({admission.message}) at pods[{index}]"
                )
        return wire.name, node

    def _once(self, what: str, text: msgspec.Raw, read: Callable[[Any], _T], beside: bytes = b"") -> _T:
        """Return the value that a text was read into before, or read it now."""
        key = (what, bytes(text) + beside)
        if key not in self._read:
            self._read[key] = read(decode_json(bytes(text), "JSON", what))
        found: _T = self._read[key]
        return found
