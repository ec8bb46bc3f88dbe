"""The gates of a release choose what a scheduler knows, and which allocator it uses."""

from __future__ import annotations

import pytest

from alignup.claims.scheduler_gates import NEWEST, RELEASES, gates_of
from alignup.errors import InputError

OFF = {
    "DRAConsumableCapacity": False,
    "DRADeviceBindingConditions": False,
    "DRAFractionalCapacityRange": False,
}


@pytest.mark.parametrize(
    ("release", "allocator"),
    [
        ("1.34", "stable"),
        ("1.35", "stable"),
        ("1.36", "incubating"),
        ("1.37", "incubating"),
        ("1.38", "stable"),
    ],
)
def test_each_release_has_its_allocator(release: str, allocator: str) -> None:
    gates = gates_of(release)
    assert gates.allocator == allocator
    assert gates.partitionable_devices is gates.device_taints is not gates.is_simple
    assert gates.is_simple is (release in {"1.34", "1.35"})
    assert gates.is_before_37 is (release == "1.36")


def test_the_newest_is_asked_by_default() -> None:
    assert gates_of() == gates_of(NEWEST) == gates_of("1.37", {})
    assert RELEASES[-1] == "1.38"


@pytest.mark.parametrize(
    ("features", "allocator"),
    [
        (OFF, "stable"),
        ({**OFF, "DRAConsumableCapacity": True}, "incubating"),
        ({**OFF, "DRADeviceBindingConditions": True}, "incubating"),
        ({**OFF, "DRAFractionalCapacityRange": True}, "incubating"),
        ({**OFF, "DRAListTypeAttributes": True}, "experimental"),
        ({"DRAListTypeAttributes": True}, "experimental"),
    ],
)
def test_features_choose_the_allocator(features: dict[str, bool], allocator: str) -> None:
    assert gates_of("1.37", features).allocator == allocator


def test_from_1_38_on_only_lists_need_another_allocator() -> None:
    assert gates_of("1.38", OFF).allocator == "stable"
    assert not gates_of("1.38", OFF).is_simple
    assert gates_of("1.38", {"DRAListTypeAttributes": True}).allocator == "incubating"


def test_the_gate_of_1_37_stays_where_a_later_release_is_known() -> None:
    """The release that counts is the one that is asked, not the newest that is known."""
    assert gates_of("1.37", {"DRANodeAllocatableResources": True}).node_resources
    assert gates_of("1.38", {"DRANodeAllocatableResources": True}).node_resources


def test_lists_of_1_36_are_for_selectors_only() -> None:
    old = gates_of("1.36", {"DRAListTypeAttributes": True})
    assert (old.list_selectors, old.list_attributes, old.allocator) == (True, False, "incubating")
    assert not gates_of("1.36").list_selectors
    new = gates_of("1.37", {"DRAListTypeAttributes": True})
    assert (new.list_selectors, new.list_attributes) == (True, True)
    assert gates_of("1.37").list_selectors


def test_binding_conditions_need_two_gates() -> None:
    assert gates_of("1.37").binding_conditions
    assert not gates_of("1.37", {"DRAResourceClaimDeviceStatus": False}).binding_conditions


def test_fractions_are_not_of_1_36() -> None:
    features = {"DRAFractionalCapacityRange": True}
    assert gates_of("1.37", features).fractional_ranges
    assert not gates_of("1.36", features).fractional_ranges


@pytest.mark.parametrize("release", ["1.33", "1.39", "2.0", "", "v1.37"])
def test_another_release_is_refused(release: str) -> None:
    with pytest.raises(InputError, match=r"one of 1\.34, 1\.35, 1\.36, 1\.37"):
        gates_of(release)


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("1.37", "DRAOptionalNodeOperations"),
        ("1.38", "DRADeviceCompatibilityGroups"),
        ("1.37", "DRADerivedAttributes"),
        ("1.37", "DRADeviceCompatibilityGroups"),
        ("1.36", "DRANodeAllocatableResources"),
    ],
)
def test_what_is_not_modelled_must_be_off(release: str, name: str) -> None:
    gates_of(release, {name: False})
    with pytest.raises(InputError, match=f"the feature gate {name} are not modelled"):
        gates_of(release, {name: True})


def test_devices_count_as_resources_of_the_node_behind_a_gate_of_1_37() -> None:
    assert not gates_of().node_resources
    assert gates_of("1.37", {"DRANodeAllocatableResources": True}).node_resources
