"""Requests of capacity are rounded as their policies say, and refused where they cannot be met."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.claims.consumed_capacity import CapacityError, consumed
from alignup.claims.objects import Amount, Capacity, Range, RequestPolicy
from alignup.claims.scheduler_gates import gates_of

ONE = 10**9
MILLI = 10**6
GATES = gates_of()
OLD = gates_of("1.36")
NEXT = gates_of("1.38")
DRIVER = "gpu.example.com"
FRACTIONS = gates_of("1.37", {"DRAFractionalCapacityRange": True})
WHOLE = gates_of("1.37", {"DRAFractionalCapacityRange": False})


def capacity(value: int, **policy: object) -> Capacity:
    return Capacity(Amount(value), RequestPolicy(**policy) if policy else None)


def limits(smallest: int | None, largest: int | None, step: int | None) -> Range:
    bounds = (smallest, largest, step)
    return Range(*(None if bound is None else Amount(bound) for bound in bounds))


def test_without_a_policy_a_request_takes_what_it_says_or_all() -> None:
    capacities = {"memory": capacity(8 * ONE), "cores": capacity(4 * ONE)}
    assert consumed({"memory": 3 * ONE}, capacities, GATES, DRIVER) == {
        "memory": 3 * ONE,
        "cores": 4 * ONE,
    }
    assert consumed({"memory": 9 * ONE}, capacities, GATES, DRIVER) is None


def test_a_capacity_that_the_device_lacks_cannot_be_had() -> None:
    assert consumed({"none": ONE}, {"memory": capacity(ONE)}, GATES, DRIVER) is None
    assert consumed({}, {}, GATES, DRIVER) == {}


def test_a_default_is_taken_where_nothing_is_requested() -> None:
    small = {"memory": capacity(8 * ONE, default=Amount(2 * ONE))}
    assert consumed({}, small, GATES, DRIVER) == {"memory": 2 * ONE}
    assert consumed({"memory": ONE}, small, GATES, DRIVER) == {"memory": ONE}


@pytest.mark.parametrize(
    ("requested", "expected"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, None), (9, None)]
)
def test_the_smallest_valid_value_that_is_enough_is_taken(requested: int, expected) -> None:
    values = (Amount(2 * ONE), Amount(4 * ONE))
    amounts = consumed(
        {"memory": requested * ONE},
        {"memory": capacity(8 * ONE, valid_values=values)},
        GATES,
        DRIVER,
    )
    assert amounts == (None if expected is None else {"memory": expected * ONE})


@given(
    requested=st.integers(0, 40),
    smallest=st.integers(0, 8),
    span=st.integers(0, 20),
    step=st.integers(1, 5),
    value=st.integers(0, 40),
)
def test_a_range_rounds_up_to_whole_steps(requested, smallest, span, step, value) -> None:
    """As the first of the steps from the smallest amount on that is enough."""
    steps = range(smallest, 100, step)
    enough = next(amount for amount in steps if amount >= requested)
    expected = None
    if enough <= min(value, smallest + span):
        expected = {"memory": enough * ONE}

    bounds = limits(smallest * ONE, (smallest + span) * ONE, step * ONE)
    for gates in (FRACTIONS, WHOLE, OLD):
        capacities = {"memory": capacity(value * ONE, valid_range=bounds)}
        assert consumed({"memory": requested * ONE}, capacities, gates, DRIVER) == expected


def test_steps_of_thousandths_are_exact_with_their_gate_only() -> None:
    """Without it amounts are rounded up to whole units, as before 1.37."""
    bounds = limits(500 * MILLI, None, 250 * MILLI)
    capacities = {"cores": capacity(4 * ONE, valid_range=bounds)}
    assert consumed({"cores": 600 * MILLI}, capacities, FRACTIONS, DRIVER) == {"cores": 750 * MILLI}
    assert consumed({"cores": 600 * MILLI}, capacities, WHOLE, DRIVER) == {"cores": ONE}


def test_what_is_finer_than_thousandths_cannot_be_represented() -> None:
    bounds = limits(0, None, 250 * MILLI)
    capacities = {"cores": capacity(4 * ONE, valid_range=bounds)}
    with pytest.raises(CapacityError, match="cannot be represented in the device's range"):
        consumed({"cores": 600 * MILLI + 1}, capacities, FRACTIONS, DRIVER)
    assert consumed({"cores": 600 * MILLI + 1}, capacities, OLD, DRIVER) is not None


def test_a_negative_amount_is_an_error_since_1_37() -> None:
    capacities = {"memory": capacity(-ONE)}
    with pytest.raises(CapacityError, match=r'^capacity "memory": capacity value is negative$'):
        consumed({}, capacities, GATES, DRIVER)
    assert consumed({}, capacities, OLD, DRIVER) == {"memory": -ONE}


def test_a_default_need_not_be_one_of_the_valid_values() -> None:
    policy = {"default": Amount(3 * ONE), "valid_values": (Amount(2 * ONE), Amount(4 * ONE))}
    assert consumed({}, {"memory": capacity(8 * ONE, **policy)}, GATES, DRIVER) == {
        "memory": 3 * ONE
    }


@pytest.mark.parametrize(
    ("value", "is_served"),
    [(1000 * MILLI, True), (750 * MILLI, True), (800 * MILLI, False), (750 * MILLI + 1, False)],
)
def test_all_of_a_capacity_must_be_of_whole_steps(value: int, is_served: bool) -> None:
    """Where nothing is requested and there is no default."""
    bounds = limits(500 * MILLI, None, 250 * MILLI)
    amounts = consumed({}, {"cores": capacity(value, valid_range=bounds)}, FRACTIONS, DRIVER)
    assert amounts == ({"cores": value} if is_served else None)


FULL = f"{DRIVER}/memory"


@pytest.mark.parametrize(
    ("requests", "capacities", "before", "since"),
    [
        ({FULL: ONE}, {"memory": capacity(8 * ONE)}, None, {"memory": ONE}),
        ({"memory": ONE}, {FULL: capacity(8 * ONE)}, None, {FULL: ONE}),
        ({"other/memory": ONE}, {"memory": capacity(8 * ONE)}, None, None),
        ({FULL: ONE}, {FULL: capacity(8 * ONE)}, {FULL: ONE}, {FULL: ONE}),
        # what a driver says twice counts by its full name
        (
            {"memory": ONE},
            {"memory": capacity(8 * ONE), FULL: capacity(2 * ONE)},
            {"memory": ONE, FULL: 2 * ONE},
            {FULL: ONE},
        ),
    ],
)
def test_from_1_38_on_a_capacity_has_the_drivers_domain_or_none(
    requests, capacities, before, since
) -> None:
    assert consumed(requests, capacities, GATES, DRIVER) == before
    assert consumed(requests, capacities, NEXT, DRIVER) == since


def test_from_1_38_on_a_capacity_is_asked_for_once() -> None:
    requests = {"memory": ONE, FULL: ONE}
    with pytest.raises(CapacityError, match='capacity "memory" requested both as'):
        consumed(requests, {"memory": capacity(8 * ONE)}, NEXT, DRIVER)


def test_from_1_38_on_a_negative_request_is_not_rounded_up() -> None:
    smallest = {"memory": capacity(8 * ONE, valid_range=limits(2 * ONE, None, None))}
    assert consumed({"memory": -ONE}, smallest, GATES, DRIVER) == {"memory": 2 * ONE}
    with pytest.raises(CapacityError, match="negative"):
        consumed({"memory": -ONE}, smallest, NEXT, DRIVER)
