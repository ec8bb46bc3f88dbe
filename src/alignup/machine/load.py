"""Finds out what a user means by `--machine` and reads it: a name, a folder, or a file of some kind.

Each kind has a module that reads it. The devices that some of them carry are handed on as they are.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.machine.catalog import catalog_entries
from alignup.machine.hwloc_xml import machine_from_hwloc_xml
from alignup.machine.machine_json import machine_from_dict
from alignup.machine.snapshot import is_snapshot, load_snapshot
from alignup.machine.sysfs.machine import describe, read_machine
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

__all__ = ["LoadedMachine", "load_machine"]

_MAX_FILE: Final = 64 << 20
_HEAD: Final = 512
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LoadedMachine:
    """A machine, and the devices that came with it; both mappings are as in scenarios, and mostly empty."""

    machine: Machine
    devices: Mapping[str, Any] = field(default_factory=dict)
    """Resource name to a list of {`id`, `numa`}. Not checked."""
    preferred_sets: Mapping[str, Any] = field(default_factory=dict)
    """Resource name to lists of ids. Not checked."""
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a KubeletConfiguration that goes with the machine. Not checked."""
    pods: tuple[Mapping[str, Any], ...] = ()
    """Manifests of example pods. Not checked."""


def load_machine(source: str) -> LoadedMachine:
    """Return the machine that `source` names.

    It is, in this order: the name of a machine of the catalog (`./name` is a file), a directory with `sys`
    and `proc` in it, or a file: a snapshot, hwloc's XML, or JSON, which is a machine as `alignup machine
    --json` prints it, or anything that has one under the key `machine`, such as a scenario.

    Raises:
        InputError: There is no such machine, or it cannot be read.
    """
    entries = catalog_entries()
    if source in entries:
        entry = entries[source]
        return LoadedMachine(entry.machine, entry.devices, entry.preferred_sets, entry.kubelet, entry.pods)
    path = Path(source)
    if path.is_dir():
        return LoadedMachine(read_machine(path))
    if not path.exists():
        raise InputError.at("--machine", f"a file, a directory or one of {', '.join(entries)}", source)
    return _load_file(path, source)


def _load_file(path: Path, source: str) -> LoadedMachine:
    """Return the machine in a file, by what its content looks like."""
    try:
        with path.open("rb") as file:
            # a device such as /dev/zero has no size, and no end
            data = file.read(_MAX_FILE + 1)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"expected a file with a machine, got {error.strerror!r} at {source}") from error
    if len(data) > _MAX_FILE:
        raise InputError.at(source, f"a machine of up to {_MAX_FILE} bytes", max(size, len(data)))
    if is_snapshot(data[:_HEAD]):
        return LoadedMachine(describe(load_snapshot(path)))
    text = data.removeprefix(_BYTE_ORDER_MARK)
    if text.lstrip()[:1] == b"<":
        return LoadedMachine(machine_from_hwloc_xml(text, source))
    return _load_json(text, source)


def _load_json(text: bytes, source: str) -> LoadedMachine:
    """Return the machine in a JSON document, and its devices."""
    document: Any = decode_json(text, "a machine: JSON, hwloc's XML or a snapshot", source)
    if not isinstance(document, dict) or not {"machine", "numaNodes"} & document.keys():
        raise InputError(
            f"expected a mapping with 'numaNodes' or 'machine', got {_kind(document)} at {source}"
        )
    if "numaNodes" in document:
        return LoadedMachine(machine_from_dict(document, source))
    return LoadedMachine(
        machine_from_dict(document["machine"], f"{source}: machine"),
        _mapping(document, "devices", source),
        _mapping(document, "preferredSets", source),
        _mapping(document, "kubelet", source),
    )


def _kind(document: object) -> str:
    """Return in words what a document is instead."""
    if isinstance(document, dict):
        return f"one with {', '.join(map(repr, list(document)[:5])) or 'nothing in it'}"
    return reprlib.repr(document)[:40]


def _mapping(document: dict[str, Any], key: str, source: str) -> Mapping[str, Any]:
    """Return the mapping under a key, empty if it is missing or null."""
    found = document.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InputError.at(f"{source}: {key}", "a mapping of resource names", found)
    return found
