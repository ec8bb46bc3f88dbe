"""Up to 8 nodes all masks that hold a request are listed, the preferred ones apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from alignup.topology_manager.hints import feasible_hints
from inputs.strategies import cases, examples
from models import topology_manager as model

NARROW = cases(1, 8)
EVERY_NODE = 0b1111


@examples(150)
@given(NARROW)
def test_feasible_hints_are_those_of_a_plain_enumeration(
    case: tuple[int, list[Any], dict[str, Any]],
) -> None:
    """Up to 8 nodes: the same masks, the same preference, narrowest first."""
    numa_nodes, demands, options = case

    assert feasible_hints(numa_nodes, demands, **options).pairs() == model.feasible(
        numa_nodes, demands, **options
    )


@pytest.mark.parametrize(
    ("request_size", "preferred_size", "expected"),
    [
        (1, 1, {0b01: True, 0b10: True, 0b11: False}),
        (2, 1, {0b01: True, 0b11: False}),
        (3, 2, {0b11: True}),
        (4, 2, {}),
        (0, 0, {0b01: False, 0b10: False, 0b11: False}),
    ],
)
def test_masks_that_hold_a_request_by_hand(
    request_size: int, preferred_size: int, expected: dict[int, bool]
) -> None:
    """Two of node 0, one of node 1; the empty mask is no hint, though it holds a request of 0."""
    hints = feasible_hints(
        2, [(None, [2, 1], request_size)], universe=0b11, preferred_size=preferred_size
    )

    assert dict(hints.pairs()) == expected


def test_with_sockets_a_mask_is_preferred_for_as_many_as_it_should_touch() -> None:
    """Two sockets of two nodes: either node count or socket count makes a mask a preferred one."""
    hints = feasible_hints(
        4,
        [(None, [1] * 4, 2)],
        universe=EVERY_NODE,
        preferred_size=3,
        sockets=[0b0011, 0b1100],
        preferred_sockets=1,
    )
    preferred = {mask for mask, is_preferred in hints.pairs() if is_preferred}

    assert preferred == {0b0011, 0b1100, 0b0111, 0b1011, 0b1101, 0b1110}
    assert len(hints) == 11


def test_eight_nodes_fill_every_word_of_a_family() -> None:
    """All 255 masks, and those of one size alone."""
    everything = feasible_hints(8, [(None, [1] * 8, 1)], universe=255, preferred_size=4)
    large = feasible_hints(8, [(None, [1] * 8, 7)], universe=255, preferred_size=7)

    assert len(everything) == 255
    assert sum(preferred for _, preferred in everything.pairs()) == 70
    assert {mask.bit_count() for mask, _ in large.pairs()} == {7, 8}
    assert large.best() == (0b0111_1111, True)
