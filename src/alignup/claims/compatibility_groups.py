"""Which devices of a counter set go together (gate DRADeviceCompatibilityGroups, alpha).

Devices that take from one counter set must all declare a group in common. Those that declare none
go with one another, and with none that declares some.

Source: `structured/internal/experimental/compatibility_groups.go` of
`k8s.io/dynamic-resource-allocation` 0.37, and `incubating` of 0.38.0-beta.0. The allocator keeps
the groups that are left while it searches. As all devices of a counter set have a group in common
in the end, one search for each choice of groups, among the devices of these groups alone, finds the
same solutions; the allocator's own is the first of them.
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace as changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from alignup.claims.objects import Device, Slice

# The place of a pool, and the name of a counter set of it.
CounterSetKey = tuple[int, str]
Choice = dict[CounterSetKey, str | None]

# Stands for the group of devices that declare none; no group has such a name.
NO_GROUP: Final = ""
MOST_CHOICES: Final = 512


def groups_of(place: int, device: Device) -> dict[CounterSetKey, frozenset[str]]:
    """Return the groups of a device by the counter sets that it takes from.

    Args:
        place: of its pool.
        device: the device.
    """
    return {
        (place, use.counter_set): frozenset(use.compatibility_groups or (NO_GROUP,))
        for use in device.consumes_counters
    }


def choices_of(
    devices: Iterable[tuple[int, Device]], used_devices: Iterable[tuple[int, Device]]
) -> Iterator[Choice]:
    """Yield the groups that the devices of counter sets may have in common, by counter set.

    None: no device of the counter set is to be had any more. Choices that come after one more than
    `MOST_CHOICES` are left out.

    Args:
        devices: those that may be allocated, each with the place of its pool.
        used_devices: those that claims have.
    """
    offered: dict[CounterSetKey, dict[str, None]] = {}
    for place, device in devices:
        for key, groups in groups_of(place, device).items():
            offered.setdefault(key, {}).update(dict.fromkeys(sorted(groups)))

    left = _left_by(used_devices)
    chosen: dict[CounterSetKey, list[str | None]] = {
        key: [*(group for group in groups if group in left.get(key, groups))] or [None]
        for key, groups in offered.items()
        if key in left or list(groups) != [NO_GROUP]
    }
    for common_groups in islice(product(*chosen.values()), MOST_CHOICES + 1):
        yield dict(zip(chosen, common_groups, strict=True))


def _left_by(used_devices: Iterable[tuple[int, Device]]) -> dict[CounterSetKey, frozenset[str]]:
    """Return by counter set which groups the devices that claims have leave to others.

    Without the gate some may have come together that would not go together now.
    """
    left: dict[CounterSetKey, frozenset[str]] = {}
    for place, device in used_devices:
        for key, groups in groups_of(place, device).items():
            earlier = left.get(key)
            if earlier is None:
                left[key] = groups
            elif NO_GROUP not in earlier and NO_GROUP not in groups:
                left[key] = earlier & groups

    return left


def is_refused(place: int, device: Device, choice: Choice) -> bool:
    """Return whether a device lacks a group that was chosen for a counter set of it."""
    return any(
        key in choice and choice[key] not in groups
        for key, groups in groups_of(place, device).items()
    )


def without_groups(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """Return slices with devices that declare no groups."""
    return tuple(
        changed(part, devices=tuple(map(_without_groups, part.devices))) for part in slices
    )


def _without_groups(device: Device) -> Device:
    uses = (changed(use, compatibility_groups=None) for use in device.consumes_counters)
    return changed(device, consumes_counters=tuple(uses))
