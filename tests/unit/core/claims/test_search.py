"""What the search for devices takes back when it turns round; whole answers are in the conformance tests."""

from __future__ import annotations

from typing import Any

from alignup.claims.scenarios import answer_scenario
from claims_cases import DRIVER, GROUP, class_of

COUNTERS = {"counterSet": "chip", "counters": {"slices": {"value": "1"}}}


def exactly(name: str, *devices: str) -> dict[str, Any]:
    """Return a request for one of these devices."""
    expression = f"device.attributes['{DRIVER}'].name in {list(devices)}"
    return {"name": name, "exactly": {"deviceClassName": DRIVER, "selectors": [{"cel": {"expression": expression}}]}}


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": list(requests)}}}


def test_a_share_that_is_taken_back_frees_no_counters_that_the_shares_of_others_hold() -> None:
    """Somebody has a share of the first device, and so the only slice of the chip: the second device cannot be had."""
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    devices: list[dict[str, Any]] = [
        {"name": "shared", "allowMultipleAllocations": True, "consumesCounters": [COUNTERS]},
        {"name": "part", "consumesCounters": [COUNTERS]},
        {"name": "plain"},
    ]
    for one in devices:
        one["attributes"] = {"name": {"string": one["name"]}}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool}
    counters = [{"name": "chip", "counters": {"slices": {"value": "1"}}}]
    share = {"request": "r", "driver": DRIVER, "pool": "n", "device": "shared", "shareID": "s"}
    question = {
        "name": "shared",
        "node": {"metadata": {"name": "n"}},
        "slices": [
            {"apiVersion": GROUP, "metadata": {"name": "a"}, "spec": {**spec, "devices": devices}},
            {"apiVersion": GROUP, "metadata": {"name": "b"}, "spec": {**spec, "sharedCounters": counters}},
        ],
        "classes": [class_of()],
        "allocated": [
            {**claim("held", exactly("r", "shared")), "status": {"allocation": {"devices": {"results": [share]}}}}
        ],
    }

    def result(*requests: dict[str, Any]) -> Any:
        found = answer_scenario({**question, "claims": [claim("new", *requests)]}, "the question")["result"]
        return found and [one["device"] for one in found[0]["devices"]]

    assert result(exactly("one", "shared", "plain")) == ["shared"]
    assert result(exactly("one", "shared", "plain"), exactly("two", "part")) is None
