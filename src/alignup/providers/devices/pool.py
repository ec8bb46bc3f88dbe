"""The devices of one resource: where they are, which are given, and which a container gets next.

A set of devices is an int here: bit i is the i-th device of the inventory. Wherever the kubelet picks from an
unordered set, the device that the inventory lists first is taken, which is also the kubelet's most frequent
pick. Pods and containers are the business of `alignup.providers.devices.provider`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.errors import AllocationError
from alignup.topology_manager.hints import HintList, feasible_hints, smallest_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from alignup.machine.device_inventory import Device
    from alignup.providers.devices.plugin import Preference

__all__ = ["DevicePool"]


def first_bits(bits: int, count: int) -> int:
    """Return the lowest `count` one bits of `bits`, or all where there are fewer."""
    chosen = 0
    while bits and count:
        lowest = bits & -bits
        chosen |= lowest
        bits ^= lowest
        count -= 1
    return chosen


class DevicePool:
    """One resource: its inventory, which does not change, and the bit set `given` of devices that pods hold.

    Args:
        resource: The resource's name.
        devices: What the plugin reports, in its order.
        numa_ids: The kernel ids of the machine's NUMA nodes, by position.
        gone: Devices that the plugin no longer reports but that pods still hold.
        preference: How the plugin chooses among devices; None: it has no opinion.
    """

    def __init__(
        self,
        resource: str,
        devices: Sequence[Device],
        numa_ids: tuple[int, ...],
        gone: Sequence[Device] = (),
        preference: Preference | None = None,
    ) -> None:
        self.resource = resource
        self.devices = (*devices, *gone)
        self.preference = preference
        self.given = 0
        self.present = (1 << len(devices)) - 1
        self.healthy = sum(1 << i for i, device in enumerate(devices) if device.healthy)
        self.bit_of = {device.id: 1 << i for i, device in enumerate(self.devices)}
        self._numa_ids = numa_ids
        self._smallest: dict[int, int] = {}
        self._place_all()

    def _place_all(self) -> None:
        """Sort the devices by the set of nodes that they are near to, as masks of positions."""
        position = {numa_id: i for i, numa_id in enumerate(self._numa_ids)}
        places: dict[int, int] = {}
        anywhere = 0
        for index, device in enumerate(self.devices):
            if device.numa_nodes is None:
                anywhere |= 1 << index
                continue
            mask = sum(1 << position[numa_id] for numa_id in set(device.numa_nodes))
            places[mask] = places.get(mask, 0) | 1 << index
        self._nowhere = places.pop(0, 0)  # the plugin gave an empty list of nodes: near to none
        self._anywhere = anywhere  # the plugin gave no topology
        self._places = tuple(places)
        self._members = tuple(places.values())
        self._totals = [(bits & self.present).bit_count() for bits in self._members]
        self._universe = 0
        for mask, total in zip(self._places, self._totals, strict=True):
            self._universe |= mask if total else 0

    @property
    def free(self) -> int:
        """The devices that are healthy and that nobody holds."""
        return self.healthy & ~self.given

    @property
    def is_aligned(self) -> bool:
        """Whether any device is near to some node; else there is nothing to align."""
        return self._universe != 0

    @property
    def places(self) -> Iterator[tuple[int, int]]:
        """The masks of NUMA nodes that devices are near to, each with the bit set of these devices."""
        return zip(self._places, self._members, strict=True)

    def ids(self, bits: int) -> tuple[str, ...]:
        """Return the ids of a set of devices in the order of the inventory."""
        found = []
        while bits:
            lowest = bits & -bits
            found.append(self.devices[lowest.bit_length() - 1].id)
            bits ^= lowest
        return tuple(found)

    def bits(self, ids: Iterable[str]) -> int:
        """Return the set of those devices in `ids` that are in this pool."""
        found = 0
        for identity in ids:
            found |= self.bit_of.get(identity, 0)
        return found

    def hints(self, available: int, reusable: int, request: int) -> HintList | None:
        """Return the masks near which enough devices are; None where the resource has no topology.

        A mask counts the devices of either set that are near to one of its nodes, and must be near to every
        reusable device. Preferred masks have the size that sufficed if nobody held any device.

        Args:
            available: Devices that could be given.
            reusable: Devices that the container takes over from earlier ones of its pod.
            request: How many devices are needed.
        """
        if not self._universe:
            return None
        reusable &= self.present  # nobody can take over a device that is not there any more
        pool = available | reusable
        if pool.bit_count() < request:
            return HintList.empty()
        smallest = self._smallest.get(request)
        if smallest is None:
            smallest = self._smallest_size(request)
        amounts = [(pool & bits).bit_count() for bits in self._members]
        return feasible_hints(
            len(self._numa_ids),
            ((self._places, amounts, request),),
            universe=self._universe,
            preferred_size=smallest,
            touching=self._touched(reusable) if reusable else (),
        )

    def _smallest_size(self, request: int) -> int:
        """Return how many nodes suffice if nobody holds anything; all that have devices if none do."""
        demand = (self._places, self._totals, request)
        size = smallest_size(len(self._numa_ids), (demand,), self._universe) or self._universe.bit_count()
        if request <= len(self.devices):  # so that the memory of odd requests is bounded
            self._smallest[request] = size
        return size

    def _touched(self, bits: int) -> list[int]:
        """Return the places of a set of devices; for devices near to no node, one that no mask touches."""
        touched = [mask for mask, members in zip(self._places, self._members, strict=True) if members & bits]
        return [*touched, 0] if bits & self._nowhere else touched

    def choose(self, request: int, reusable: int, affinity: int | None) -> int:
        """Return the devices that a container gets; they are not yet marked as given.

        1. Devices that an init container of the pod leaves.
        2. Devices near to the affinity; where these are more than needed, the plugin's preference among them.
        3. Others: the plugin's preference first, then devices with nodes, then devices without.

        Args:
            request: How many devices are asked for.
            reusable: Devices that earlier containers of the pod leave to this one.
            affinity: The mask to be near to; None: anywhere.

        Raises:
            AllocationError: There are not so many.
        """
        if not self.healthy:
            raise AllocationError(
                f"no device of {self.resource} is healthy: {self.account(request, self.free)}"
            )
        chosen = first_bits(reusable & self.present, request)
        if chosen.bit_count() == request:
            return chosen
        available = self.free
        if available.bit_count() < request - chosen.bit_count():
            raise AllocationError(
                f"too few devices of {self.resource} are free: {self.account(request, self.free)}"
            )
        near = 0 if affinity is None else available & self._near(affinity)
        if request - chosen.bit_count() < near.bit_count():
            chosen = self._advised(near, chosen, request)
            return chosen | first_bits(near & ~chosen, request - chosen.bit_count())
        chosen |= near
        if chosen.bit_count() < request:
            chosen = self._advised(available, chosen, request)
        without = 0 if affinity is None else self._anywhere | self._nowhere
        for rest in (available & ~without, available & without):
            chosen |= first_bits(rest & ~chosen, request - chosen.bit_count())
        return chosen

    def _near(self, affinity: int) -> int:
        """Return the devices that are near to one of the nodes of a mask."""
        near = 0
        for mask, members in zip(self._places, self._members, strict=True):
            if mask & affinity:
                near |= members
        return near

    def _advised(self, choice: int, chosen: int, request: int) -> int:
        """Return `chosen` and what the plugin prefers on top out of `choice`, in its order, never too many.

        Raises:
            AllocationError: The plugin failed.
        """
        if self.preference is None:
            return chosen
        try:
            answer = self.preference(self.ids(choice | chosen), self.ids(chosen), request)
        except Exception as error:
            raise AllocationError(
                f"the plugin of {self.resource} has no preferred allocation: {error}"
            ) from error
        left = request - chosen.bit_count()
        for identity in answer:
            bit = self.bit_of.get(identity, 0) & choice & ~chosen
            if bit and left:
                chosen |= bit
                left -= 1
        return chosen

    def account(self, request: int, free: int, *, aligned: bool = False) -> str:
        """Return what was asked for and what was free where, for a message.

        Args:
            request: how many devices were asked for.
            free: those that were free.
            aligned: only devices near a NUMA node were of use.
        """
        lines = []
        for mask, members in zip(self._places, self._members, strict=True):
            ids = "+".join(str(node) for i, node in enumerate(self._numa_ids) if mask >> i & 1)
            lines.append((f"NUMA node{'s' if mask & (mask - 1) else ''} {ids}", members))
        near_none = self._anywhere | self._nowhere
        if not aligned:
            lines.append(("no NUMA node", near_none))
        there = [
            f"{(members & free).bit_count()} of {(members & self.present).bit_count()} on {name}"
            for name, members in lines
            if members & self.present
        ]
        sick = (self.present & ~self.healthy).bit_count()
        where, rest = "free", ""
        if aligned and near_none & self.present:
            where = "free near a NUMA node"
            rest = f"; {(near_none & free).bit_count()} free near none, which cannot be aligned"
            free &= ~near_none
        return (
            f"{request} asked, {free.bit_count()} {where}: {', '.join(there) or 'the plugin reports none'}"
            f"{f', {sick} unhealthy' if sick else ''}{rest}"
        )
