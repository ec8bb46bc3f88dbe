"""Reads the machines that come with the package, each with its devices: `catalog_data/<name>.json`.

An entry has the keys of a scenario (`machine`, `devices`, `preferredSets`, `kubelet`), a `description` for readers
of the file, and maybe `pods`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from alignup.machine.loaded import LoadedMachine
from alignup.machine.machine import machine_from_dict

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

_SUFFIX: Final = ".json"


class _Catalog(Mapping[str, LoadedMachine]):
    """The entries by name. An entry is read when it is looked up, and then kept."""

    def __init__(self) -> None:
        # importlib.resources and pathlib take longer to import than everything here takes
        folder = os.path.join(os.path.dirname(__file__), "catalog_data")  # noqa: PTH118, PTH120
        self._files = {
            name.removesuffix(_SUFFIX): os.path.join(folder, name)  # noqa: PTH118
            for name in sorted(os.listdir(folder))  # noqa: PTH208
            if name.endswith(_SUFFIX)
        }
        self._read: dict[str, LoadedMachine] = {}

    def __getitem__(self, name: str) -> LoadedMachine:
        entry = self._read.get(name)
        if entry is None:
            import msgspec  # noqa: PLC0415  # slow to import, and not needed for the names

            with open(self._files[name], "rb") as file:  # noqa: PTH123  # as above
                data = msgspec.json.decode(file.read())
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
    """The machines of the entries, by name."""

    def __repr__(self) -> str:
        return f"<catalog of machines: {', '.join(self)}>"

    def __getitem__(self, name: str) -> Machine:
        return catalog_entries()[name].machine

    def __iter__(self) -> Iterator[str]:
        return iter(catalog_entries())

    def __len__(self) -> int:
        return len(catalog_entries())


@cache
def catalog_entries() -> Mapping[str, LoadedMachine]:
    """Return the catalog, sorted by name; to look up a name that is not there is a `KeyError`."""
    return _Catalog()


def catalog_machines() -> Mapping[str, Machine]:
    """Return the machines of the catalog by name; see `Machine.catalog`."""
    return _Machines()
