"""A refusal names the request or the constraint to blame, what was free, and what would help."""

from __future__ import annotations

from typing import Any

import pytest

from alignup.claims.allocation import allocate
from alignup.claims.objects import Subrequest
from alignup.claims.question import AllocationError, Question
from alignup.claims.read import read_claim
from alignup.claims.refusal_reasons import Refusal, all_ways, helpful_gates, why_not
from alignup.records import replace
from inputs.claim_questions import claim, devices_of, holder, question, request
from inputs.small_claims import NUMA

THREE = devices_of(
    {"name": "d0", "attributes": {NUMA: {"int": 0}}},
    {"name": "d1", "attributes": {NUMA: {"int": 1}}},
    {"name": "d2"},
)
SAME_NODE = {"matchAttribute": NUMA}
WAIT = "wait until other claims release devices"


def refusal(slices: list[Any], *claims: Any, **options: Any) -> Refusal:
    """Return why claims are refused, which they must be."""
    refused_question = question(slices, claims, **options)
    assert not is_served(refused_question)
    return why_not(refused_question)


def is_served(claims_question: Question) -> bool:
    try:
        return allocate(claims_question) is not None
    except AllocationError:
        return False


def test_a_request_for_too_many_is_told_how_many_there_are() -> None:
    too_many = refusal([THREE], claim(request(count=4)))
    assert too_many.where == "claim default/c, request r"
    assert too_many.text == "r asks for 4 of class gpu.example.com; of 3 devices: 3 free"
    assert too_many.helps == ("ask for 3 in request r",)


def test_what_others_hold_is_told() -> None:
    reasons = refusal([THREE], claim(request(count=3)), holders=[holder("d0")])
    assert reasons.text.endswith("of 3 devices: 2 free, 1 in use")
    assert reasons.helps == ("ask for 2 in request r", WAIT)


@pytest.mark.parametrize(
    ("device", "wish", "state"),
    [
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, {}, "1 tainted or out of counters"),
        ({}, {"selectors": [{"cel": {"expression": "false"}}]}, "1 not matching"),
        (
            {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "1Gi"}}},
            {"capacity": {"requests": {"memory": "2Gi"}}},
            "1 without the capacity",
        ),
    ],
)
def test_devices_are_counted_by_what_is_wrong_with_them(device, wish, state: str) -> None:
    wrong = refusal([devices_of({"name": "d0", **device})], claim(request(**wish)))
    assert wrong.text == f"r asks for 1 of class gpu.example.com; of 1 devices: 0 free, {state}"
    helps = ("tolerate the taints of the devices",) if "tainted" in state else ()
    assert wrong.helps == helps


def test_a_node_that_reaches_no_devices_says_why() -> None:
    broken = [
        devices_of({"name": "d"}, {"name": "d"}, pool="twice"),
        devices_of({"name": "d"}, pool="part", slices=2),
    ]
    assert refusal([], claim(request())).text.endswith("the node reaches no devices")
    assert refusal(broken, claim(request())).text.endswith(
        "the node reaches no devices (gpu.example.com/part is incomplete, "
        "gpu.example.com/twice is invalid)"
    )


def test_all_devices_are_asked_for_as_all() -> None:
    reasons = refusal([THREE], claim(request(allocationMode="All")), holders=[holder("d1")])
    assert reasons.text == "r asks for all devices; of 3 devices: 2 free, 1 in use"
    assert reasons.helps == (WAIT,)


def test_earlier_claims_of_the_pod_may_have_taken_it() -> None:
    second = refusal([THREE], claim(request(count=2), name="a"), claim(request(count=2), name="b"))
    assert second.claim == "default/b"
    assert second.text == "earlier claims of the pod take what it asks for: default/a"


def test_requests_that_fit_alone_are_told_together() -> None:
    both = refusal([THREE], claim(request("a", 2), request("b", 2)))
    assert (both.where, both.request) == ("claim default/c", "")
    assert (
        both.text == "each of the requests a, b can be served alone, but not all of them together"
    )
    assert both.helps == ("ask for 1 in request a",)


def test_a_constraint_is_blamed_with_what_is_free_by_value() -> None:
    apart = refusal([THREE], claim(request("a", 2), constraints=[SAME_NODE]))
    assert (apart.request, apart.constraint) == ("", f"matchAttribute {NUMA}")
    assert apart.text == (
        f"without the constraint matchAttribute {NUMA} there would be devices; free by value: "
        "0: a 1 of 2; 1: a 1 of 2; 1 devices lack it"
    )
    assert apart.helps == (f"leave out matchAttribute {NUMA}", "ask for 1 in request a")


def test_the_second_constraint_may_be_to_blame() -> None:
    constraints = [{"matchAttribute": NUMA, "requests": ["none"]}, {"distinctAttribute": NUMA}]
    alike = [{"name": f"d{number}", "attributes": {NUMA: {"int": 7}}} for number in range(2)]
    same = refusal([devices_of(*alike)], claim(request("a", 2), constraints=constraints))
    assert same.constraint == f"distinctAttribute {NUMA}"
    assert "free by value: 7: a 2 of 2" in same.text


