"""Holds what a document about a machine describes: the machine, its devices, and an example of how it is used.

The documents are scenarios, `alignup machine --json` and the catalog's entries, decoded to plain objects before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from alignup.errors import InputError
from alignup.machine.device_inventory import Device, decode_inventory, decode_preferred_sets
from alignup.machine.machine_json import machine_from_dict

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

__all__ = ["LoadedMachine", "machine_with_devices_from_dict", "mapping_under"]


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


def machine_with_devices_from_dict(data: Mapping[str, Any], source: str = "") -> LoadedMachine:
    """Return the machine under `machine`, with `devices`, `preferredSets`, `kubelet` and `pods` beside it.

    All but `machine` may be missing or null.

    Args:
        data: a decoded document; other keys are ignored.
        source: the name of the document in errors; empty: they name the place in it only.

    Raises:
        InputError: one of the parts is not of its form; see `machine_from_dict`, `decode_inventory` and
            `decode_preferred_sets`.
    """
    before = f"{source}: " if source else ""
    machine = machine_from_dict(data["machine"], f"{before}machine")
    devices = decode_inventory(mapping_under(data, "devices", before), machine, f"{before}devices")
    sets = decode_preferred_sets(
        mapping_under(data, "preferredSets", before), devices, f"{before}preferredSets"
    )
    return LoadedMachine(
        machine, devices, sets, mapping_under(data, "kubelet", before), tuple(data.get("pods") or ())
    )


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
