"""Amounts of bytes in words."""

from __future__ import annotations

import pytest

from alignup.text.counting import format_bytes, short_bytes

GI = 1 << 30


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
