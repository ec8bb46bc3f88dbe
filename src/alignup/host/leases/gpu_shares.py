"""Knows which GPUs leases have under which names: whole, or in shares.

NVIDIA's driver, and its device plugin, name a GPU by its UUID; with time slicing or MPS the plugin
names shares of it, `UUID::N`. A lease from before the plugin has registered, or was set up anew,
has the GPU under the other kind of name. Nobody else is to get it then under this one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from alignup.host.parts.visible_devices import is_uuid, whole_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.machine.device_inventory import Device

# Why nobody gets such a device.
OTHER_NAME: Final = "leases have the same GPUs under other names"


class GpuShares:
    """The GPUs that leases have, and the devices of an inventory that are the same GPUs."""

    __slots__ = ("_by_lease", "_devices_by_gpu", "_whole", "_with_shares")

    def __init__(self) -> None:
        # By lease, the ids of its GPUs.
        self._by_lease: dict[str, tuple[str, ...]] = {}
        # How many leases have a GPU as a whole, and how often shares of it.
        self._whole = Counter[str]()
        self._with_shares = Counter[str]()
        # By resource and UUID, the ids of a GPU in the inventory.
        self._devices_by_gpu: dict[str, dict[str, list[str]]] = {}

    def report(self, resource: str, devices: Sequence[Device]) -> None:
        """Take over the devices of a resource."""
        by_gpu: dict[str, list[str]] = {}
        for device in devices:
            if is_uuid(device.id):
                by_gpu.setdefault(whole_gpu(device.id), []).append(device.id)
        self._devices_by_gpu[resource] = by_gpu

    def take(self, lease_id: str, devices: Mapping[str, Iterable[str]]) -> None:
        """Note the devices of a lease."""
        ids = tuple(
            device_id
            for of_resource in devices.values()
            for device_id in of_resource
            if is_uuid(device_id)
        )
        if not ids:
            return

        self._by_lease[lease_id] = ids
        for device_id in ids:
            self._counts(device_id)[whole_gpu(device_id)] += 1

    def release(self, lease_id: str) -> None:
        """Forget a lease."""
        for device_id in self._by_lease.pop(lease_id, ()):
            counts = self._counts(device_id)
            gpu = whole_gpu(device_id)
            counts[gpu] -= 1
            if not counts[gpu]:
                del counts[gpu]

    def taken(self, resource: str) -> set[str]:
        """Return the ids of a resource that are GPUs which leases have under other names.

        That are all shares of a GPU that is a lease's as a whole, and the whole of one of which
        leases have shares.
        """
        by_gpu = self._devices_by_gpu.get(resource)
        if not by_gpu:
            return set()

        ids = {device_id for gpu in self._whole for device_id in by_gpu.get(gpu, ())}
        taken = {device_id for device_id in ids if device_id != whole_gpu(device_id)}
        return taken | {gpu for gpu in self._with_shares if gpu in by_gpu.get(gpu, ())}

    def _counts(self, device_id: str) -> Counter[str]:
        """Return the counts to which a device belongs."""
        return self._whole if device_id == whole_gpu(device_id) else self._with_shares
