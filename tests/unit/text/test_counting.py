"""Numbers, names and bytes in words; amounts that are compared compare as the exact ones do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.text.counting import (
    amount_in,
    counted,
    format_bytes,
    free_in,
    named,
    number_in,
    shared_unit,
    short_bytes,
    some_of,
)

KI, MI, GI, TI = (1 << shift for shift in (10, 20, 30, 40))


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(0.5, ".1%", "50.0%"), (2.25, ".1f", "2.2"), (0, ".1%", "0.0%"), (None, ".1f", "-")],
)
def test_a_number_in_a_table_is_there_or_not(value: float | None, form: str, text: str) -> None:
    assert number_in(value, form) == text


def test_nouns_are_of_one_or_of_several() -> None:
    assert [counted(number, "core") for number in (0, 1, 2)] == ["0 cores", "1 core", "2 cores"]
    assert (named("node", [3]), named("node", [])) == ("node 3", "nodes ")
    assert named("CPU", range(3), ", ") == "CPUs 0, 1, 2"


@pytest.mark.parametrize(
    ("counts", "machine_total", "text"),
    [
        ([0, 0], None, "0 free"),
        ([0, 0], 4, "0 of 4 free"),
        ([4], 4, "the machine has 4"),
        ([4], None, "4 free"),
        ([0, 1], None, "1 free, on node 1"),
        ([0, 2], 8, "2 of 8 free, all on node 1"),
        ([1, 2], None, "3 free: 1 on node 0, 2 on node 1"),
        ([1, 3], 4, "the machine has 4: 1 on node 0, 3 on node 1"),
        ([], None, "0 free"),
    ],
)
def test_what_is_free_is_said_with_its_places(
    counts: list[int], machine_total: int | None, text: str
) -> None:
    places = ((f"on node {node}", count) for node, count in enumerate(counts))
    assert free_in(places, machine_total) == text


def test_many_names_are_cut_short() -> None:
    assert some_of([]) == ""
    assert some_of(list("abcdef")) == "a, b, c, d, e, f"
    assert some_of(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"
    assert some_of(["a", "b"], 1) == "a and 1 more"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1536, "1536"),
        (2048, "2Ki"),
        (3 << 20, "3Mi"),
        (5 * GI, "5Gi"),
        (1 << 40, "1Ti"),
    ],
)
def test_amounts_are_written_in_the_largest_unit_that_fits(amount, text):
    """Nothing is rounded."""
    assert format_bytes(amount) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1025, "1025"),
        (1536 << 20, "1536Mi"),
        (256 << 30, "256Gi"),
        (1 << 40, "1Ti"),
        (9_999, "9999"),
        (10_000, "9.8Ki"),
        (10_001, "9.8Ki"),
        (263_921_606_656, "245.8Gi"),
        ((1 << 40) + 1, "1.0Ti"),
    ],
)
def test_sizes_are_short(size: int, text: str) -> None:
    """Exact if that is short.

    Else one decimal is enough for a table, and shows that it is rounded.
    """
    assert short_bytes(size) == text


@pytest.mark.parametrize(
    ("needed", "free", "shown"),
    [
        (8 * GI, (244636 * MI, 239 * GI, 0), ["8Gi", "238.9Gi", "239Gi", "0"]),
        (300 * GI + 256 * MI, (1047452 * MI,), ["300.25Gi", "1022.9Gi"]),
        (2 * TI, (TI, 512 * GI), ["2Ti", "1Ti", "0.5Ti"]),
        (GI, (GI - KI,), ["1Gi", "0.99Gi"]),
        (8000 * GI, (239 * GI,), ["8000Gi", "239Gi"]),
        (24_684_080 * KI, (239 * GI,), ["23.55Gi", "239Gi"]),
        (1, (0,), ["1", "0"]),
        (2 * GI, (MI,), ["2048Mi", "1Mi"]),
        (5 * GI + KI, (5 * GI + 2 * KI,), ["5242881Ki", "5242882Ki"]),
    ],
)
def test_the_largest_unit_that_tells_them_apart(
    needed: int, free: tuple[int, ...], shown: list[str]
) -> None:
    unit = shared_unit([(needed, free)])

    assert [
        amount_in(unit, needed, up=True),
        *(amount_in(unit, amount) for amount in free),
    ] == shown


AMOUNTS = st.integers(0, 1 << 50) | st.builds(
    lambda number, size: number * size, st.integers(0, 500), st.sampled_from([KI, MI, GI])
)


@given(st.lists(st.tuples(AMOUNTS, st.lists(AMOUNTS, max_size=4)), max_size=3))
def test_what_fits_is_seen_to_fit(comparisons: list[tuple[int, list[int]]]) -> None:
    unit = shared_unit(comparisons)

    for needed, free in comparisons:
        shown = number(amount_in(unit, needed, up=True), unit.suffix)
        for amount in free:
            assert (number(amount_in(unit, amount), unit.suffix) >= shown) == (amount >= needed)


def number(text: str, suffix: str) -> float:
    """Return the number of an amount."""
    return float(text.removesuffix(suffix))
