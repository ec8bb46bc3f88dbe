"""Numbers in digits: those of ASCII, up to a bound, however many digits there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.text.digits import number_of, read_number

MANY = 5_000
"""More digits than Python makes a number of."""


@given(number=st.integers(0, 1 << 70), zeros=st.integers(0, 5), most=st.integers(0, 1 << 70))
def test_a_number_is_read_up_to_the_bound(number: int, zeros: int, most: int) -> None:
    expected = number if number <= most else None
    assert number_of("0" * zeros + str(number), most) == expected


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1 ", "1_0", "1.0", "0x1", "٣", "²", "a"])
def test_only_digits_are_a_number(text: str) -> None:
    assert number_of(text, 100) is None


def test_more_digits_than_python_reads_are_looked_at() -> None:
    assert number_of("9" * MANY, 100) is None
    assert number_of("0" * MANY + "7", 100) == 7
    assert number_of("0" * MANY, 100) == 0


def test_an_error_says_what_where_and_what_would_be_right() -> None:
    assert read_number("100", "--count", 100) == 100
    with pytest.raises(InputError) as caught:
        read_number("9" * MANY, "--count", 100)
    message = str(caught.value)
    assert message.startswith("expected a whole number of at most 100, got '9999")
    assert message.endswith("9999' at --count")
    assert len(message) < 200
