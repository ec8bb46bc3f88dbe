"""Holds what a document about a machine describes: the machine, its devices, and an example of how it is used.

The documents are scenarios, `alignup machine --json` and the catalog's entries, decoded to plain objects before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.machine.device_inventory import (
    Device,
    decode_inventory,
    decode_preferred_sets,
    inventory_to_dict,
)
from alignup.machine.machine_json import machine_from_dict

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

__all__ = [
    "EXTRA_KEYS",
    "LoadedMachine",
    "described_machine",
    "machine_with_devices_from_dict",
    "mapping_under",
]

EXTRA_KEYS: Final = ("devices", "preferredSets", "kubelet")
"""The keys, besides the machine, that a machine object, a scenario and a node line have in common."""


@dataclass(frozen=True, slots=True)
class LoadedMachine:
    """A machine with its devices; all but the machine is mostly empty."""

    machine: Machine
    devices: Mapping[str, Sequence[Device]] = field(default_factory=dict)
    """By resource."""
    preferred_sets: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    """By resource, sets of device ids that go well together, the best first."""
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a KubeletConfiguration that goes with the machine; not decoded yet."""
    pods: tuple[Mapping[str, Any], ...] = ()
    """Manifests of example pods; not decoded yet."""

    def with_devices(
        self,
        devices: Mapping[str, Sequence[Device]],
        preferred_sets: Mapping[str, Sequence[Sequence[str]]] | None = None,
    ) -> LoadedMachine:
        """Return this machine with other devices of some resources; their preferred sets go with the devices."""
        kept = {resource: sets for resource, sets in self.preferred_sets.items() if resource not in devices}
        return replace(
            self, devices={**self.devices, **devices}, preferred_sets={**kept, **(preferred_sets or {})}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the machine object that `described_machine` reads, with those of `EXTRA_KEYS` that hold something."""
        sets = {resource: [list(ids) for ids in found] for resource, found in self.preferred_sets.items()}
        extras = zip(EXTRA_KEYS, (inventory_to_dict(self.devices), sets, self.kubelet), strict=True)
        return {**self.machine.to_dict(), **{key: extra for key, extra in extras if extra}}


def described_machine(described: object, where: str = "machine") -> LoadedMachine:
    """Return the machine that a name of the catalog or a machine object describes.

    Args:
        described: a name, or an object as `Machine.from_dict` takes it, with any of `EXTRA_KEYS`.
        where: the name of the machine in errors.

    Raises:
        InputError: there is no machine of that name, or the object is not of its form.
    """
    if isinstance(described, str):
        from alignup.machine.catalog import catalog_entries  # noqa: PLC0415  # which reads its entries by this module

        entries = catalog_entries()
        if described not in entries:
            expected = f"a machine object, or one of the catalog: {', '.join(entries)}"
            raise InputError.at(where, expected, described)
        return entries[described]
    if not isinstance(described, Mapping):
        raise InputError.at(where, "a mapping", described)
    return _completed(LoadedMachine(machine_from_dict(described, where)), described, f"{where}.")


def machine_with_devices_from_dict(data: Mapping[str, Any], source: str = "") -> LoadedMachine:
    """Return the machine under `machine`, with `devices`, `preferredSets`, `kubelet` and `pods` beside it.

    All but `machine` may be missing or null. The first three are then those that come with the machine; devices of
    their own bring their own preferred sets, or none.

    Args:
        data: a decoded document; other keys are ignored.
        source: the name of the document in errors; empty: they name the place in it only.

    Raises:
        InputError: one of the parts is not of its form; see `described_machine`, `decode_inventory` and
            `decode_preferred_sets`.
    """
    before = f"{source}: " if source else ""
    found = _completed(described_machine(data["machine"], f"{before}machine"), data, before)
    return replace(found, pods=tuple(data["pods"])) if data.get("pods") else found


def _completed(loaded: LoadedMachine, own: Mapping[str, Any], before: str) -> LoadedMachine:
    """Return the machine with those of `EXTRA_KEYS` that a document has of its own."""
    if own.get("devices") is not None:
        devices = decode_inventory(mapping_under(own, "devices", before), loaded.machine, f"{before}devices")
        loaded = replace(loaded, devices=devices, preferred_sets={})
    if own.get("preferredSets") is not None:
        wanted = mapping_under(own, "preferredSets", before)
        sets = decode_preferred_sets(wanted, loaded.devices, f"{before}preferredSets")
        loaded = replace(loaded, preferred_sets=sets)
    if own.get("kubelet") is not None:
        loaded = replace(loaded, kubelet=mapping_under(own, "kubelet", before))
    return loaded


def mapping_under(data: Mapping[str, Any], key: str, before: str = "") -> Mapping[str, Any]:
    """Return the mapping under a key, empty if it is missing or null; errors put `before` before the key.

    Raises:
        InputError: the value is not a mapping.
    """
    found = data.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InputError.at(f"{before}{key}", "a mapping", found)
    return found
