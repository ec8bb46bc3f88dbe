"""Reads the machines that come with the package, each with its devices: `catalog_data/<name>.json`.

An entry has the keys of a scenario (`machine`, `devices`, `preferredSets`, `kubelet`), a `description`, and
maybe `pods`. What the devices mean is left to the device manager's provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.machine.machine_json import machine_from_dict

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

__all__ = ["CatalogEntry", "catalog_entries", "catalog_machines"]

_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A machine of the catalog, and the devices that its device plugins would report."""

    name: str
    description: str
    machine: Machine
    devices: Mapping[str, Any]
    """Resource name to a list of {`id`, `numa`}, as in scenarios."""
    preferred_sets: Mapping[str, Any]
    """Resource name to lists of ids, as in scenarios; mostly empty."""
    kubelet: Mapping[str, Any]
    """Fields of a KubeletConfiguration under which the machine shows what alignment is."""
    pods: tuple[Mapping[str, Any], ...]
    """Manifests of example pods; mostly none."""


class _Catalog(Mapping[str, CatalogEntry]):
    """The entries by name. An entry is read when it is looked up, and then kept."""

    def __init__(self) -> None:
        folder = resources.files("alignup.machine") / "catalog_data"
        self._files = {
            file.name.removesuffix(_SUFFIX): file
            for file in sorted(folder.iterdir(), key=lambda file: file.name)
            if file.name.endswith(_SUFFIX)
        }
        self._read: dict[str, CatalogEntry] = {}

    def __getitem__(self, name: str) -> CatalogEntry:
        entry = self._read.get(name)
        if entry is None:
            entry = self._read[name] = _entry(name, self._files[name].read_bytes())
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files


class _Machines(Mapping[str, "Machine"]):
    """The machines of a catalog, by name."""

    def __init__(self, entries: Mapping[str, CatalogEntry]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> Machine:
        return self._entries[name].machine

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _entry(name: str, text: bytes) -> CatalogEntry:
    """Return the entry that a file of the catalog holds."""
    data = msgspec.json.decode(text)
    return CatalogEntry(
        name=name,
        description=data["description"],
        machine=machine_from_dict(data["machine"], f"{name}.machine"),
        devices=data.get("devices", {}),
        preferred_sets=data.get("preferredSets", {}),
        kubelet=data.get("kubelet", {}),
        pods=tuple(data.get("pods", ())),
    )


@cache
def catalog_entries() -> Mapping[str, CatalogEntry]:
    """Return the catalog, sorted by name; to look up a name that is not there is a `KeyError`."""
    return _Catalog()


def catalog_machines() -> Mapping[str, Machine]:
    """Return the machines of the catalog by name; see `Machine.catalog`."""
    return _Machines(catalog_entries())
