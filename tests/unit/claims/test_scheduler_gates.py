"""The gates of a release choose what a scheduler knows, and which allocator it uses."""

from __future__ import annotations

import pytest

from alignup.claims.scheduler_gates import (
    NEWEST,
    RELEASES,
    check_settings,
    gates_of,
    gates_to_turn_on,
)
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
        ("1.38", "DRADerivedAttributes"),
        ("1.37", "DRADerivedAttributes"),
        ("1.36", "DRANodeAllocatableResources"),
    ],
)
def test_what_is_not_modelled_must_be_off(release: str, name: str) -> None:
    gates_of(release, {name: False})
    with pytest.raises(InputError, match=f"the feature gate {name} are not modelled"):
        gates_of(release, {name: True})


@pytest.mark.parametrize(
    ("release", "allocator"), [("1.37", "experimental"), ("1.38", "incubating")]
)
def test_compatibility_groups_take_an_allocator_that_knows_them(release, allocator) -> None:
    assert not gates_of(release).compatibility_groups
    gates = gates_of(release, {"DRADeviceCompatibilityGroups": True})
    assert (gates.compatibility_groups, gates.allocator) == (True, allocator)


def test_devices_count_as_resources_of_the_node_behind_a_gate_of_1_37() -> None:
    assert not gates_of().node_resources
    assert gates_of("1.37", {"DRANodeAllocatableResources": True}).node_resources


@pytest.mark.parametrize(
    ("release", "name", "words"),
    [
        ("1.37", "DRAConsumableCapacty", r"kube-scheduler 1\.37\); did you mean DRAConsumableCap"),
        ("1.37", "dra-list-type-attributes", "did you mean DRAListTypeAttributes"),
        ("1.37", "Nonsense", r"unrecognized feature gate: Nonsense \(kube-scheduler 1\.37\)$"),
        ("1.37", "", "unrecognized feature gate"),
        ("1.34", "DRAListTypeAttributes", r"kube-scheduler 1\.34\); 1\.36 has it"),
        ("1.34", "DRAFractionalCapacityRange", r"1\.37 has it"),
        ("1.36", "DRAFractionalCapacityRange", r"1\.37 has it"),
        ("1.38", "DynamicResourceAllocation", "there it is on for good"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_gate_that_the_release_does_not_know_is_refused(release, name, words, value) -> None:
    with pytest.raises(InputError, match=words):
        check_settings(release, {name: value})


def test_a_locked_gate_and_needs_are_refused_as_a_scheduler_does() -> None:
    with pytest.raises(InputError, match="DRAAdminAccess to false, feature is locked to true"):
        check_settings("1.37", {"DRAAdminAccess": False})
    with pytest.raises(InputError, match=r"disabled: \[DRAConsumableCapacity\]"):
        check_settings("1.37", {**OFF, "DRAFractionalCapacityRange": True})
    with pytest.raises(InputError, match="release"):
        check_settings("1.33", {})


@pytest.mark.parametrize("release", RELEASES)
def test_gates_of_a_release_are_taken(release: str) -> None:
    check_settings(release, {})
    check_settings(release, {"DRAConsumableCapacity": True, "AllBeta": True})


def test_all_gates_of_a_stage_are_set_together() -> None:
    assert not gates_of("1.37", {"AllBeta": False}).consumable_capacity
    assert gates_of("1.37", {"AllBeta": False, "DRAConsumableCapacity": True}).consumable_capacity
    assert gates_of("1.34", {"AllAlpha": True}).partitionable_devices


@pytest.mark.parametrize(
    ("release", "settings", "names"),
    [
        (
            "1.37",
            {},
            [
                ("DRAFractionalCapacityRange",),
                ("DRADeviceCompatibilityGroups",),
                ("DRAListTypeAttributes",),
            ],
        ),
        ("1.38", {}, [("DRADeviceCompatibilityGroups",), ("DRAListTypeAttributes",)]),
        (
            "1.37",
            {"DRAConsumableCapacity": False, "DRAListTypeAttributes": True},
            [
                ("DRAConsumableCapacity",),
                ("DRAFractionalCapacityRange", "DRAConsumableCapacity"),
                ("DRADeviceCompatibilityGroups",),
            ],
        ),
        (
            "1.34",
            {"DRAResourceClaimDeviceStatus": False},
            [
                ("DRAPartitionableDevices",),
                ("DRAConsumableCapacity",),
                ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
            ],
        ),
    ],
)
def test_gates_to_turn_on_are_those_of_the_release_with_what_they_need(
    release, settings, names
) -> None:
    gates = gates_of(release, settings)
    assert [found for found, _ in gates_to_turn_on(gates)] == names
    for off, turned_on in gates_to_turn_on(gates):
        assert turned_on == gates_of(release, {**settings, **dict.fromkeys(off, True)})
