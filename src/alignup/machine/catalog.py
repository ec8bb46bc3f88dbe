"""Reads the machines that come with the package, each with its devices: `catalog_data/<name>.json`.

An entry has the keys of a scenario (`machine`, `devices`, `preferredSets`, `kubelet`), and maybe `pods`; for
readers of the file a `description`, and `pcieTree`: who published where the devices are in the PCIe tree, or that
nobody has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from alignup.machine.loaded import LoadedMachine
from alignup.machine.machine import machine_from_dict

_SUFFIX: Final = ".json"
# importlib.resources and pathlib take longer to import than everything here takes
_FOLDER: Final = os.path.join(os.path.dirname(__file__), "catalog_data")  # noqa: PTH118, PTH120


class _Catalog(Mapping[str, LoadedMachine]):
    """Machines by name, each read when it is looked up."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def __repr__(self) -> str:
        return f"<catalog of machines: {', '.join(self)}>"

    def __getitem__(self, name: str) -> LoadedMachine:
        if name not in self._names:
            raise KeyError(name)
        return _read_entry(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def _read_entry(name: str) -> LoadedMachine:
    """Return the entry of a name that there is."""
    import msgspec  # noqa: PLC0415  # slow to import, and not needed for the names

    with open(os.path.join(_FOLDER, name + _SUFFIX), "rb") as file:  # noqa: PTH118, PTH123  # see `_FOLDER`
        data = msgspec.json.decode(file.read())
    machine = machine_from_dict(data["machine"], f"{name}: machine")
    return LoadedMachine(machine, pods=tuple(data.get("pods", ()))).completed(data, f"{name}: ")


@cache
def catalog_entries() -> Mapping[str, LoadedMachine]:
    """Return the catalog, sorted by name; to look up a name that is not there is a `KeyError`."""
    files = sorted(os.listdir(_FOLDER))  # noqa: PTH208  # see `_FOLDER`
    return _Catalog(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))
