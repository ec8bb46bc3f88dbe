"""Amounts that are compared are written in one unit, and compare as the exact ones do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.text.counting import amount_in, shared_unit

KI, MI, GI, TI = (1 << shift for shift in (10, 20, 30, 40))


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
