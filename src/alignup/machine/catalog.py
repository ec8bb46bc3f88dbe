"""Reads the machines that come with the package, each with its devices: `catalog_data/<name>.json`.

An entry has the keys of a scenario (`machine`, `devices`, `preferredSets`, `kubelet`), a `description` for readers
of the file, and maybe `pods`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.machine.loaded import LoadedMachine
from alignup.machine.machine import machine_from_dict

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

__all__ = ["catalog_entries", "catalog_machines"]

_SUFFIX: Final = ".json"


class _Catalog(Mapping[str, LoadedMachine]):
    """The entries by name. An entry is read when it is looked up, and then kept."""

    def __init__(self) -> None:
        folder = resources.files("alignup.machine") / "catalog_data"
        self._files = {
            file.name.removesuffix(_SUFFIX): file
            for file in sorted(folder.iterdir(), key=lambda file: file.name)
            if file.name.endswith(_SUFFIX)
        }
        self._read: dict[str, LoadedMachine] = {}

    def __getitem__(self, name: str) -> LoadedMachine:
        entry = self._read.get(name)
        if entry is None:
            data = msgspec.json.decode(self._files[name].read_bytes())
            machine = machine_from_dict(data["machine"], f"{name}: machine")
            entry = LoadedMachine(machine, pods=tuple(data.get("pods", ()))).completed(data, f"{name}: ")
            self._read[name] = entry
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files


class _Machines(Mapping[str, "Machine"]):
    """The machines of a catalog, by name."""

    def __init__(self, entries: Mapping[str, LoadedMachine]) -> None:
        self._entries = entries

    def __repr__(self) -> str:
        return f"<catalog of machines: {', '.join(self)}>"

    def __getitem__(self, name: str) -> Machine:
        return self._entries[name].machine

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@cache
def catalog_entries() -> Mapping[str, LoadedMachine]:
    """Return the catalog, sorted by name; to look up a name that is not there is a `KeyError`."""
    return _Catalog()


def catalog_machines() -> Mapping[str, Machine]:
    """Return the machines of the catalog by name; see `Machine.catalog`."""
    return _Machines(catalog_entries())
