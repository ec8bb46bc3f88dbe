"""Recorded questions are answered line by line, in the form of the vectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.claims.scenarios import answer_of, answer_scenario, answer_selector, quantity_text
from alignup.errors import InputError
from alignup.kubernetes.quantity import parse_quantity
from inputs.claim_questions import claim, devices_of, holder, request
from inputs.small_claims import DRIVER, class_of


def scenario(*claims: Any, **changes: Any) -> dict[str, Any]:
    """Return a question about two devices, one of which is shareable."""
    shareable = {
        "name": "d1",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8Gi"}},
    }
    return {
        "name": "s",
        "node": {"metadata": {"name": "n"}},
        "slices": [devices_of({"name": "d0"}, shareable)],
        "classes": [class_of()],
        "claims": list(claims),
        **changes,
    }


def test_a_scenario_is_answered_with_devices_shares_and_nodes() -> None:
    wish = request(count=2, capacity={"requests": {}})
    answer = answer_scenario(scenario(claim(wish)), "line")
    selector = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
        ]
    }

    device = {"request": "r", "driver": DRIVER, "pool": "n"}
    assert answer.pop("ms") >= 0
    assert answer == {
        "name": "s",
        "result": [
            {
                "claim": "default/c",
                "devices": [
                    {**device, "device": "d0"},
                    {
                        **device,
                        "device": "d1",
                        "shared": True,
                        "consumedCapacity": {"memory": str(8 * 2**30)},
                    },
                ],
                "nodeSelector": selector,
            }
        ],
    }


def test_where_nothing_fits_there_is_no_result_and_no_error() -> None:
    answer = answer_scenario(scenario(claim(request(count=3))), "line")
    assert (answer["result"], "error" in answer) == (None, False)
    beside_holder = answer_scenario(
        scenario(claim(request(count=2)), allocated=[holder("d0")]), "line"
    )
    assert beside_holder["result"] is None


def test_an_error_of_the_scheduler_has_its_class() -> None:
    answer = answer_scenario(scenario(claim(request()), classes=[]), "line")
    assert (answer["result"], answer["class"]) == (None, "fatal")
    assert answer["error"].startswith("claim default/c, request r: could not retrieve device class")


def test_gates_and_releases_are_those_of_the_scenario() -> None:
    ways = [{"name": "x", **request()["exactly"]}]
    line = scenario(claim({"name": "r", "firstAvailable": ways}))
    assert answer_scenario(line, "line")["result"] is not None
    off = answer_scenario({**line, "features": {"DRAPrioritizedList": False}}, "line")
    assert "DRAPrioritizedList feature is disabled" in off["error"]
    with pytest.raises(InputError, match=r"one of 1\.34"):
        answer_scenario({**line, "release": "1.0"}, "line")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slices": 3}, "line"),
        ({"node": None}, "line"),
        ({"claims": [{}]}, r"line: claims\[0\]"),
        ({"classes": [{"metadata": 1}]}, r"line: classes\[0\]"),
        ({"slices": [{"metadata": {"name": "s"}}]}, r"line: slices\[0\]"),
        ({"allocated": ["x"]}, "line"),
    ],
)
def test_a_malformed_scenario_is_refused_with_its_place(changes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        answer_scenario(scenario(**changes), "line")


def test_no_claims_are_no_answer() -> None:
    assert answer_of(None) is None
    assert answer_of([]) == []


@given(st.integers(-(10**15), 10**15))
def test_quantities_are_written_exactly(billionths: int) -> None:
    assert parse_quantity(quantity_text(billionths)) == billionths


@pytest.mark.parametrize(
    ("billionths", "text"),
    [(0, "0"), (2 * 10**9, "2"), (15 * 10**8, "1500m"), (10**3, "1u"), (7, "7n")],
)
def test_the_largest_suffix_that_is_exact_is_taken(billionths: int, text: str) -> None:
    assert quantity_text(billionths) == text


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", {"match": True, "cost": 0}),
        ("device.driver == 'd'", {"match": True, "cost": 3}),
        ("device.attributes['d'].x == 1", {"error": "no such key: x"}),
        ("1 +", {"compileError": "ERROR: <input>:1:4: Syntax error: unexpected '<EOF>'"}),
    ],
)
def test_a_selector_is_answered(expression: str, expected: dict[str, Any]) -> None:
    device = {"attributes": {"y": {"int": 1}}}
    line = {"name": "n", "expression": expression, "driver": "d", "device": device}
    answer = answer_selector(line, "line")
    assert answer["name"] == "n"
    assert expected.items() <= answer.items()
    assert ("cost" in answer) is not ("compileError" in answer)


def test_what_is_beyond_the_bounds_is_said() -> None:
    line = {"name": "n", "expression": "(" * 99 + "true" + ")" * 99, "device": {}}
    assert "nested deeper" in answer_selector(line, "line")["notUnderstood"]


@pytest.mark.parametrize("line", [{}, [], {"name": "n", "expression": 1, "device": {}}])
def test_a_malformed_selector_is_refused(line: object) -> None:
    with pytest.raises(InputError, match="line"):
        answer_selector(line, "line")
