"""Reads the machine that a user names by `--machine`: one of the catalog, a folder, or a file of some kind.

Each kind has a module that reads it, which is imported when it is needed: a command on the machine at hand should
start at once.
"""

from __future__ import annotations

import os
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.machine.described import described_machine, machine_with_devices_from_dict
from alignup.machine.loaded import LoadedMachine

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HERE", "load_machine"]

HERE: Final = "/"
"""The source that is the machine at hand."""

_MAX_FILE: Final = 16 << 20
_HEAD: Final = 512
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def load_machine(source: str) -> LoadedMachine:
    """Return the machine that `source` names.

    It is, in this order: the name of a machine of the catalog (`./name` is a file), a directory with `sys`
    and `proc` in it, or a file: a snapshot, hwloc's XML, or JSON, which is a machine as `alignup machine
    --json` prints it, or anything that has one under the key `machine`, such as a scenario.

    Raises:
        InputError: there is no such machine, or it cannot be read.
    """
    entries = _catalog() if os.sep not in source else {}
    if source in entries:
        return entries[source]
    path = Path(source)
    if path.is_dir():
        from alignup.machine.sysfs.machine import read_machine  # noqa: PLC0415  # see the module

        return LoadedMachine(read_machine(path))
    if not path.exists():
        raise InputError.at("--machine", f"a file, a directory or one of {', '.join(_catalog())}", source)
    return _load_file(path, source)


def _catalog() -> Mapping[str, LoadedMachine]:
    """Return the machines that come with the package."""
    from alignup.machine.catalog import catalog_entries  # noqa: PLC0415  # see the module

    return catalog_entries()


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
    from alignup.machine.snapshot import is_snapshot, load_snapshot  # noqa: PLC0415  # see the module

    if is_snapshot(data[:_HEAD]):
        from alignup.machine.sysfs.machine import describe  # noqa: PLC0415  # see the module

        return LoadedMachine(describe(load_snapshot(path)))
    text = data.removeprefix(_BYTE_ORDER_MARK)
    if text.lstrip()[:1] == b"<":
        from alignup.machine.hwloc_xml import machine_from_hwloc_xml  # noqa: PLC0415  # see the module

        return LoadedMachine(machine_from_hwloc_xml(text, source))
    return _load_json(text, source)


def _load_json(text: bytes, source: str) -> LoadedMachine:
    """Return the machine in a JSON document, and its devices."""
    from alignup.text.json_text import decode_json  # noqa: PLC0415  # see the module

    document: Any = decode_json(text, "a machine: JSON, hwloc's XML or a snapshot", source)
    if not isinstance(document, dict) or not {"machine", "numaNodes"} & document.keys():
        raise InputError(
            f"expected a mapping with 'numaNodes' or 'machine', got {_kind(document)} at {source}"
        )
    if "numaNodes" in document:
        return described_machine(document, source)
    return machine_with_devices_from_dict(document, source)


def _kind(document: object) -> str:
    """Return in words what a document is that is no machine."""
    if isinstance(document, dict):
        return f"one with {', '.join(map(repr, list(document)[:5])) or 'nothing in it'}"
    return reprlib.repr(document)[:40]
