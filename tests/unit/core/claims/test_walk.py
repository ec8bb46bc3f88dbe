"""The walk over devices takes them in order, and gives back what it took."""

from __future__ import annotations

from typing import Any

from alignup.claims.scenarios import answer_scenario
from alignup.core.claims.search import search
from inputs.search_questions import claim, exactly, one_request, several_requests
from inputs.small_claims import DRIVER, GROUP, class_of

COUNTERS = {"counterSet": "chip", "counters": {"slices": {"value": "1"}}}


def test_a_share_that_is_taken_back_frees_no_counters_that_the_shares_of_others_hold() -> None:
    """Somebody has a share of the first device, and so the only slice of the chip.

    The second device cannot be had.
    """
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    devices: list[dict[str, Any]] = [
        {"name": "shared", "allowMultipleAllocations": True, "consumesCounters": [COUNTERS]},
        {"name": "part", "consumesCounters": [COUNTERS]},
        {"name": "plain"},
    ]
    for device in devices:
        device["attributes"] = {"name": {"string": device["name"]}}

    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool}
    counters = [{"name": "chip", "counters": {"slices": {"value": "1"}}}]
    share = {"request": "r", "driver": DRIVER, "pool": "n", "device": "shared", "shareID": "s"}
    question = {
        "name": "shared",
        "node": {"metadata": {"name": "n"}},
        "slices": [
            {"apiVersion": GROUP, "metadata": {"name": "a"}, "spec": {**spec, "devices": devices}},
            {
                "apiVersion": GROUP,
                "metadata": {"name": "b"},
                "spec": {**spec, "sharedCounters": counters},
            },
        ],
        "classes": [class_of()],
        "allocated": [
            {
                **claim("held", exactly("r", "shared")),
                "status": {"allocation": {"devices": {"results": [share]}}},
            }
        ],
    }

    def result(*requests: dict[str, Any]) -> Any:
        scenario = {**question, "claims": [claim("new", *requests)]}
        allocations = answer_scenario(scenario, "the question")["result"]
        return allocations and [device["device"] for device in allocations[0]["devices"]]

    assert result(exactly("one", "shared", "plain")) == ["shared"]
    assert result(exactly("one", "shared", "plain"), exactly("two", "part")) is None


def test_devices_are_taken_in_their_order() -> None:
    """Those that are in use, that do not match, or that may not be had are passed over."""
    tables = one_request(devices=6, count=2)
    assert search(tables)[:2] == ("found", [(0, 0), (0, 1)])

    tables.taken = [True, False, False, False, False, False]
    tables.matches = [[1, 0, 1, 1, 1, 1]]
    tables.blocked = [[False, False, True, False, False, False]]
    assert search(tables)[:2] == ("found", [(0, 3), (0, 4)])


def test_the_first_alternative_that_can_be_met_is() -> None:
    """A request with two ways: three devices, or one."""
    for devices, expected in ((3, [(0, 0), (0, 1), (0, 2)]), (2, [(1, 0)]), (0, [])):
        tables = several_requests(devices, 3, 1)
        tables.first_way, tables.first_request = [0, 2], [0, 1]
        tables.has_alternatives = [True]
        for way in tables.ways:
            way.request = 0
        assert search(tables)[1] == expected


def test_values_that_have_to_agree_or_to_differ() -> None:
    """The walk turns round where the second device has not the value of the first."""
    tables = one_request(devices=4, count=2)
    tables.constraints, tables.covers, tables.is_alone = [(0, None)], [[True]], [[False] * 4]
    tables.faults = [[0] * 4]
    tables.values = [[0b001, 0b010, 0b001, 0b100]]
    for is_distinct, expected in ((False, [(0, 0), (0, 2)]), (True, [(0, 0), (0, 1)])):
        tables.is_distinct = [is_distinct]
        assert search(tables)[:2] == search(tables, prune=False)[:2] == ("found", expected)


def test_a_walk_ends_after_so_many_steps() -> None:
    tables = one_request(devices=6, count=6)
    assert search(tables, most_steps=3)[0] == "limit"
    assert search(tables, most_steps=100)[0] == "found"
