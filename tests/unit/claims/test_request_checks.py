"""What the allocator refuses of a claim at once, in its words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace as changed

from alignup.claims.objects import Request
from alignup.claims.question import AllocationError
from alignup.claims.read import read_claim, read_class
from alignup.claims.request_checks import (
    check_constraints,
    check_subrequest,
    class_of,
    subrequests_of,
)
from alignup.claims.scheduler_gates import gates_of
from inputs.claim_questions import claim, request
from inputs.small_claims import DRIVER
from inputs.small_claims import class_of as class_document

if TYPE_CHECKING:
    from alignup.claims.objects import Claim

GATES = gates_of()
STABLE = gates_of(
    "1.37",
    {
        "DRAConsumableCapacity": False,
        "DRAFractionalCapacityRange": False,
        "DRADeviceBindingConditions": False,
        "DRAListTypeAttributes": False,
    },
)
BOTH = {"name": "r", "firstAvailable": [{"name": name, "deviceClassName": "c"} for name in "xy"]}


def read(*requests: dict[str, Any], **options: Any) -> Claim:
    return read_claim(claim(*requests, **options), "claim")


def test_a_request_has_its_alternatives_or_itself() -> None:
    plain = read(request("one"), BOTH)
    ways = [subrequests_of(plain, claim_request, GATES) for claim_request in plain.requests]
    assert [[way.name for way in ways_of_request] for ways_of_request in ways] == [[""], ["x", "y"]]


def test_a_request_that_asks_for_nothing_is_an_error() -> None:
    empty = changed(read(request()), requests=(Request("r"),))
    with pytest.raises(AllocationError, match=r"^claim default/c, request r: missing device class"):
        subrequests_of(empty, empty.requests[0], GATES)


def test_alternatives_need_their_gate() -> None:
    listed = read(BOTH)
    gates = gates_of("1.37", {"DRAPrioritizedList": False})
    with pytest.raises(AllocationError, match="request r: has subrequests, but the DRAPrioritized"):
        subrequests_of(listed, listed.requests[0], gates)


@pytest.mark.parametrize(
    ("wish", "where"),
    [
        (request(capacity={"requests": {"memory": "1"}}), "request r"),
        (
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "x", "deviceClassName": "c", "capacity": {"requests": {"m": "1"}}}
                ],
            },
            "subrequest x",
        ),
    ],
)
def test_capacity_needs_its_gate_but_for_the_stable_allocator(wish, where: str) -> None:
    """Which does not look at it."""
    asking = read(wish)
    gates = gates_of("1.37", {"DRAConsumableCapacity": False, "DRAListTypeAttributes": True})
    with pytest.raises(AllocationError, match=f"claim default/c, {where}: has capacity requests"):
        subrequests_of(asking, asking.requests[0], gates)
    assert STABLE.allocator == "stable"
    assert len(subrequests_of(asking, asking.requests[0], STABLE)) == 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"derivedAttributes": [{}]}, ": cannot handle request with derived attributes"),
        ({"selectors": [{}]}, ", selector #0: CEL expression empty"),
        (
            {"selectors": [{"cel": {"expression": "true"}}, {}]},
            ", selector #1: CEL expression empty",
        ),
        ({"adminAccess": True}, ": admin access is requested, but the feature is disabled"),
    ],
)
def test_what_the_scheduler_does_not_know_is_an_error(fields, problem: str) -> None:
    exactly = read(request(**fields)).requests[0].exactly
    assert exactly is not None
    gates = gates_of("1.37", {"DRAAdminAccess": False})
    with pytest.raises(AllocationError, match=f"^{re.escape(f'here{problem}')}"):
        check_subrequest(exactly, "here", gates, is_alternative=False)


def test_admin_access_is_of_whole_requests_and_behind_a_gate() -> None:
    exactly = read(request(adminAccess=True)).requests[0].exactly
    assert exactly is not None
    check_subrequest(exactly, "here", GATES, is_alternative=False)
    off = gates_of("1.37", {"DRAAdminAccess": False})
    check_subrequest(exactly, "here", off, is_alternative=True)


def test_a_class_is_looked_up() -> None:
    device_class = read_class(class_document(), "class")
    exactly = read(request()).requests[0].exactly
    assert exactly is not None
    assert class_of(exactly, "here", {DRIVER: device_class}) is device_class
    with pytest.raises(
        AllocationError,
        match=f'^here: could not retrieve device class {DRIVER}: .* "{DRIVER}" not found$',
    ):
        class_of(exactly, "here", {})


def test_a_class_must_be_named() -> None:
    exactly = read(request(deviceClassName="")).requests[0].exactly
    assert exactly is not None
    with pytest.raises(AllocationError, match=r"^here: missing device class name"):
        class_of(exactly, "here", {})


@pytest.mark.parametrize(
    ("constraint", "gates", "is_fine"),
    [
        ({"matchAttribute": "a/b"}, STABLE, True),
        ({"distinctAttribute": "a/b"}, GATES, True),
        ({"distinctAttribute": "a/b"}, STABLE, False),
        ({}, GATES, False),
    ],
)
def test_a_constraint_must_say_something(constraint, gates, is_fine: bool) -> None:
    constrained = read(request(), constraints=[{"matchAttribute": "x/y"}, constraint])
    if is_fine:
        check_constraints(constrained, gates)
        return

    with pytest.raises(AllocationError, match=r"^claim default/c, constraint #1: empty constraint"):
        check_constraints(constrained, gates)
