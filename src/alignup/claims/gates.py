"""Which feature gates a scheduler of some release has on, and which of its allocators they choose.

Sources: `pkg/features/kube_features.go` and `structured/allocator.go` of Kubernetes 1.34 to 1.37. The allocator of 1.34
and 1.35 tries pools in no order: where two of them match, nobody can say which device its clusters will give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIRST: Final = ("DRAAdminAccess", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus")
_SECOND: Final = (
    *_FIRST,
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
)
RELEASES: Final[Mapping[str, tuple[str, ...]]] = {
    "1.34": _FIRST,
    "1.35": _FIRST,
    "1.36": _SECOND,
    "1.37": (*_SECOND, "DRAFractionalCapacityRange"),
}
"""The gates that are on by default, by release."""

NEWEST: Final = "1.37"
_UNSUPPORTED: Final = ("DRAOptionalNodeOperations", "DRADerivedAttributes", "DRADeviceCompatibilityGroups")


@dataclass(frozen=True, slots=True)
class Gates:
    """What a scheduler knows of devices."""

    admin_access: bool
    prioritized_list: bool
    partitionable_devices: bool
    device_taints: bool
    binding_conditions: bool
    consumable_capacity: bool
    fractional_ranges: bool
    list_attributes: bool
    """Constraints compare lists as sets."""
    list_selectors: bool
    """Selectors may be asked about devices that have lists."""
    allocator: str
    """`stable`, `incubating` or `experimental`."""
    is_before_37: bool


def gates_of(release: str = NEWEST, features: Mapping[str, bool] | None = None) -> Gates:
    """Return the gates of a release.

    Args:
        release: such as `1.37`.
        features: gates that are set otherwise than by default, by name.

    Raises:
        InputError: the release is not known, or a gate is on whose rules are not modelled.
    """
    if release not in RELEASES:
        raise InputError.at("release", f"one of {', '.join(RELEASES)}", release)
    is_on = {**dict.fromkeys(RELEASES[release], True), **(features or {})}
    for name in _UNSUPPORTED:
        if is_on.get(name):
            raise InputError(f"expected the feature gate {name} off, whose rules are not modelled, got it on")
    old = release == "1.36"
    binding = is_on.get("DRADeviceBindingConditions", False) and is_on.get("DRAResourceClaimDeviceStatus", False)
    lists = is_on.get("DRAListTypeAttributes", False)
    fractional = is_on.get("DRAFractionalCapacityRange", False) and not old
    # kube-scheduler 1.36 gives the gate to its selectors, and not to the allocator
    experimental = lists and not old
    newer = binding or is_on.get("DRAConsumableCapacity", False) or fractional
    return Gates(
        admin_access=is_on.get("DRAAdminAccess", False),
        prioritized_list=is_on.get("DRAPrioritizedList", False),
        partitionable_devices=is_on.get("DRAPartitionableDevices", False),
        device_taints=is_on.get("DRADeviceTaints", False),
        binding_conditions=binding,
        consumable_capacity=is_on.get("DRAConsumableCapacity", False),
        fractional_ranges=fractional,
        list_attributes=experimental,
        list_selectors=lists or not old,
        allocator="experimental" if experimental else "incubating" if newer else "stable",
        is_before_37=old,
    )
