"""The walk over devices takes them in order, and gives back what it took."""

from __future__ import annotations

from typing import Any

from alignup.claims.scenarios import answer_scenario
from inputs.search_questions import claim, exactly
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
