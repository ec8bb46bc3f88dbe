"""What a request takes of a device's capacities: rounded by the device's policy, or refused.

Source: `consumable_capacity.go`. Amounts are in billionths of their unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.claims.gates import Gates
    from alignup.claims.objects import Capacity, Range, RequestPolicy

_ONE: Final = 10**9
_MILLI: Final = 10**6
_LARGEST: Final = 2**63 - 1


class CapacityError(Exception):
    """A request that the scheduler gives up the pod for."""


def consumed(requests: Mapping[str, int], capacities: Mapping[str, Capacity], gates: Gates) -> dict[str, int] | None:
    """Return what a request takes of each capacity; None: the device cannot serve it.

    Args:
        requests: amounts by name; a capacity that is not named is taken by its default, or whole.
        capacities: the device's.
        gates: of the scheduler; 1.36 has no errors, and is content with amounts that it cannot compute.

    Raises:
        CapacityError: an amount cannot be represented, or is negative.
    """
    if requests.keys() - capacities.keys():
        return None
    taken: dict[str, int] = {}
    for name, capacity in capacities.items():
        amount = _taken(requests.get(name), capacity, gates)
        if amount < 0 and not gates.is_before_37:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        taken[name] = amount
    for name, capacity in capacities.items():
        policy = capacity.request_policy
        if policy is not None and _violates(taken[name], policy, gates):
            return None
        if taken[name] > capacity.value:
            return None
    return taken


def _taken(requested: int | None, capacity: Capacity, gates: Gates) -> int:
    policy = capacity.request_policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        if requested < limits.min or limits.step is None:
            return max(requested, limits.min)
        unit = _unit(limits, gates)
        start, step = _in(limits.min, unit), _in(limits.step, unit)
        rounded = start + -(-(_in(requested, unit) - start) // step) * step if step > 0 else requested
        if not gates.is_before_37 and ((unit == _MILLI and requested % _MILLI) or rounded > _LARGEST):
            raise CapacityError("capacity request cannot be represented in the device's range arithmetic")
        return rounded * unit if step > 0 else requested
    if policy.valid_values is not None:
        return next((value for value in policy.valid_values if requested <= value), requested)
    return requested


def _violates(amount: int, policy: RequestPolicy, gates: Gates) -> bool:
    if policy.default is not None and amount == policy.default:
        return False
    limits = policy.valid_range
    if limits is not None:
        if limits.max is not None and amount > limits.max:
            return True
        if limits.step is None or limits.min is None:
            return False
        unit = _unit(limits, gates)
        if unit == _MILLI and amount % _MILLI:
            return True
        step = _in(limits.step, unit)
        return step > 0 and (_in(amount, unit) - _in(limits.min, unit)) % step != 0
    return amount not in (policy.valid_values or (amount,))


def _unit(limits: Range, gates: Gates) -> int:
    """Return the unit of a range's arithmetic: thousandths where the gate is on and they are exact."""
    if not gates.fractional_ranges:
        return _ONE
    known = [value for value in (limits.min, limits.max, limits.step) if value is not None]
    if any(value % _MILLI or abs(value) > _LARGEST * _MILLI for value in known):
        return _ONE
    return _ONE if limits.step is not None and limits.step < _MILLI else _MILLI


def _in(amount: int, unit: int) -> int:
    """Return an amount in a unit, rounded up."""
    return -(-amount // unit)
