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


def full_name_of(name: str, driver: str) -> str:
    """Return a name with its domain, which is the driver's where it has none."""
    return name if "/" in name else f"{driver}/{name}"


def names_of(capacities: Mapping[str, Capacity], driver: str) -> dict[str, str]:
    """Return the name that a device has for each capacity, by full name; a full one is preferred.

    Source: `Convert_v1_To_api_DeviceCapacities` of `k8s.io/dynamic-resource-allocation/api`.
    """
    names: dict[str, str] = {}
    for name in capacities:
        full_name = full_name_of(name, driver)
        if name == full_name or full_name not in names:
            names[full_name] = name

    return names


def consumed(
    requests: Mapping[str, int], capacities: Mapping[str, Capacity], gates: Gates, driver: str
) -> dict[str, int] | None:
    """Return what a request takes of each capacity; None: the device cannot serve it.

    Args:
        requests: amounts by name; a capacity that is not named is taken by its default, or whole.
        capacities: the device's.
        gates: of the scheduler; 1.36 has no errors, and is content with amounts that it cannot
            compute; up to 1.37, a name with the driver as its domain is another than one without.
        driver: of the device.

    Raises:
        CapacityError: an amount cannot be represented, or is negative, or is asked for twice.
    """
    if not gates.is_before_38:
        names = names_of(capacities, driver)
        capacities = {name: capacities[name] for name in names.values()}
        resolved = _resolved(requests, names, driver)
        if resolved is None:
            return None

        requests = resolved

    if requests.keys() - capacities.keys():
        return None

    amounts: dict[str, int] = {}
    for name, capacity in capacities.items():
        requested = requests.get(name)
        amount = _consumed_of(capacity, requested, gates)
        # before 1.38, a negative request may be rounded up to what a device allows
        is_negative = amount < 0
        if not gates.is_before_38 and requested is not None and requested < 0:
            is_negative = True
        if is_negative and not gates.is_before_37:
            raise CapacityError(f'capacity "{name}": capacity value is negative')

        amounts[name] = amount

    for name, capacity in capacities.items():
        if amounts[name] > capacity.value or _violates(amounts[name], capacity, gates):
            return None

    return amounts


def _resolved(
    requests: Mapping[str, int], names: Mapping[str, str], driver: str
) -> dict[str, int] | None:
    """Return what is asked for by the device's names; None: it has no such capacity.

    Raises:
        CapacityError: one capacity is asked for by both of its names.
    """
    resolved: dict[str, int] = {}
    for name, amount in requests.items():
        full_name = full_name_of(name, driver)
        if full_name not in names:
            return None
        if names[full_name] in resolved:
            identifier = full_name.partition("/")[2]
            both = f'"{identifier}" and as "{full_name}"'
            raise CapacityError(f'capacity "{identifier}" requested both as {both}')

        resolved[names[full_name]] = amount

    return resolved


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
