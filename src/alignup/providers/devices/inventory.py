"""The devices of one resource: which are given, and what the plugin prefers among them.

A set of devices is an int here: bit i is the i-th device of the inventory. Near to which NUMA nodes
devices are and which of them is next is decided in the compiled
`alignup.core.amounts.device_allocation`; pods and containers are known to
`alignup.providers.devices.provider`. A plugin may advise on the choice (GetPreferredAllocation of
KEP-693); advice that makes no sense is ignored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger, DeviceShortage
from alignup.errors import AllocationError, text_of
from alignup.machine.bits import bit_numbers, bit_set, ids_of, union
from alignup.records import replace
from alignup.text.counting import counted, free_in, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from alignup.machine.device_inventory import Device


class _Inventory:
    """The devices of one resource, which pools of equal nodes share."""

    __slots__ = ("amounts", "bit_of", "devices")

    def __init__(
        self,
        devices: tuple[Device, ...],
        reported: int,
        numa_ids: tuple[int, ...],
        *,
        over_all_nodes: bool,
    ) -> None:
        self.devices = devices
        self.bit_of = {device.id: 1 << i for i, device in enumerate(devices)}

        position = {numa_id: i for i, numa_id in enumerate(numa_ids)}
        places: list[int | None] = []
        for device in devices:
            if device.numa_nodes is None:
                places.append(None)
            else:
                places.append(bit_set(position[numa_id] for numa_id in device.numa_nodes))

        healthy = bit_set(i for i, device in enumerate(devices[:reported]) if device.healthy)
        is_aligned = any(device.has_only_unknown_nodes for device in devices[:reported])
        self.amounts = DeviceInventory(
            len(numa_ids),
            places,
            healthy,
            reported,
            over_all_nodes=over_all_nodes,
            is_aligned=is_aligned,
        )


_shared_inventory = lru_cache(maxsize=256)(_Inventory)


class DevicePool:
    """One resource: its inventory, which does not change, and which of its devices pods hold.

    Args:
        resource: the resource's name.
        devices: what the plugin reports, in its order.
        numa_ids: the kernel ids of the machine's NUMA nodes, by position.
        unreported: devices that the plugin no longer reports but that pods still hold.
        preference: how the plugin chooses among devices; None: it has no opinion.
        over_all_nodes: offer masks of all NUMA nodes, not only of those near to some device.
    """

    __slots__ = (
        "_hidden",
        "_inventory",
        "_numa_ids",
        "_over_all_nodes",
        "_why_hidden",
        "ledger",
        "preference",
        "resource",
    )

    def __init__(
        self,
        resource: str,
        devices: Iterable[Device],
        numa_ids: tuple[int, ...],
        unreported: Iterable[Device] = (),
        preference: Preference | None = None,
        *,
        over_all_nodes: bool = False,
    ) -> None:
        self.resource = resource
        self.preference = preference
        self._numa_ids = numa_ids
        self._over_all_nodes = over_all_nodes
        # Devices that are not given, though they are well, and why.
        self._hidden = 0
        self._why_hidden = ""

        reported = tuple(devices)
        self._inventory = _shared_inventory(
            (*reported, *unreported), len(reported), numa_ids, over_all_nodes=over_all_nodes
        )
        self.ledger = DeviceLedger(self._inventory.amounts)

    def copy(self) -> DevicePool:
        """Return an independent pool in which the same devices are given."""
        duplicate = DevicePool.__new__(DevicePool)
        duplicate.resource = self.resource
        duplicate.preference = self.preference
        duplicate._numa_ids = self._numa_ids
        duplicate._over_all_nodes = self._over_all_nodes
        duplicate._hidden = self._hidden
        duplicate._why_hidden = self._why_hidden
        duplicate._inventory = self._inventory
        duplicate.ledger = self.ledger.copy()
        return duplicate

    def hiding(self, hidden_ids: AbstractSet[str], reason: str) -> DevicePool:
        """Return a pool in which the same devices are given, and some others are not to be given.

        Sets of devices are the same in both. Hidden devices count as if they were not well.

        Args:
            hidden_ids: which.
            reason: why, for messages.
        """
        reported_count = len(self.reported)
        devices = [
            replace(device, healthy=False) if device.id in hidden_ids else device
            for device in self.devices
        ]
        pool = DevicePool(
            self.resource,
            devices[:reported_count],
            self._numa_ids,
            devices[reported_count:],
            self.preference,
            over_all_nodes=self._over_all_nodes,
        )
        pool._hidden = self.healthy & ~pool.healthy
        pool._why_hidden = reason
        pool.ledger.give(self.ledger.given)
        return pool

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices by their bit, those that are gone included."""
        return self._inventory.devices

    @property
    def reported(self) -> tuple[Device, ...]:
        """The devices that the plugin reports, in its order."""
        return self._inventory.devices[: self._inventory.amounts.present.bit_count()]

    @property
    def healthy(self) -> int:
        """The devices that the plugin reports as healthy."""
        return self._inventory.amounts.healthy

    def knows(self, identity: str) -> bool:
        """Return whether a device of this id is in the inventory."""
        return identity in self._inventory.bit_of

    @property
    def places(self) -> Iterator[tuple[int, int]]:
        """The masks of NUMA nodes that devices are near to, each with these devices' bit set."""
        return ((mask, members) for mask, members in self._inventory.amounts.places() if mask)

    def ids(self, bits: int) -> tuple[str, ...]:
        """Return the ids of a set of devices in the order of the inventory."""
        devices = self._inventory.devices
        return tuple([devices[bit].id for bit in bit_numbers(bits)])

    def sorted_ids(self, bits: int) -> tuple[str, ...]:
        """Return the ids of a set of devices in ascending order."""
        if bits & (bits - 1) == 0 and bits:
            return (self._inventory.devices[bits.bit_length() - 1].id,)
        return tuple(sorted(self.ids(bits)))

    def bits(self, ids: Iterable[str]) -> int:
        """Return the set of those devices in `ids` that are in this pool."""
        return union(self._inventory.bit_of.get(identity, 0) for identity in ids)

    def choose(self, request: int, reusable: int, affinity: int | None) -> int:
        """Return the devices that a container gets; they are not yet marked as given.

        1. Devices that an init container of the pod leaves.
        2. Devices near to the affinity; where these are more than needed, the plugin's preference
           among them.
        3. Others: the plugin's preference first, then devices with nodes, then devices without.

        Args:
            request: how many devices are asked for.
            reusable: devices that earlier containers of the pod leave to this one.
            affinity: the mask to be near to; None: anywhere.

        Raises:
            AllocationError: there are not so many, or the plugin failed.
        """
        advise = self._advised if self.preference else None
        chosen = self.ledger.choose(request, reusable, affinity, advise)
        if isinstance(chosen, DeviceShortage):
            if chosen.cause == "too few":
                reason = f"too few devices of {self.resource} are free"
            elif self._hidden:
                reason = f"no device of {self.resource} may be chosen"
            else:
                reason = f"no device of {self.resource} is healthy"

            account = self.account(request, self.ledger.free)
            raise AllocationError(f"{reason}: {account}", resources=(self.resource,))

        return chosen

    def _advised(self, choice: int, chosen: int, request: int) -> int:
        """Return `chosen` and what the plugin prefers on top out of `choice`.

        Devices are added in the plugin's order, never more than requested.

        Raises:
            AllocationError: the plugin failed.
        """
        assert self.preference is not None  # noqa: S101  # asked only then
        try:
            preferred_ids = self.preference(self.ids(choice | chosen), self.ids(chosen), request)
        except Exception as error:
            raise AllocationError(
                f"the plugin of {self.resource} has no preferred allocation: {text_of(error)}",
                resources=(self.resource,),
            ) from error

        missing = request - chosen.bit_count()
        for identity in preferred_ids:
            bit = self._inventory.bit_of.get(identity, 0) & choice & ~chosen
            if bit and missing:
                chosen |= bit
                missing -= 1

        return chosen

    def account(self, request: int, free: int, *, aligned: bool = False) -> str:
        """Return what was asked for and what was free where, for a message.

        Args:
            request: how many devices were asked for.
            free: those that were free.
            aligned: only devices near a NUMA node were of use.
        """
        present = self._inventory.amounts.present
        *places, (_, near_none) = self._inventory.amounts.places()
        groups = [
            (named("on NUMA node", ids_of(mask, self._numa_ids)), members)
            for mask, members in places
        ]
        usable = present
        unaligned = 0
        if aligned:
            usable = present & ~near_none
            unaligned = (near_none & free).bit_count()
        else:
            groups.append(("without a NUMA node", near_none))

        free_counts = [
            (place, (members & free).bit_count()) for place, members in groups if members & present
        ]
        text = f"{request} asked, "
        text += free_in(free_counts, usable.bit_count()) if present else "the plugin reports none"

        unhealthy = (present & ~self.healthy & ~self._hidden).bit_count()
        if unhealthy:
            text += f", {unhealthy} unhealthy"
        if self._hidden:
            text += f", {self._hidden.bit_count()} hidden ({self._why_hidden})"
        if unaligned:
            unaligned_devices = counted(unaligned, "other free device")
            text += f"; {unaligned_devices} without a NUMA node cannot be aligned"

        return text


