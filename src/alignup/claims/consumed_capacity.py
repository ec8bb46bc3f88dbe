"""What a request takes of the capacities of a device that several may share.

Source: `consumable_capacity.go`, where amounts are in billionths of their unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.claims.objects import Capacity, Range
    from alignup.claims.scheduler_gates import Gates

_ONE: Final = 10**9
_MILLI: Final = 10**6
_LARGEST: Final = 2**63 - 1


class CapacityError(Exception):
    """A request that the scheduler gives up the pod for."""


def consumed(
    requests: Mapping[str, int], capacities: Mapping[str, Capacity], gates: Gates
) -> dict[str, int] | None:
    """Return what a request takes of each capacity; None: the device cannot serve it.

    Args:
        requests: amounts by name; a capacity that is not named is taken by its default, or whole.
        capacities: the device's.
        gates: of the scheduler; 1.36 has no errors, and is content with amounts that it cannot
            compute.

    Raises:
        CapacityError: an amount cannot be represented, or is negative.
    """
    if requests.keys() - capacities.keys():
        return None

    amounts: dict[str, int] = {}
    for name, capacity in capacities.items():
        amount = _consumed_of(capacity, requests.get(name), gates)
        if amount < 0 and not gates.is_before_37:
            raise CapacityError(f'capacity "{name}": capacity value is negative')

        amounts[name] = amount

    for name, capacity in capacities.items():
        if amounts[name] > capacity.value or _violates(amounts[name], capacity, gates):
            return None

    return amounts


def _consumed_of(capacity: Capacity, requested: int | None, gates: Gates) -> int:
    """Return what a request takes of one capacity; None requested: its default, or all of it."""
    policy = capacity.request_policy
    if policy is None:
        return capacity.value if requested is None else requested
    if requested is None:
        return capacity.value if policy.default is None else policy.default

    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        if requested < limits.min or limits.step is None:
            return max(requested, limits.min)

        unit = _unit(limits, gates)
        return _rounded_up(requested, limits.min, limits.step, unit, gates)

    if policy.valid_values is not None:
        return next((value for value in policy.valid_values if requested <= value), requested)

    return requested


def _rounded_up(requested: int, smallest: int, step: int, unit: int, gates: Gates) -> int:
    """Return a requested amount, rounded up to whole steps above the smallest."""
    start = _in_units(smallest, unit)
    step = _in_units(step, unit)
    rounded = requested
    if step > 0:
        steps = -(-(_in_units(requested, unit) - start) // step)
        rounded = start + steps * step

    is_inexact = unit == _MILLI and requested % _MILLI != 0
    if not gates.is_before_37 and (is_inexact or rounded > _LARGEST):
        raise CapacityError(
            "capacity request cannot be represented in the device's range arithmetic"
        )

    return rounded * unit if step > 0 else requested


def _violates(amount: int, capacity: Capacity, gates: Gates) -> bool:
    policy = capacity.request_policy
    if policy is None or (policy.default is not None and amount == policy.default):
        return False

    limits = policy.valid_range
    if limits is None:
        return amount not in (policy.valid_values or (amount,))
    if limits.max is not None and amount > limits.max:
        return True
    if limits.step is None or limits.min is None:
        return False

    unit = _unit(limits, gates)
    if unit == _MILLI and amount % _MILLI:
        return True

    step = _in_units(limits.step, unit)
    return step > 0 and (_in_units(amount, unit) - _in_units(limits.min, unit)) % step != 0


def _unit(limits: Range, gates: Gates) -> int:
    """Return the unit of a range's arithmetic.

    It is thousandths where the gate is on and they are exact.
    """
    if not gates.fractional_ranges:
        return _ONE

    bounds = [value for value in (limits.min, limits.max, limits.step) if value is not None]
    if any(value % _MILLI or abs(value) > _LARGEST * _MILLI for value in bounds):
        return _ONE
    if limits.step is not None and limits.step < _MILLI:
        return _ONE

    return _MILLI


def _in_units(amount: int, unit: int) -> int:
    """Return an amount in a unit, rounded up."""
    return -(-amount // unit)
