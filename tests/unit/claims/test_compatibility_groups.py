"""Devices of a counter set that have to go together; see tests/conformance for the scheduler's."""

from __future__ import annotations

import pytest

from alignup.claims.objects import CounterUse, Device, Pool, Slice
from alignup.claims.pools import (
    MOST_CHOICES,
    NO_GROUP,
    choices_of,
    is_refused,
    without_groups,
)
from alignup.claims.question import AllocationError, question_of
from alignup.claims.read import resources_of
from alignup.claims.refusal_reasons import why_not
from alignup.claims.scheduler_gates import gates_of
from alignup.claims.search_tables import SearchTables

GATES = gates_of("1.37", {"DRADeviceCompatibilityGroups": True})


def device(name: str, *groups: str, counter_set: str = "s") -> Device:
    return Device(name, consumes_counters=(CounterUse(counter_set, {}, groups or None),))


def choices(devices, used=()) -> list[dict]:
    return list(choices_of([(0, each) for each in devices], [(0, each) for each in used]))


def test_each_group_is_tried_and_that_of_devices_without_any() -> None:
    devices = [device("d0", "b", "a"), device("d1", "a"), device("d2")]
    assert choices(devices) == [{(0, "s"): group} for group in ("a", "b", NO_GROUP)]
    assert choices([device("d0"), device("d1")]) == [{}]
    assert choices([Device("d0")]) == [{}]


@pytest.mark.parametrize(
    ("used", "left"),
    [
        ([device("u", "a", "b")], ["a", "b"]),
        ([device("u", "a", "b"), device("v", "b")], ["b"]),
        ([device("u", "a"), device("v", "b")], [None]),
        ([device("u")], [NO_GROUP]),
        ([device("u"), device("v", "b")], [NO_GROUP]),
        ([device("u", "z")], [None]),
        ([device("u", "a", counter_set="t")], ["a", "b", NO_GROUP]),
    ],
)
def test_devices_in_use_leave_the_groups_that_they_have_in_common(used, left) -> None:
    devices = [device("d0", "a"), device("d1", "b"), device("d2")]
    assert choices(devices, used) == [{(0, "s"): group} for group in left]


def test_a_device_lacks_a_group_in_some_counter_set_or_it_does_not() -> None:
    both = Device(
        "d", consumes_counters=(CounterUse("s", {}, ("a",)), CounterUse("t", {}, ("b", "c")))
    )
    assert not is_refused(0, both, {(0, "s"): "a", (0, "t"): "c"})
    assert is_refused(0, both, {(0, "s"): "a", (0, "t"): "d"})
    assert is_refused(0, both, {(0, "s"): None})
    assert not is_refused(1, both, {(0, "s"): None})
    assert not is_refused(0, Device("e"), {(0, "s"): None})


def test_groups_can_be_left_out() -> None:
    (part,) = without_groups([Slice("s", "d", Pool("p"), devices=(device("d0", "a"),))])
    assert part.devices == (device("d0"),)


def asked(*groups: tuple[str, ...], count: int = 2):
    """Return a question for devices of one counter set."""
    devices = [
        {
            "name": f"d{number}",
            "consumesCounters": [
                {"counterSet": "s", "counters": {}, "compatibilityGroups": list(names)}
            ],
        }
        for number, names in enumerate(groups)
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    common = {"driver": "d", "nodeName": "n", "pool": pool}
    slices = [{"devices": devices}, {"sharedCounters": [{"name": "s", "counters": {}}]}]
    documents = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice{number}"},
            "spec": {**common, **spec},
        }
        for number, spec in enumerate(slices)
    ]
    exactly = {"deviceClassName": "any", "count": count}
    documents += [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "any"},
            "spec": {},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        },
    ]
    resources = resources_of(documents, "it")
    return question_of(resources.only_node, resources, resources.claims, GATES)


def test_a_refusal_says_that_groups_are_to_blame() -> None:
    refusal = why_not(asked(("a",), ()))
    assert refusal.text.endswith("were it not for compatibility groups, there would be devices")
    assert refusal.helps == ("ask for 1 in request r",)
    assert "groups" not in why_not(asked(("a",), ("a",), count=3)).text


def test_there_is_a_bound_to_what_is_tried() -> None:
    groups = [(f"g{number}",) for number in range(MOST_CHOICES + 1)]
    with pytest.raises(AllocationError, match="choices of compatibility groups") as error:
        list(SearchTables(asked(*groups)).choices())

    assert error.value.kind == "timeout"
    assert len(list(SearchTables(asked(*groups[1:])).choices())) == MOST_CHOICES
