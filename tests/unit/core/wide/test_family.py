"""Families of masks beyond 8 nodes, which are described and listed."""

from __future__ import annotations

from alignup import Merger
from alignup.topology_manager.hints import feasible_hints
from fakes.hint_providers import hint


def test_a_mask_of_the_preferred_size_is_preferred_whatever_sockets_it_touches() -> None:
    """With align-by-socket either is enough.

    That size, or as many sockets as nodes of that size take.
    """
    sockets = [0b00_0000_1111, 0b00_1111_0000, 0b11_0000_0000]
    hints = feasible_hints(
        10,
        [(None, [5, 1, 1, 1, 5, 1, 1, 1, 0, 0], 10)],
        universe=(1 << 10) - 1,
        preferred_size=2,
        sockets=sockets,
        preferred_sockets=1,
    )
    assert Merger(10).merge([hints]) == hint(True, 0, 4)
    assert hints.best() == (0b1_0001, True)


def test_a_described_mask_goes_before_a_higher_one_of_its_size_that_is_listed() -> None:
    """Nodes that may be used alone only are listed beside those that combine freely."""
    hints = feasible_hints(
        10, [(None, [1] * 10, 1)], universe=0b110, preferred_size=1, alone=1 << 9
    )
    assert Merger(10).merge([hints]) == hint(True, 1)