def test_many_values_are_cut_short() -> None:
    devices = [{"name": f"d{number}", "attributes": {NUMA: {"int": number}}} for number in range(9)]
    many = refusal([devices_of(*devices)], claim(request("a", 2), constraints=[SAME_NODE]))
    assert many.text.endswith("5: a 1 of 2, and 3 more values")


def test_an_attribute_that_no_device_has_is_told() -> None:
    constraint = {"matchAttribute": "none.example.com/none"}
    lacking = refusal([THREE], claim(request("a", 2), constraints=[constraint]))
    assert lacking.text.endswith("no device has it; 3 devices lack it")


@pytest.mark.parametrize("count", [2, 4, 9])
def test_a_smaller_count_that_is_advised_is_served(count: int) -> None:
    wish = claim(request(count=count), constraints=[SAME_NODE])
    too_much = question([THREE], [wish])
    if is_served(too_much):
        pytest.fail("the constraint lets one device through only")

    [advice] = [change for change in why_not(too_much).helps if change.startswith("ask for ")]
    fewer = int(advice.split()[2])
    again = replace(too_much, claims=(read_claim(claim(request(count=fewer)), "c"),))
    assert is_served(again)


def test_changes_reach_each_way_to_serve_a_request() -> None:
    ways = [{"name": name, "deviceClassName": "c", "count": 2} for name in "xy"]
    read = read_claim(claim(request(), {"name": "s", "firstAvailable": ways}), "c")
    single, several = (all_ways(wish, lambda _: Subrequest(count=7)) for wish in read.requests)
    assert (single.exactly, single.first_available) == (Subrequest(count=7), ())
    assert several.first_available == (Subrequest(count=7),) * 2


def test_values_of_lists_are_named_each() -> None:
    lists = [{"name": f"d{node}", "attributes": {NUMA: {"ints": [node]}}} for node in (5, 7)]
    wish = claim(request("a", 2), constraints=[SAME_NODE])
    apart = refusal([devices_of(*lists)], wish, DRAListTypeAttributes=True)
    assert apart.text.endswith(
        "free by value: 5: a 1 of 2; 7: a 1 of 2; a list has, of a socket, only the NUMA nodes at "
        "the least distance"
    )


def test_halves_of_a_socket_are_apart_as_their_lists_are() -> None:
    """Those of SNC4, as 0.37.2 and 0.38.0-beta.0 make them (`findings/dra-numa-list.sh`)."""
    lists = {"d0": [0, 1], "d1": [1, 0], "d2": [2, 3], "d3": [3, 2]}
    devices = [{"name": name, "attributes": {NUMA: {"ints": ids}}} for name, ids in lists.items()]
    wish = claim(request("a", 3), constraints=[SAME_NODE])
    apart = refusal([devices_of(*devices)], wish, DRAListTypeAttributes=True)
    assert "free by value: 0: a 2 of 3; 1: a 2 of 3; 2: a 2 of 3; 3: a 2 of 3; a list" in apart.text
    assert "ask for 2 in request a" in apart.helps


SHARED = devices_of(
    {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
)
FRACTION = {"capacity": {"requests": {"memory": "4Gi"}}}
TURN_ON = "turn on the feature gate {} of kube-apiserver and kube-scheduler"


@pytest.mark.parametrize("release", ["1.34", "1.35"])
def test_a_gate_with_which_the_claims_fit_is_a_suggestion(release: str) -> None:
    claims = [claim(request(**FRACTION), name=name) for name in ("a", "b")]
    helps = refusal([SHARED], *claims, release=release).helps
    assert TURN_ON.format("DRAConsumableCapacity") in helps
    assert is_served(question([SHARED], claims, release=release, DRAConsumableCapacity=True))
    assert not any("Partitionable" in help_text for help_text in helps)


def test_of_an_error_too_the_gate_that_mends_it_is_told() -> None:
    asked = question([SHARED], [claim(request(**FRACTION))], DRAConsumableCapacity=False)
    with pytest.raises(AllocationError, match="DRAConsumableCapacity feature is disabled"):
        allocate(asked)
    assert helpful_gates(asked) == (TURN_ON.format("DRAConsumableCapacity"),)


def test_a_gate_that_changes_nothing_is_no_suggestion() -> None:
    assert helpful_gates(question([THREE], [claim(request(count=4))], release="1.34")) == ()
    assert helpful_gates(question([THREE], [claim(request(count=4))])) == ()


def test_values_that_are_lists_are_compared_with_a_gate_on() -> None:
    lists = devices_of(
        {"name": "d0", "attributes": {"x.example.com/root": {"strings": ["a", "b"]}}},
        {"name": "d1", "attributes": {"x.example.com/root": {"strings": ["b"]}}},
    )
    pair = claim(request(count=2), constraints=[{"matchAttribute": "x.example.com/root"}])
    assert helpful_gates(question([lists], [pair])) == (TURN_ON.format("DRAListTypeAttributes"),)
    assert helpful_gates(question([lists], [pair], release="1.36")) == ()
