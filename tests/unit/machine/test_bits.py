"""Ints as bit sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alignup.machine.bits import bit_numbers, bit_set, union

NUMBERS = st.sets(st.integers(0, 300))


@given(NUMBERS)
def test_numbers_come_back_ascending(numbers):
    """Whatever order they went in."""
    assert list(bit_numbers(bit_set(numbers))) == sorted(numbers)


@given(st.lists(NUMBERS, max_size=4))
def test_a_union_is_that_of_sets(sets):
    """And empty when there are none."""
    assert union(map(bit_set, sets)) == bit_set(set().union(*sets))
