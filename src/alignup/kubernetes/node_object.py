"""Reads a Node object of the Kubernetes API, as `kubectl get node -o json` prints it: name, labels, taints, amounts.

`alignup.kubernetes.versions` reads the release itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from alignup.errors import InputError
from alignup.kubernetes.quantity import in_units, parse_quantity
from alignup.records import Record, field


class NodeObject(Record):
    """The fields of a Node object that matter here."""

    name: str = ""
    """Empty: not known."""
    labels: Mapping[str, str] = field(default_factory=dict)
    kubelet_version: str | None = None
    """`status.nodeInfo.kubeletVersion` as it stands there, such as `v1.33.4-eks-1`; None: not known."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """`status.allocatable`: CPU in thousandths, all else in units (bytes, devices, pods); empty: not known."""
    taints: tuple[Mapping[str, str], ...] = ()
    knows_labels: bool = True
    """False: there is no such object, so that of a label that is missing nothing is known."""


def node_object(data: object, where: str = "nodeObject") -> NodeObject:
    """Return the facts in a Node object, as plain objects.

    Args:
        data: the object.
        where: the place that an error names.

    Raises:
        InputError: it is no Node object.
    """
    if not isinstance(data, Mapping):
        raise InputError.at(where, "a Node object", data)
    from alignup.kubernetes.wire import MetadataWire, NodeInfoWire, NodeSpecWire, NodeStatusWire, NodeWire  # noqa: PLC0415  # msgspec is slow to import
    from alignup.text.typed import decode  # noqa: PLC0415  # as above

    wire = decode(data, NodeWire, where)
    if wire.kind != "Node":
        raise InputError.at(f"{where}.kind", "Node", wire.kind)
    metadata = wire.metadata or MetadataWire()
    status = wire.status or NodeStatusWire()
    info = status.node_info or NodeInfoWire()
    amounts = {
        name: in_units(name, parse_quantity(value, f"{where}.status.allocatable", name))
        for name, value in (status.allocatable or {}).items()
    }
    taints = tuple((wire.spec or NodeSpecWire()).taints or ())
    return NodeObject(metadata.name or "", metadata.labels or {}, info.kubelet_version or None, amounts, taints)
