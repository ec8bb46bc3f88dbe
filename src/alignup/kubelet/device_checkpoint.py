"""Reads `device-plugins/kubelet_internal_checkpoint`: the devices that containers hold, and those that are registered.

The format is that of Kubernetes 1.20 and later (`pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go`), in which the
devices of an entry are grouped by NUMA node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import InputError
from alignup.kubelet.checkpoints import Checkpoint, checksum_of, decode_checkpoint, list_text, map_text

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_NUMA_NODE: Final = -1
"""The group of the devices whose plugin reported no NUMA node."""

_NODE: Final = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """The devices of one resource that one container holds."""

    pod_uid: str
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]
    """Ids by kernel id of the NUMA node; see `NO_NUMA_NODE`. A device near several nodes is in several groups."""
    response: bytes
    """The plugin's ContainerAllocateResponse, as protobuf."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all devices, each once, sorted."""
        return tuple(sorted({identity for ids in self.devices.values() for identity in ids}))


@dataclass(frozen=True, slots=True)
class DeviceCheckpoint(Checkpoint):
    """The checkpoint that a device manager has written."""

    entries: tuple[DeviceEntry, ...]
    registered: Mapping[str, tuple[str, ...]]
    """By resource, the ids of the devices that were healthy when the file was written."""


class _Entry(msgspec.Struct, rename="pascal"):
    """The devices of a container on the wire."""

    pod_uid: str = msgspec.field(name="PodUID", default="")
    container_name: str = ""
    resource_name: str = ""
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: bytes | None = None


class _Data(msgspec.Struct, rename="pascal"):
    """The part that the checksum is of."""

    pod_device_entries: list[_Entry] | None = msgspec.field(default_factory=list)
    registered_devices: dict[str, list[str] | None] | None = msgspec.field(default_factory=dict)


class _Wire(msgspec.Struct, rename="pascal"):
    """The file on the wire."""

    data: _Data
    checksum: int = 0


def read_device_checkpoint(data: bytes, source: str = "kubelet_internal_checkpoint") -> DeviceCheckpoint:
    """Return the checkpoint in a file; whether its checksum is right is left to the caller.

    Args:
        data: the content of the file.
        source: its name in errors.

    Raises:
        InputError: it is no JSON, or of another shape.
    """
    wire = decode_checkpoint(data, _Wire, "the JSON of a device manager's checkpoint", source)
    entries = tuple(
        DeviceEntry(
            one.pod_uid,
            one.container_name,
            one.resource_name,
            {_node(key, source): tuple(ids or ()) for key, ids in (one.device_ids or {}).items()},
            one.alloc_resp or b"",
        )
        for one in wire.data.pod_device_entries or ()
    )
    return DeviceCheckpoint(
        entries,
        {resource: tuple(ids or ()) for resource, ids in (wire.data.registered_devices or {}).items()},
        checksum=wire.checksum,
        expected_checksum=checksum_of(_text(wire.data)),
    )


def _node(key: str, source: str) -> int:
    """Return the NUMA node of a group of devices."""
    if not _NODE.fullmatch(key):
        raise InputError.at(f"DeviceIDs in {source}", "ids of NUMA nodes", key)
    return int(key)


def _text(data: _Data) -> str:
    """Return the data as spew prints it."""
    registered = map_text(data.registered_devices, list_text)
    return (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        f"{list_text(data.pod_device_entries, _entry_text)} RegisteredDevices:(map[string][]string){registered}}}"
    )


def _entry_text(entry: _Entry) -> str:
    ids = None if entry.device_ids is None else {int(key): value for key, value in entry.device_ids.items()}
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} DeviceIDs:(checkpoint.DevicesPerNUMA){map_text(ids, list_text)} "
        f"AllocResp:([]uint8){list_text(entry.alloc_resp)}}}"
    )
