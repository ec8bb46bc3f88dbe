"""What is found for claims becomes their allocations, in the scheduler's order and words."""

from __future__ import annotations

from typing import Any

import pytest

from alignup.claims.allocation import allocate, solve
from alignup.claims.question import AllocationError
from alignup.claims.search_tables import SearchTables
from inputs.claim_questions import claim, devices_of, holder, question, request
from inputs.small_claims import NUMA

PLAIN = devices_of({"name": "d0"}, {"name": "d1"}, {"name": "d2"})


def allocated(*args: Any, **options: Any) -> list[list[tuple[str, str]]]:
    """Return the requests and devices of each claim."""
    claims = allocate(question(*args, **options))
    assert claims is not None
    return [
        [(device.request, device.device) for device in result.allocated or ()] for result in claims
    ]


def test_claims_get_devices_in_the_order_of_requests() -> None:
    claims = [claim(request("a", 2), name="first"), claim(request("b"), name="second")]
    assert allocated([PLAIN], claims) == [[("a", "d0"), ("a", "d1")], [("b", "d2")]]
    assert allocated([PLAIN], claims[1:], holders=[holder("d0")]) == [[("b", "d1")]]


def test_there_may_be_none() -> None:
    assert allocate(question([PLAIN], [claim(request(count=4))])) is None
    assert allocate(question([], [claim(request())])) is None


def test_no_claims_need_no_devices() -> None:
    assert allocate(question([PLAIN], [])) == ()


def test_an_alternative_is_named_with_its_request() -> None:
    ways = [
        {"name": name, **request(count=count)["exactly"]} for name, count in (("x", 4), ("y", 1))
    ]
    assert allocated([PLAIN], [claim({"name": "r", "firstAvailable": ways})]) == [[("r/y", "d0")]]


def test_a_share_says_what_it_takes() -> None:
    device = {
        "name": "d0",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8Gi"}},
    }
    wish = request(capacity={"requests": {"memory": "3Gi"}})
    claims = allocate(question([devices_of(device)], [claim(wish), claim(wish, name="other")]))
    assert claims is not None

    devices = [result.allocated[0] for result in claims if result.allocated is not None]
    assert [device.consumed_capacity for device in devices] == [{"memory": 3 * 2**30 * 10**9}] * 2
    assert all(device.share_id for device in devices)
    assert allocate(question([PLAIN], [claim(request())]))[0].allocated[0].share_id is None


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        ({"nodeName": "n"}, [("metadata.name", ("n",))]),
        ({"nodeName": "", "allNodes": True}, None),
        (
            {
                "nodeName": "",
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                    ]
                },
            },
            [("zone", ("a",))],
        ),
    ],
)
def test_the_nodes_of_an_allocation_are_those_that_reach_its_devices(reach, expected) -> None:
    [result] = allocate(question([devices_of({"name": "d"}, **reach)], [claim(request())])) or ()
    if expected is None:
        assert result.allocated_nodes is None
        return

    assert result.allocated_nodes is not None
    [term] = result.allocated_nodes.node_selector_terms
    requirements = (*term.match_expressions, *term.match_fields)
    assert [(condition.key, condition.values) for condition in requirements] == expected


def test_equal_conditions_of_several_devices_are_said_once() -> None:
    condition = {"key": "zone", "operator": "In", "values": ["a"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}
    parts = [
        devices_of({"name": "d"}, pool=pool, nodeName="", nodeSelector=selector)
        for pool in ("p", "q")
    ]
    [result] = allocate(question(parts, [claim(request(count=2))])) or ()
    assert result.allocated_nodes is not None
    [term] = result.allocated_nodes.node_selector_terms
    assert len(term.match_expressions) == 1


def test_a_bound_that_is_hit_is_said() -> None:
    devices = [{"name": f"d{number}"} for number in range(16)]
    tables = SearchTables(question([devices_of(*devices)], [claim(request(count=8))]))
    assert solve(tables) == [(0, number) for number in range(8)]
    with pytest.raises(AllocationError, match="given up after 3 steps") as error:
        solve(tables, 3)
    assert error.value.kind == "timeout"


def test_pools_that_are_invalid_are_an_error_where_nothing_is_found() -> None:
    twice = devices_of({"name": "d"}, {"name": "d"}, pool="twice")
    with pytest.raises(
        AllocationError, match=r"^invalid resource pools were encountered$"
    ) as error:
        allocate(question([twice], [claim(request())]))
    assert error.value.kind == "node"
    assert allocated([twice, PLAIN], [claim(request())]) == [[("r", "d0")]]


def test_an_error_of_a_selector_is_raised_when_the_search_comes_to_it() -> None:
    wrong = request(selectors=[{"cel": {"expression": "device.attributes['x'].y == 1"}}])
    with pytest.raises(AllocationError, match=r"claim default/c: selector #0.*no such key: y"):
        allocate(question([PLAIN], [claim(wrong)]))
    assert allocate(question([PLAIN], [claim(request(count=4)), claim(wrong)])) is None


def test_all_devices_that_a_constraint_forbids_are_an_error() -> None:
    apart = devices_of(
        *({"name": f"d{node}", "attributes": {NUMA: {"int": node}}} for node in range(2))
    )
    everything = claim(request("all", allocationMode="All"), constraints=[{"matchAttribute": NUMA}])
    with pytest.raises(
        AllocationError,
        match=(
            r"^claim default/c, request all: cannot add device gpu\.example\.com/n/d1 because "
            r"a claim constraint would not be satisfied$"
        ),
    ):
        allocate(question([apart], [everything]))
