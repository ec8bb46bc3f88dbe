"""Reads the zones of a NodeResourceTopology object: amounts by resource, and the costs between zones.

Zones in the usual form are read by the compiled `alignup.core.zones`; here is what holds for all others, and what is
wrong with them. The rest of the object is read in `alignup.node_resource_topology.read`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from alignup.core.zones import plain_zones
from alignup.errors import InputError
from alignup.kubernetes.quantity import parse_quantity, whole_units
from alignup.machine.machine import MEMORY_LIMIT, NUMA_NODE_LIMIT

__all__ = ["Columns", "Distances", "Zone", "columns_of", "distances_of", "numa_zones", "usual_zones"]

_NOT_ALIGNED: Final = frozenset({"ephemeral-storage", "storage", "pods"})
_UNKNOWN_DISTANCE: Final = 255
_LARGEST_AMOUNT: Final = MEMORY_LIMIT // NUMA_NODE_LIMIT
"""Of one zone, so that the sum over all of them is an amount."""
_LARGEST_COST: Final = (1 << 31) - 1

_Amounts: TypeAlias = tuple[int, int, int]
"""One resource of a zone: capacity, allocatable and available units."""

Columns: TypeAlias = dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
"""The amounts of each resource, in the order of the zones."""

_NOTHING: Final = (0, 0, 0)
_SHORT: Final = 17
"""Numbers of fewer digits are below `_LARGEST_AMOUNT`."""

Distances: TypeAlias = tuple[tuple[int, ...], ...] | None
"""A row for each zone; None where no zone tells any."""


class _Cost(msgspec.Struct):
    name: str
    value: int


class _Resource(msgspec.Struct):
    name: str
    capacity: Any = None
    allocatable: Any = None
    available: Any = None


class Zone(msgspec.Struct):
    """One zone on the wire."""

    name: str
    type: str = "Node"
    costs: list[_Cost] | None = None
    resources: list[_Resource] | None = None


def usual_zones(zones: object) -> tuple[int, Columns, Distances] | None:
    """Return the number of zones, their amounts and costs; None where they are not as exporters write them."""
    if type(zones) is not list:
        return None
    return plain_zones(zones, _NOT_ALIGNED, _LARGEST_COST, _UNKNOWN_DISTANCE)


def numa_zones(zones: list[Zone] | None) -> list[Zone]:
    """Return the zones that are NUMA nodes, in their order."""
    return sorted([zone for zone in zones or () if zone.type == "Node"], key=_zone_order)


def _zone_order(zone: Zone) -> tuple[int, str]:
    """Order zones by the number at the end of their names, as `node-10` comes after `node-9`."""
    digits = zone.name[len(zone.name.rstrip("0123456789")) :]
    return int(digits[:18] or 0), zone.name


def _zone_amounts(zone: Zone, place: str) -> dict[str, _Amounts]:
    """Return the resources of a zone; what is left out of one is what the next larger amount says."""
    found = {}
    for resource in zone.resources or ():
        name = resource.name
        if name in _NOT_ALIGNED:
            continue
        capacity = allocatable = available = 0
        if resource.capacity is not None:
            capacity = allocatable = available = _units(resource.capacity, place, name)
        if resource.allocatable is not None:
            if resource.allocatable != resource.capacity:
                allocatable = available = _units(resource.allocatable, place, name)
            if resource.capacity is None:
                capacity = allocatable
        if resource.available is not None:
            available = _units(resource.available, place, name)
            if resource.capacity is None and resource.allocatable is None:
                capacity = allocatable = available
        found[name] = (capacity, allocatable, available)
    return found


def _units(value: object, place: str, name: str) -> int:
    """Return a quantity in whole units, at least 0."""
    if type(value) is str and value.isdigit() and value.isascii() and len(value) < _SHORT:
        return int(value)
    where = f"{place}, {name}"
    amount = whole_units(parse_quantity(value, where))
    if abs(amount) > _LARGEST_AMOUNT:
        raise InputError.at(where, f"amounts of at most {_LARGEST_AMOUNT}", value)
    return max(0, amount)


def distances_of(zones: list[Zone], place: str) -> Distances:
    """Return the costs between the zones; None where no zone has any."""
    names = [zone.name for zone in zones]
    rows = []
    for zone in zones:
        costs = {cost.name: cost.value for cost in zone.costs or ()}
        for value in (min(costs.values(), default=0), max(costs.values(), default=0)):
            if not 0 <= value <= _LARGEST_COST:
                raise InputError.at(place, f"costs from 0 to {_LARGEST_COST}", value)
        rows.append(tuple([costs.get(name, _UNKNOWN_DISTANCE) for name in names]))
    return tuple(rows) if any(zone.costs for zone in zones) else None


def columns_of(zones: list[Zone], place: str) -> Columns:
    """Return the amounts by resource.

    Raises:
        InputError: something is no amount, or too large a one.
    """
    amounts = [_zone_amounts(zone, f"{place}, zone {zone.name}") for zone in zones]
    names = {name for zone in amounts for name in zone}
    found = {}
    for name in names:
        capacity, allocatable, available = zip(*[zone.get(name, _NOTHING) for zone in amounts], strict=True)
        found[name] = (capacity, allocatable, available)
    return found
