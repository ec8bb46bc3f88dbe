"""Values are equal, in order and in each other as CEL has it, not as Python does."""

from __future__ import annotations

import ipaddress
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.claims.selectors.syntax import Uint
from alignup.claims.selectors.values import (
    ABSENT,
    BOOL,
    DYN,
    INT,
    NONE,
    Domains,
    Duration,
    EvaluationError,
    Optional,
    Quantity,
    Semver,
    Timestamp,
    Type,
    are_equal,
    compare,
    element,
    entry,
    environment,
    equal,
    first_of,
    fits,
    kind_of,
    moment_at,
    size_of,
    walked,
)

ONE = Quantity(10**9, 1)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True),
        (Uint(1), 1, True),
        (1, True, False),
        (1, "1", False),
        (2**63 - 1, float(2**63), True),
        (math.nan, math.nan, False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], [1.0, Uint(2)], True),
        ([1], [1, 1], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        (Optional(has_value=True, value=1), Optional(has_value=True, value=1.0), True),
        (NONE, NONE, True),
        (NONE, Optional(has_value=True, value=None), False),
        (b"a", "a", False),
        (Timestamp(1), Timestamp(1, 3600), True),
    ],
)
def test_numbers_are_equal_whatever_their_type_and_others_are_not(left, right, expected) -> None:
    assert equal(left, right) is expected


@pytest.mark.parametrize("value", [1, "1", Semver((1, 0, 0))])
def test_a_quantity_is_compared_with_quantities_only(value: object) -> None:
    with pytest.raises(EvaluationError, match="no such overload"):
        equal(ONE, value)
    assert not are_equal(ONE, value)


def test_a_calculated_quantity_is_equal_on_the_left_only() -> None:
    result = Quantity(10**9, 1, is_result=True)
    assert equal(result, ONE)
    with pytest.raises(EvaluationError):
        equal(ONE, result)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_are_in_their_order(left: int, right: int) -> None:
    assert compare(left, right) == (left > right) - (left < right)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.5, -1),
        (Uint(3), 2, 1),
        ("a", "b", -1),
        (b"b", b"a", 1),
        (False, True, -1),
        (Duration(1), Duration(1), 0),
        (Timestamp(2), Timestamp(1), 1),
    ],
)
def test_what_has_an_order_is_compared(left, right, expected: int) -> None:
    assert compare(left, right) == expected
    assert compare(right, left) == -expected


@pytest.mark.parametrize(
    ("left", "right"), [(1, "a"), ([1], [1]), (None, None), (math.nan, 1.0), (True, 1)]
)
def test_what_has_none_is_an_error(left, right) -> None:
    with pytest.raises(EvaluationError):
        compare(left, right)


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        ({"a": 1}, "a", 1),
        ({"a": 1}, "b", ABSENT),
        ({1: "x"}, 1.0, "x"),
        ({1: "x"}, True, ABSENT),
        ({True: "x"}, True, "x"),
        ({True: "x"}, 1, ABSENT),
        ({}, "a", ABSENT),
        ({"a": 1}, None, ABSENT),
    ],
)
def test_the_type_of_a_key_counts(value, key, expected) -> None:
    assert entry(value, key) is expected or entry(value, key) == expected


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        ([5, 6], 1, 6),
        ([5, 6], 1.0, 6),
        ([5], 1, ABSENT),
        ([5], -1, ABSENT),
        ([5], -(2**63), ABSENT),
        ([5], 2**63 - 1, ABSENT),
        ({"a": 7}, "a", 7),
    ],
)
def test_an_element_is_found_or_absent(value, key, expected) -> None:
    assert element(value, key) is expected or element(value, key) == expected


def test_a_domain_that_is_not_there_is_an_empty_map() -> None:
    assert element(Domains(), "none.example.com") == {}
    assert element({}, "none.example.com") is ABSENT


@pytest.mark.parametrize(
    ("value", "key"),
    [([1], "a"), ([1], True), ([1], 0.5), ([1], None), ([1], 2.0**63), ([1], -(2.0**64))],
)
def test_a_key_of_a_wrong_type_is_an_error(value, key) -> None:
    with pytest.raises(EvaluationError, match=r"index|qualifier"):
        element(value, key)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (DYN, object, True),
        (Type("A"), 1, True),
        (INT, 1, True),
        (INT, True, False),
        (BOOL, True, True),
        (Type("list", (INT,)), [1, "a"], True),
        (Type("list", (INT,)), ["a", 1], False),
        (Type("list", (INT,)), [], True),
        (Type("map", (Type("string"), INT)), {"a": 1}, True),
        (Type("map", (Type("string"), INT)), {"a": "b"}, False),
    ],
)
def test_the_first_element_decides_whether_a_list_fits(parameter, value, expected: bool) -> None:
    assert fits(parameter, value) is expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [(1, "int"), (Uint(1), "uint"), (True, "bool"), (None, "null_type"), (NONE, "optional_type")],
)
def test_each_value_has_a_type(value: object, kind: str) -> None:
    assert kind_of(value) == kind


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("é", 1),
        ([1, 2], 2),
        (7, 1),
        (ipaddress.ip_address("10.0.0.1"), 4),
        (ipaddress.ip_address("::1"), 16),
        (ipaddress.ip_interface("10.0.0.0/20"), 3),
    ],
)
def test_sizes_count_in_costs(value: object, size: int) -> None:
    assert size_of(value) == size
    assert [walked(length) for length in (0, 1, 10, 11, 30)] == [0, 1, 1, 2, 3]


def test_moments_are_of_the_years_1_to_9999() -> None:
    first = -62135596800 * 10**9
    last = 253402300799 * 10**9 + 999_999_999
    assert (moment_at(first), moment_at(last, 60)) == (Timestamp(first), Timestamp(last))
    for nanoseconds in (first - 1, last + 1):
        with pytest.raises(EvaluationError, match="timestamp overflow"):
            moment_at(nanoseconds)


def test_the_first_of_nothing_is_none() -> None:
    assert first_of([]) is NONE
    assert first_of([None, 1]) == Optional(has_value=True, value=None)


def test_a_type_is_written_with_its_parameters() -> None:
    assert str(Type("map", (Type("string"), Type("list", (INT,))))) == "map(string, list(int))"
    assert [Type(name).is_variable for name in ("A", "~1", "int")] == [True, True, False]


def test_the_environment_is_read_once() -> None:
    assert environment() is environment()
    assert {"functions", "types", "costs"} <= environment().keys()
