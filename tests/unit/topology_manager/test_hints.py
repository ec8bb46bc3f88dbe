"""What this module gives under one roof, and the two lists that stand for no list."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from alignup.topology_manager.hints import (
    IMPOSSIBLE,
    NO_PREFERENCE,
    BitMask,
    HintList,
    TopologyHint,
)


def test_no_preference_and_impossible_are_spelled_differently() -> None:
    """Both name any node; only one of them is preferred."""
    assert NO_PREFERENCE.pairs() == [(None, True)]
    assert IMPOSSIBLE.pairs() == [(None, False)]


def test_a_list_is_a_sequence() -> None:
    """It has all that a sequence has, and equals a plain list of the same hints."""
    first, second = TopologyHint(BitMask([0]), True), TopologyHint(None, False)
    hints = HintList([first, second, first])

    assert isinstance(hints, Sequence)
    assert hints == [first, second, first]
    assert hints != [first]
    assert (hints.index(second), hints.index(first, 1), hints.count(first)) == (1, 2, 2)
    assert list(reversed(hints)) == [first, second, first]
    with pytest.raises(ValueError, match="not in"):
        hints.index(TopologyHint(BitMask([5]), True))