# (available, must_include, size) -> the preferred ids, as `DevicePlugin.preferred_allocation`.
Preference: TypeAlias = "Callable[[Sequence[str], Sequence[str], int], Sequence[str]]"


@runtime_checkable
class DevicePlugin(Protocol):
    """Somebody who knows which devices of a resource work well together."""

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Return the `size` ids out of `available` that are best had together.

        Args:
            available: Ids to choose from: those that the affinity admits, and those of
                `must_include`.
            must_include: Ids that the container has already.
            size: How many it is to have in all.
        """


class PreferredSets:
    """A plugin that knows sets of devices that belong together, such as GPUs joined by a link.

    Starting from the ids that must be included, it goes through the sets in order and adds each one
    that is wholly available and still fits; then it fills up with the remaining ids in ascending
    order.

    Examples:
        >>> pairs = PreferredSets([["gpu-0", "gpu-3"], ["gpu-1", "gpu-2"]])
        >>> pairs.preferred_allocation(["gpu-1", "gpu-2", "gpu-3"], [], 2)
        ['gpu-1', 'gpu-2']
    """

    __slots__ = ("sets",)

    def __init__(self, sets: Iterable[Iterable[str]]) -> None:
        self.sets = tuple(frozenset(ids) for ids in sets)

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Return the preferred ids, ascending; see the class for the rule."""
        choice = frozenset(available)
        chosen = set(must_include)
        for ids in self.sets:
            if ids <= choice and len(ids | chosen) <= size:
                chosen |= ids

        missing = max(0, size - len(chosen))
        return sorted([*chosen, *sorted(choice - chosen)[:missing]])


def preference_of(plugin: DevicePlugin | Preference) -> Preference:
    """Return the function to ask, of a plugin object or of a plain callable.

    Raises:
        TypeError: `plugin` is neither.
    """
    if isinstance(plugin, DevicePlugin):
        return plugin.preferred_allocation
    if callable(plugin):
        return plugin
    raise TypeError(f"expected a callable or an object with preferred_allocation, got {plugin!r}")
