"""Reads the machines that come with the package, each with its devices: `catalog_data/<name>.json`.

An entry has the keys of a scenario (`machine`, `devices`, `preferredSets`, `kubelet`), a `description` for readers
of the file, and maybe `pods`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from alignup.machine.loaded import LoadedMachine
from alignup.machine.machine import Machine, machine_from_dict

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

    def __getitem__(self, name: str) -> LoadedMachine:
        return _read_entry(name, self._files[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files


@cache
def _read_entry(name: str, path: str) -> LoadedMachine:
    """Return the entry of a name, which is in this file."""
    import msgspec  # noqa: PLC0415  # slow to import, and not needed for the names

    with open(path, "rb") as file:  # noqa: PTH123  # as above
        data = msgspec.json.decode(file.read())
    machine = machine_from_dict(data["machine"], f"{name}: machine")
    return LoadedMachine(machine, pods=tuple(data.get("pods", ()))).completed(data, f"{name}: ")


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
