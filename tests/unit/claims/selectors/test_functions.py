"""Standard functions of CEL do what cel-go's do, which is not always what Python's do."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.claims.selectors import functions as cel
from alignup.claims.selectors.syntax import NotUnderstood, Uint
from alignup.claims.selectors.values import (
    NONE,
    Duration,
    EvaluationError,
    Growing,
    GrowingMap,
    Optional,
    Timestamp,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64, INT64.filter(bool))
def test_division_is_truncated_as_in_go(left: int, right: int) -> None:
    quotient = math.trunc(Fraction(left, right))
    if quotient == 2**63:
        for name in ("div", "mod"):
            with pytest.raises(EvaluationError, match="integer overflow"):
                cel.calculated(name, left, right)
        return

    assert cel.calculated("div", left, right) == quotient
    assert cel.calculated("mod", left, right) == left - quotient * right


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(1.0, 0.0, math.inf), (-1.0, 0.0, -math.inf), (1.0, -0.0, -math.inf), (3.0, 2.0, 1.5)],
)
def test_doubles_are_divided_by_zero(left: float, right: float, expected: float) -> None:
    assert cel.calculated("div", left, right) == expected
    assert math.isnan(cel.calculated("div", 0.0, 0.0))


@pytest.mark.parametrize(
    ("name", "message"), [("div", "division by zero"), ("mod", "modulus by zero")]
)
def test_integers_are_not(name: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        cel.calculated(name, 1, 0)


@given(INT64, INT64)
def test_sums_are_exact_or_overflow(left: int, right: int) -> None:
    if -(2**63) <= left + right < 2**63:
        assert cel.added(left, right) == left + right
    else:
        with pytest.raises(EvaluationError, match="integer overflow"):
            cel.added(left, right)


@pytest.mark.parametrize(("left", "right"), [(1, 1.0), (1, Uint(1)), ("a", b"a"), (True, True)])
def test_types_are_not_mixed(left: object, right: object) -> None:
    with pytest.raises(EvaluationError, match="no such overload"):
        cel.added(left, right)


def test_an_unsigned_integer_stays_one() -> None:
    total = cel.added(Uint(1), Uint(2))
    assert (total, type(total)) == (3, Uint)
    with pytest.raises(EvaluationError, match="unsigned integer overflow"):
        cel.subtracted(Uint(1), Uint(2))


def test_times_are_added_and_subtracted() -> None:
    second = Duration(10**9)
    assert cel.added(Timestamp(5, 60), second) == Timestamp(10**9 + 5)
    assert cel.added(second, Timestamp(5, 60)).offset == 60
    assert cel.added(second, second) == Duration(2 * 10**9)
    assert cel.subtracted(Timestamp(10**9), Timestamp(0)) == second
    assert cel.subtracted(Timestamp(10**9), second) == Timestamp(0)
    assert cel.negative(second) == Duration(-(10**9))

    years = 365 * 86400 * 10**9
    assert cel.subtracted(Timestamp(100 * years), Timestamp(-100 * years)) == Duration(200 * years)
    with pytest.raises(EvaluationError, match="integer overflow"):
        cel.subtracted(Timestamp(200 * years), Timestamp(-200 * years))
    with pytest.raises(EvaluationError):
        cel.added(Timestamp(0), Timestamp(0))


LARGE = ["9" * 19, "9" * 5_000, f"-{2**63 + 1}", "-" + "9" * 5_000]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0" * 5_000 + "1", 1),
        (f"-{2**63}", -(2**63)),
        ("12", 12),
        ("+3", 3),
        (2.9, 2),
        (-2.9, -2),
        (Duration(7), 7),
        (Timestamp(-1), -1),
    ],
)
def test_integers_are_made_of_other_values(value: object, expected: int) -> None:
    assert cel.to_int(value) == expected


@pytest.mark.parametrize("value", ["", "1.0", " 1", "1_0", "0x1", 2.0**63, math.nan, *LARGE])
def test_what_is_no_integer_is_an_error(value: object) -> None:
    with pytest.raises(EvaluationError):
        cel.to_int(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e3", 1000.0),
        ("0x1p-2", 0.25),
        ("1_000.5", 1000.5),
        ("Infinity", math.inf),
        ("-inf", -math.inf),
        (".5", 0.5),
    ],
)
def test_doubles_have_the_forms_of_go(text: str, expected: float) -> None:
    assert cel.to_double(text) == expected


@pytest.mark.parametrize("text", ["", "1e999", "+nan", "0x1", "1__0", "1,5"])
def test_other_forms_are_errors(text: str) -> None:
    with pytest.raises(EvaluationError, match="type conversion error"):
        cel.to_double(text)


def test_truth_values_have_the_forms_of_go() -> None:
    assert [cel.to_bool(text) for text in ("t", "TRUE", "1", "f", "False", "0")] == [
        *[True] * 3,
        *[False] * 3,
    ]
    with pytest.raises(EvaluationError):
        cel.to_bool("yes")


@given(st.text("ab", max_size=8), st.text("ab", max_size=2), st.integers(0, 9))
def test_places_of_parts_are_found(text: str, part: str, start: int) -> None:
    places = [place for place in range(len(text) + 1) if text[place : place + len(part)] == part]
    if part:
        assert cel.index_of(text, part, start) == min(
            (place for place in places if place >= start), default=-1
        )
        assert cel.last_index_of(text, part) == max(places, default=-1)
        if start < len(text):
            earlier = [place for place in places if place <= start]
            assert cel.last_index_of(text, part, start) == max(earlier, default=-1)
    else:
        assert cel.index_of(text, part, start) == min(start, len(text))


@pytest.mark.parametrize(
    ("separator", "count", "parts"),
    [
        (",", -1, ["a", "b", "", "c"]),
        (",", 0, []),
        (",", 1, ["a,b,,c"]),
        (",", 2, ["a", "b,,c"]),
        ("", 3, ["a", ",", "b,,c"]),
        ("", -1, list("a,b,,c")),
        ("", 99, list("a,b,,c")),
    ],
)
def test_a_text_is_split_into_so_many_parts(separator: str, count: int, parts: list[str]) -> None:
    assert cel.split("a,b,,c", separator, count) == parts


def test_places_beyond_the_text_are_errors() -> None:
    assert (cel.char_at("ab", 0), cel.substring("ab", 0)) == ("a", "ab")
    assert (cel.char_at("ab", 2), cel.substring("abc", 1), cel.substring("abc", 1, 2)) == (
        "",
        "bc",
        "b",
    )

    for call in (
        lambda: cel.char_at("ab", 3),
        lambda: cel.substring("abc", 2, 1),
        lambda: cel.substring("abc", 0, 4),
        lambda: cel.index_of("a", "a", -1),
        lambda: cel.slice_of([1], 0, 2),
    ):
        with pytest.raises(EvaluationError):
            call()


def test_only_letters_of_ascii_change() -> None:
    assert cel.in_ascii("upper", "aéß") == "Aéß"
    assert cel.trim("\u2003 a \x85") == "a"


def test_values_have_bounds() -> None:
    with pytest.raises(NotUnderstood, match="more than 20000000 elements"):
        cel.replace("a" * 5000, "", "b" * 5000)
    with pytest.raises(EvaluationError, match="exceeds maximum allowed"):
        cel.range_of(1_000_001)
    assert cel.range_of(3) == [0, 1, 2]


@pytest.mark.parametrize(
    "value_of",
    [
        lambda length: cel.added("a", "b" * (length - 1)),
        lambda length: cel.added(b"a", b"b" * (length - 1)),
        lambda length: cel.added([0], [1] * (length - 1)),
        lambda length: cel.replace("ab", "b", "c" * (length - 2)),
        lambda length: cel.join(["a" * (length - 2), "b"], ""),
        lambda length: cel.join(["a", "b"], "c" * (length // 2)),
    ],
)
def test_what_is_made_of_texts_and_lists_has_the_same_bound(value_of, monkeypatch) -> None:
    monkeypatch.setattr(cel, "_LARGEST", 20)
    assert value_of(18)
    with pytest.raises(NotUnderstood, match="more than 20 elements"):
        value_of(23)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_lists_are_compared_as_sets(left: list[int], right: list[int]) -> None:
    assert cel.contains_all(left, right) is (set(left) >= set(right))
    assert cel.are_equivalent(left, right) is (set(left) == set(right))
    assert cel.intersect(left, right) is bool(set(left) & set(right))
    assert cel.distinct(left) == list(dict.fromkeys(left))


@given(st.lists(st.integers(0, 5), max_size=6))
def test_lists_are_sorted_by_keys(keys: list[int]) -> None:
    """Elements with equal keys stay in their order."""
    elements = list(range(len(keys)))
    assert cel.sort_by(elements, keys) == sorted(elements, key=lambda place: keys[place])
    assert cel.is_sorted(cel.sort_by(keys))
    if keys:
        assert (cel.extreme("min", keys), cel.extreme("max", keys)) == (min(keys), max(keys))


@pytest.mark.parametrize(
    ("elements", "keys"), [([1, "a"], None), ([[1]], None), ([1], []), ("ab", None), ([None], None)]
)
def test_what_has_no_order_is_not_sorted(elements, keys) -> None:
    with pytest.raises(EvaluationError):
        cel.sort_by(elements, keys)


def test_lists_are_flattened_so_many_levels() -> None:
    nested = [1, [2, [3, [4]]]]
    assert cel.flatten(nested) == [1, 2, [3, [4]]]
    assert cel.flatten(nested, 9) == [1, 2, 3, 4]
    assert cel.flatten(nested, 0) == nested
    with pytest.raises(EvaluationError):
        cel.flatten(nested, -1)


def test_a_growing_value_grows_in_place() -> None:
    growing, entries = Growing([1]), GrowingMap({"a": 1})
    assert cel.added(growing, [2]) is growing == [1, 2]
    assert cel.inserted(entries, "b", 2) is entries == {"a": 1, "b": 2}
    fixed = {"a": 1}
    assert cel.inserted_all(fixed, {"b": 2}) == {"a": 1, "b": 2}
    assert fixed == {"a": 1}
    with pytest.raises(EvaluationError, match="key a already exists"):
        cel.inserted(fixed, "a", 2)


@pytest.mark.parametrize(
    "value", [0, 0.0, "", b"", [], {}, False, None, Duration(0), Timestamp(-62135596800 * 10**9)]
)
def test_what_is_empty_or_zero_is_none(value: object) -> None:
    assert cel.optional_of_non_zero(value) is NONE
    assert cel.optional_of(value) == Optional(has_value=True, value=value)


def test_optional_values_are_unwrapped() -> None:
    assert cel.unwrap([cel.optional_of(1), NONE, cel.optional_of(None)]) == [1, None]
    assert cel.last([1, 2]) == cel.optional_of(2)
    with pytest.raises(EvaluationError, match="dereference"):
        cel.optional_value(NONE)
    with pytest.raises(EvaluationError, match="not optional"):
        cel.unwrap([1])


def test_membership_goes_by_equality_and_null_by_itself() -> None:
    assert cel.is_in(1.0, [1])
    assert cel.is_in("a", {"a": None})
    assert not cel.is_in(None, [0, ""])
    assert cel.is_in(None, [None])
    assert cel.includes([1, 2], 2)
    assert cel.includes(2, 2.0)
    assert (cel.index_of_element([1, 2, 1], 1), cel.last_index_of_element([1, 2, 1], 1)) == (0, 2)
    assert cel.last_index_of_element([], 1) == -1
    with pytest.raises(EvaluationError):
        cel.is_in(1, "text")


def test_sums_begin_with_a_zero_of_their_type() -> None:
    assert cel.sum_of([]) == 0
    assert cel.sum_of([1.5, 2.5]) == 4.0
    assert type(cel.sum_of([Uint(1), Uint(2)])) is Uint
    assert cel.sum_of_durations([]) == Duration(0)
    assert cel.sum_of_durations([Duration(1), Duration(2)]) == Duration(3)
