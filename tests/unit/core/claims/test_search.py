"""What the search for devices takes back when it turns round, and what it leaves out.

Whole answers are in the conformance tests.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from alignup.claims.scenarios import answer_scenario
from alignup.core.claims.search import search
from inputs.claims_tables import random_tables
from inputs.small_claims import DRIVER, GROUP, class_of
from models.claims import TooLongError, plain_search

COUNTERS = {"counterSet": "chip", "counters": {"slices": {"value": "1"}}}


def exactly(name: str, *devices: str) -> dict[str, Any]:
    """Return a request for one of these devices."""
    expression = f"device.attributes['{DRIVER}'].name in {list(devices)}"
    return {
        "name": name,
        "exactly": {"deviceClassName": DRIVER, "selectors": [{"cel": {"expression": expression}}]},
    }


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": list(requests)}},
    }


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


def compare(seeds: range) -> dict[str, int]:
    """Compare searches that leave out as much as they can with the plain walk.

    Return how often each outcome came.
    """
    outcomes: dict[str, int] = {}
    for seed in seeds:
        tables = random_tables(Random(seed))
        try:
            expected = plain_search(tables, 5_000)
        except TooLongError:
            continue
        assert search(tables, easy_steps=0)[:2] == expected, seed
        assert search(tables, easy_steps=1 << 30, most_memory=seed % 2 << 15)[:2] == expected, seed
        assert search(tables, prune=False)[:2] == expected, seed
        outcomes[expected[0]] = outcomes.get(expected[0], 0) + 1
    return outcomes


def test_dense_tables_have_the_answer_of_the_plain_walk() -> None:
    outcomes = compare(range(600))
    assert outcomes["found"] > 100
    assert outcomes["none"] > 100


@pytest.mark.slow
def test_thousands_of_dense_tables_have_the_answer_of_the_plain_walk() -> None:
    assert sum(compare(range(600, 20_000)).values()) > 10_000


def test_bounds_and_failed_states_make_a_hopeless_walk_short() -> None:
    """Ten devices of ten kinds with one value for two: no three of one value are there."""
    tables = one_request(devices=10, count=3)
    tables.constraints, tables.is_distinct, tables.covers = [(0, None)], [False], [[True]]
    tables.values, tables.is_alone = [[1 << device // 2 for device in range(10)]], [[False] * 10]
    walked = search(tables, prune=False)
    assert walked[:2] == search(tables, easy_steps=0)[:2] == ("none", [])
    assert search(tables, easy_steps=0)[2] <= 3 < walked[2]


def one_request(devices: int, count: int) -> SimpleNamespace:
    """Return tables in which one request asks for devices that have nothing but a number."""
    way = SimpleNamespace(claim=0, request=0, count=count, everything=None, is_admin=False)
    all_false = [False] * devices
    all_empty = [[]] * devices

    return SimpleNamespace(
        devices=[None] * devices,
        claims=[None],
        ways=[way],
        first_way=[0, 1],
        first_request=[0, 1],
        has_alternatives=[False],
        classes=list(range(devices)),
        matches=[[1] * devices],
        blocked=[[False] * devices],
        amounts=[[{}] * devices],
        needs=[[()] * devices],
        errors=[],
        forgets=False,
        taken=all_false,
        is_shareable=all_false,
        is_shared=all_false,
        room=all_empty,
        uses=all_empty,
        counters=[],
        families=[],
        constraints=[],
        is_distinct=[],
        covers=[],
        values=[],
        is_alone=[],
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", [0, 1]),
        ("classes", [0, -1, 2]),
        ("first_way", [0, 2]),
        ("first_request", [1, 1]),
        ("first_request", [0, 0]),
        ("matches", [[1, 1]]),
        ("taken", [False] * 4),
        ("uses", [[(0, 1)], [], []]),
        ("needs", [[(1,), (), ()]]),
        ("constraints", [(0, None)]),
        ("claims", [None] * 65),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(name: str, value: list[Any]) -> None:
    tables = one_request(devices=3, count=1)
    assert search(tables)[:2] == ("found", [(0, 0)])
    vars(tables)[name] = value
    with pytest.raises(ValueError, match="expected"):
        search(tables)


def test_a_claim_that_a_request_has_beyond_the_last_is_refused() -> None:
    tables = one_request(devices=3, count=1)
    tables.ways[0].claim = 1
    with pytest.raises(ValueError, match="expected numbers from 0 up to, not with, 1, got 1"):
        search(tables)


def test_what_failed_for_a_full_claim_may_do_for_one_with_room() -> None:
    """After twenty devices the last would be the 35th, of 32 that a claim may have.

    After one there is room for all.

    What later requests have to choose from is the same in both.
    """
    kinds = {
        kind: [f"{kind}{number}" for number in range(count)]
        for kind, count in {"a": 20, "b": 10, "c": 5}.items()
    }

    def asked(name: str, kind: str, count: int) -> dict[str, Any]:
        return {"name": name, "count": count, **exactly(name, *kinds.get(kind, ()))["exactly"]}

    devices = [
        {"name": device, "attributes": {"name": {"string": device}}}
        for names in kinds.values()
        for device in names
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": devices}
    question = {
        "name": "full",
        "node": {"metadata": {"name": "n"}},
        "slices": [{"apiVersion": GROUP, "metadata": {"name": "a"}, "spec": spec}],
        "classes": [class_of()],
        "allocated": [],
        "claims": [
            claim(
                "new",
                {
                    "name": "first",
                    "firstAvailable": [asked("twenty", "a", 20), asked("one", "a", 1)],
                },
                {"name": "second", "firstAvailable": [asked("ten", "b", 10)]},
                {
                    "name": "third",
                    "firstAvailable": [asked("five", "c", 5), asked("none", "nowhere", 1)],
                },
            )
        ],
    }

    (allocation,) = answer_scenario(question, "the question")["result"]
    assert [device["device"] for device in allocation["devices"]] == [
        "a0",
        *kinds["b"],
        *kinds["c"],
    ]
