"""The devices of one resource as plain Python keeps them.

Sets are ints, bit i is the i-th device of the inventory.

Written after the kubelet's device manager. Where it picks from an unordered set, the device listed
first is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def first(devices: int, count: int) -> int:
    """Return the lowest devices, so many, or all where there are fewer."""
    chosen = 0
    for index in range(devices.bit_length()):
        if devices >> index & 1 and chosen.bit_count() < count:
            chosen |= 1 << index
    return chosen


class Devices:
    """Places are masks of NUMA nodes by device.

    None: the plugin reported no topology, 0: near to no node.
    """

    def __init__(
        self, nodes: int, places: Sequence[int | None], healthy: int, reported: int
    ) -> None:
        self.nodes = nodes
        self.places = list(places)
        self.healthy = healthy
        self.present = (1 << reported) - 1
        self.given = 0
        self.universe = 0
        for place in places[:reported]:
            self.universe |= place or 0

    @property
    def free(self) -> int:
        return self.healthy & ~self.given

    def near(self, devices: int, mask: int) -> int:
        """Return those of the devices that are near to one of the nodes."""
        return sum(
            1 << index
            for index, place in enumerate(self.places)
            if devices >> index & 1 and place and place & mask
        )

    def hints(
        self, request: int, reusable: int = 0, available: int | None = None
    ) -> dict[int, bool] | None:
        """Return every mask near which enough devices are.

        And whether it is as small as is possible.
        """
        if not self.universe:
            return None

        reusable &= self.present
        pool = (self.free if available is None else available) | reusable
        if pool.bit_count() < request:
            return {}

        masks = [mask for mask in range(1, 1 << self.nodes) if not mask & ~self.universe]
        sizes = [
            mask.bit_count()
            for mask in masks
            if self.near(self.present, mask).bit_count() >= request
        ]
        size = min(sizes, default=self.universe.bit_count())
        return {
            mask: mask.bit_count() == size
            for mask in masks
            if self.near(pool, mask).bit_count() >= request and self.reaches(mask, reusable)
        }

    def reaches(self, mask: int, reusable: int) -> bool:
        """Return whether the mask is near to each of the devices.

        Those without a topology do not count.
        """
        return all(
            place is None or place & mask
            for index, place in enumerate(self.places)
            if reusable >> index & 1
        )

    def choose(
        self,
        request: int,
        reusable: int,
        mask: int | None,
        advise: Callable[[int, int, int], int] | None = None,
    ) -> int | str:
        """Return the devices that a container gets, or why it gets none."""
        if not self.healthy:
            return "none healthy"

        chosen = first(reusable & self.present, request)
        if chosen.bit_count() == request:
            return chosen
        if self.free.bit_count() < request - chosen.bit_count():
            return "too few"

        near = 0
        if mask is not None:
            near = self.near(self.free, mask)

        if request - chosen.bit_count() < near.bit_count():
            chosen = chosen if advise is None else advise(near, chosen, request)
            return chosen | first(near & ~chosen, request - chosen.bit_count())

        chosen |= near
        if chosen.bit_count() < request and advise is not None:
            chosen = advise(self.free, chosen, request)

        without = sum(1 << index for index, place in enumerate(self.places) if not place)
        if mask is None:
            without = 0

        for rest in (self.free & ~without, self.free & without):
            chosen |= first(rest & ~chosen, request - chosen.bit_count())

        return chosen
