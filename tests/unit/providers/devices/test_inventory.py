"""Behaviour of `alignup.providers.devices.inventory`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.providers.devices.inventory import DevicePlugin, PreferredSets, preference_of

NVLINK_PAIRS = PreferredSets([["0", "3"], ["1", "2"], ["4", "7"], ["5", "6"]])
"""The example of KEP-693: eight GPUs and the pairs that share a link."""


@pytest.mark.parametrize(
    ("available", "must_include", "size", "expected"),
    [
        ("01234567", "", 2, "03"),
        ("1234567", "", 2, "12"),
        ("24567", "", 2, "47"),
        ("01234567", "", 4, "0123"),
        ("01234567", "", 3, "013"),
        ("01234567", "5", 2, "56"),
        ("01234567", "3", 2, "03"),
        ("0246", "", 2, "02"),
        ("02", "", 4, "02"),
        ("012", "12", 1, "12"),
    ],
)
def test_pairs_that_share_a_link_are_preferred(available, must_include, size, expected):
    """Whole pairs first, in order, as long as they fit; then single devices in ascending order."""
    assert (
        "".join(NVLINK_PAIRS.preferred_allocation(list(available), list(must_include), size))
        == expected
    )


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4)),
    st.sets(st.sampled_from("abcdefgh")),
    st.data(),
)
def test_an_answer_is_of_the_right_size_and_available(sets, available, data):
    """As many devices as asked for come back if there are so many.

    The necessary ones are among them.
    """
    must = data.draw(st.sets(st.sampled_from(sorted(available)))) if available else set()
    size = data.draw(st.integers(len(must), 8))
    answer = PreferredSets(sets).preferred_allocation(sorted(available), sorted(must), size)

    assert must <= set(answer) <= available
    assert len(answer) == min(size, len(available))


def test_an_object_or_a_function_can_be_a_plugin():
    """Anything else is a TypeError."""
    assert isinstance(NVLINK_PAIRS, DevicePlugin)
    assert preference_of(NVLINK_PAIRS)(["1", "2"], [], 1) == ["1"]
    assert preference_of(lambda available, _must, size: available[:size])(["1", "2"], [], 1) == [
        "1"
    ]
    with pytest.raises(TypeError, match="got 'pairs'"):
        preference_of("pairs")
