"""The record of a machine with what came with it: devices, a kubelet's configuration, example pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alignup.errors import InputError
from alignup.machine.device_inventory import Device, decode_inventory, decode_preferred_sets, inventory_to_dict
from alignup.records import Record, field, replace

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Any, Final

    from alignup.machine.machine import Machine

# The keys, besides the machine, that a machine object, a scenario and a node line have in common.
EXTRA_KEYS: Final = ("devices", "preferredSets", "kubelet")


class LoadedMachine(Record):
    """A machine with its devices; all but the machine is mostly empty.

    Attributes:
        devices: by resource.
        preferred_sets: by resource, sets of device ids that go well together, the best first.
        kubelet: fields of a KubeletConfiguration that goes with the machine; not decoded yet.
        pods: manifests of example pods; not decoded yet.
    """

    machine: Machine
    devices: Mapping[str, Sequence[Device]] = field(default_factory=dict)
    preferred_sets: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    pods: tuple[Mapping[str, Any], ...] = ()

    def with_devices(
        self,
        devices: Mapping[str, Sequence[Device]],
        preferred_sets: Mapping[str, Sequence[Sequence[str]]] | None = None,
    ) -> LoadedMachine:
        """Return this machine with other devices of some resources; their preferred sets go with the devices."""
        kept = {resource: sets for resource, sets in self.preferred_sets.items() if resource not in devices}
        return replace(self, devices={**self.devices, **devices}, preferred_sets={**kept, **(preferred_sets or {})})

    def completed(self, own: Mapping[str, Any], before: str = "") -> LoadedMachine:
        """Return this machine with those of `EXTRA_KEYS` that a document has of its own.

        Devices of its own bring their own preferred sets, or none.

        Args:
            own: a decoded document; null counts as missing.
            before: the text that errors put before the key.

        Raises:
            InputError: a value is not of its form; see `decode_inventory` and `decode_preferred_sets`.
        """
        devices, sets, kubelet = self.devices, self.preferred_sets, self.kubelet
        if own.get("devices") is not None:
            devices = decode_inventory(mapping_under(own, "devices", before), self.machine, f"{before}devices")
            sets = {}
        if own.get("preferredSets") is not None:
            sets = decode_preferred_sets(mapping_under(own, "preferredSets", before), devices, f"{before}preferredSets")
        if own.get("kubelet") is not None:
            kubelet = mapping_under(own, "kubelet", before)
        return replace(self, devices=devices, preferred_sets=sets, kubelet=kubelet)

    def to_dict(self) -> dict[str, Any]:
        """Return the machine object that `described_machine` reads, with those of `EXTRA_KEYS` that hold something."""
        sets = {resource: [list(ids) for ids in found] for resource, found in self.preferred_sets.items()}
        extras = zip(EXTRA_KEYS, (inventory_to_dict(self.devices), sets, self.kubelet), strict=True)
        return {**self.machine.to_dict(), **{key: extra for key, extra in extras if extra}}


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
