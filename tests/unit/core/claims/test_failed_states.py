"""A state from which the walk has failed is left out when it comes again, and no other one."""

from __future__ import annotations

from typing import Any

from alignup.claims.scenarios import answer_scenario
from alignup.core.claims.search import search
from inputs.search_questions import claim, exactly, several_requests
from inputs.small_claims import DRIVER, GROUP, class_of


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


def test_a_state_that_failed_is_not_walked_again() -> None:
    """Whichever of six devices the first request has, the second cannot have two of one value.

    Without memory for states that is found out six times; the answer is the same.
    """
    tables = several_requests(10, 1, 2)
    tables.matches = [[1] * 6 + [0] * 4, [0] * 6 + [1] * 4]
    tables.constraints, tables.is_distinct, tables.covers = [(0, None)], [False], [[False, True]]
    tables.values = [[1 << device for device in range(10)]]
    tables.is_alone = [[False] * 10]
    tables.faults = [[0] * 10]
    unbounded = 1 << 30
    remembering = search(tables, easy_steps=unbounded)
    forgetting = search(tables, easy_steps=unbounded, most_memory=0)

    assert remembering[:2] == forgetting[:2] == search(tables, prune=False)[:2] == ("none", [])
    assert remembering[2] < forgetting[2]


def test_devices_that_later_requests_may_have_are_part_of_a_state() -> None:
    """The first choice takes what the second request needs; with another one it has it."""
    tables = several_requests(4, 1, 1)
    tables.matches = [[1, 1, 0, 0], [1, 0, 0, 0]]

    for most_memory in (0, 1 << 20):
        answer = search(tables, easy_steps=1 << 30, most_memory=most_memory)
        assert answer[:2] == ("found", [(0, 1), (1, 0)])


def test_devices_that_the_walk_has_passed_count_for_later_requests() -> None:
    """The last request needs devices 0 and 1, which are alike, and the first one takes either or 2.

    When the second request has device 3, both lie behind it, whether one of them is taken or not.
    """
    tables = several_requests(5, 1, 2, 2)
    tables.classes = [0, 0, 1, 2, 3]
    tables.matches = [[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 0, 0, 0]]
    expected = ("found", [(0, 2), (1, 3), (1, 4), (2, 0), (2, 1)])

    assert search(tables, easy_steps=1 << 30)[:2] == expected
    assert search(tables, prune=False)[:2] == expected
