"""Measures how full the NUMA nodes of a node are, step by step: what is held of each resource, on average and at most.

It reads free amounts straight from the providers, since a record of who holds what costs more than an admission.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from alignup.machine.bits import bit_set
from alignup.node.holdings import holdings_of

if TYPE_CHECKING:
    from alignup.node import Node

__all__ = ["Meter", "Place", "Use"]

SAMPLES: Final = 100
"""How many moments a curve over time has at most."""


@dataclass(frozen=True, slots=True)
class Place:
    """One resource in one place of a node."""

    resource: str
    numa_nodes: tuple[int, ...]
    """Kernel ids; several, or none, for devices only."""
    allocatable: int
    """What pods can have in all: CPUs, bytes, devices."""


@dataclass(frozen=True, slots=True)
class Use:
    """How much of one resource in one place was held, as parts of what is allocatable."""

    place: Place
    mean: float
    """Over all steps, each counted with what was held after it."""
    peak: float
    curve: tuple[float, ...]
    """After steps that are spread evenly over the scenario."""


class Meter:
    """Reads free amounts after each step, and adds up.

    Args:
        node: the node.
        steps: how many there will be.
    """

    def __init__(self, node: Node, steps: int) -> None:
        self._node = node
        held = holdings_of(node)
        kinds = [one.resource for one in held.resources]
        self._kinds = [kind for kind in kinds if kind == "memory" or kind.startswith("hugepages-")]
        self._members = []
        for one in held.resources:
            if one.resource in self._kinds or one.resource == "cpu" or node.devices is None:
                continue
            pool = node.devices.pools[one.resource]
            for place in one.places:
                near = [
                    bit
                    for bit, device in enumerate(pool.devices)
                    if one.devices[device.id] == place.numa_nodes
                ]
                self._members.append((one.resource, bit_set(near)))
        ordered = sorted(
            held.resources, key=lambda one: (one.resource != "cpu", one.resource not in self._kinds)
        )
        self.places = [
            Place(one.resource, place.numa_nodes, place.allocatable)
            for one in ordered
            for place in one.places
        ]
        self._totals = [0] * len(self.places)
        self._least = [place.allocatable for place in self.places]
        self._curves: list[list[int]] = []
        self._every = -(-steps // SAMPLES) or 1
        self._count = 0
        self.free = self._read()

    def _read(self) -> list[int]:
        """Return what is free in each place now."""
        node = self._node
        found: list[int] = []
        if node.cpu is not None:
            free = node.cpu.ledger.capacity.allocatable & ~node.cpu.ledger.given
            found += [(bits & free).bit_count() for bits in node.machine.node_cpus]
        if node.memory is not None:
            by_kind = node.memory.free
            for kind in self._kinds:
                found += by_kind[kind]
        if node.devices is not None:
            pools = node.devices.pools
            found += [(pools[resource].ledger.free & bits).bit_count() for resource, bits in self._members]
        return found

    def note(self, *, changed: bool) -> None:
        """Count a step; `changed` is False where it left the node as it was."""
        if changed:
            self.free = self._read()
            self._least = list(map(min, self._least, self.free))
        self._totals = [total + free for total, free in zip(self._totals, self.free, strict=True)]
        self._count += 1
        if self._count % self._every == 0:
            self._curves.append(self.free)

    def free_in_all(self) -> dict[str, int]:
        """Return what is free of each resource in all places together."""
        found: dict[str, int] = {}
        for place, free in zip(self.places, self.free, strict=True):
            found[place.resource] = found.get(place.resource, 0) + free
        return found

    def uses(self) -> tuple[Use, ...]:
        """Return what was held; places that pods can have nothing of are left out."""
        count = max(1, self._count)
        found = []
        for index, (place, total, least) in enumerate(
            zip(self.places, self._totals, self._least, strict=True)
        ):
            if place.allocatable > 0:
                whole = place.allocatable
                curve = tuple(1 - free[index] / whole for free in self._curves)
                found.append(
                    Use(place, 1 - total / count / whole if self._count else 0.0, 1 - least / whole, curve)
                )
        return tuple(found)
