"""Behaviour of `alignup.kubernetes.quantity`."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.kubernetes.quantity import (
    LARGEST,
    eviction_memory,
    in_units,
    parse_quantity,
    whole_units,
)

SUFFIXES = {
    "": Fraction(1),
    **{
        name: Fraction(10) ** power
        for name, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{
        name: Fraction(1024) ** power
        for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
    },
    **{
        f"{letter}{power}": Fraction(10) ** power for letter in "eE" for power in (-12, -3, 0, 3, 7)
    },
}


def model(sign: str, digits: str, fraction: str, suffix: str) -> int:
    """The definition: an exact fraction, rounded away from zero at a billionth."""
    value = Fraction(f"{digits}.{fraction}0") * SUFFIXES[suffix] * 10**9
    rounded = math.ceil(value)
    return -rounded if sign == "-" else rounded


@given(
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 7).map(str),
    st.text("0123456789", max_size=12),
    st.sampled_from(sorted(SUFFIXES)),
)
def test_text_is_exact(sign, digits, fraction, suffix):
    """Every sign, fraction and suffix means what exact arithmetic says."""
    point = "." if fraction else ""
    text = f"{sign}{digits}{point}{fraction}{suffix}"
    exact = model(sign, digits, fraction, suffix)
    limit = LARGEST * 10**9
    assert parse_quantity(text) == max(min(exact, limit), -limit)


@pytest.mark.parametrize(
    ("value", "units", "milli"),
    [
        ("2", 2, 2000),
        (2, 2, 2000),
        (0.5, 1, 500),
        (1e16, 10**16, 10**19),
        ("1.5Gi", 1536 * 2**20, 1536 * 2**20 * 1000),
        ("100m", 1, 100),
        ("1999.9999m", 2, 2000),
        ("0.1n", 1, 1),
        (".5", 1, 500),
        ("1.k", 1000, 10**6),
        ("0", 0, 0),
        ("1e0003", 1000, 10**6),
        ("3E", 3 * 10**18, 3 * 10**21),
        ("9Ei", LARGEST, LARGEST * 1000),
    ],
)
def test_rounding_is_upwards(value, units, milli):
    assert whole_units(parse_quantity(value)) == units
    assert in_units("cpu", parse_quantity(value)) == milli


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        " 3",
        "3 ",
        "4Gi\n",
        "\t100m",
        "two",
        ".",
        "-",
        "+.m",
        "Ki",
        "1 Gi",
        "1KI",
        "1K",
        "1Mb",
        "1e",
        "1e3.5",
        "1e99999",
        "0x10",
        "1_000",
        "²",
        "1" * 100,
        " " * 1000 + "1",
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        {},
        b"1",
    ],
)
def test_what_is_no_quantity_is_an_error_with_a_place(value):
    with pytest.raises(
        InputError, match=r'^expected a quantity such as .*, got .* at limits\["cpu"\]$'
    ):
        parse_quantity(value, "limits", "cpu")


@pytest.mark.parametrize(
    "value", ["1e19", "1e9999", 2**63, -(2**63), "9223372036854775808", "10E", "12E"]
)
def test_amounts_that_no_kubelet_can_hold_are_errors(value):
    with pytest.raises(InputError, match=r"of at most \d+, got .* at somewhere$"):
        parse_quantity(value, "somewhere")


def test_the_smallest_fraction_still_counts():
    """The API rounds a positive amount up to a billionth, never down to nothing."""
    assert parse_quantity("1e-9999") == 1
    assert parse_quantity("-1e-9999") == -1


@pytest.mark.parametrize(
    ("threshold", "amount"),
    [("100Mi", 100 << 20), ("", 0), ("10%", 100), ("12.5%", 125), ("0%", 0), ("100%", 0)],
)
def test_a_threshold_is_an_amount_or_a_share(threshold, amount):
    assert eviction_memory(threshold, 1000) == amount


@pytest.mark.parametrize("threshold", ["a%", "%", "-1%", "1 %", "a", "101%"])
def test_other_thresholds_are_refused(threshold):
    with pytest.raises(InputError, match="evictionHard"):
        eviction_memory(threshold, 1000)
