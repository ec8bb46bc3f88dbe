"""A state from which the walk has failed is left out when it comes again, and no other one."""

from __future__ import annotations

from typing import Any

from alignup.claims.scenarios import answer_scenario
from inputs.search_questions import claim, exactly
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
