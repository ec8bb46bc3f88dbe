"""What this module gives under one roof, and the two lists that stand for no list."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from alignup.core import bitmask, feasible, hints
from alignup.core.merge import Merger
from alignup.topology_manager.hints import (
    IMPOSSIBLE,
    MAX_NUMA_NODES,
    NO_PREFERENCE,
    BitMask,
    HintList,
    TopologyHint,
    feasible_hints,
    smallest_size,
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


@pytest.mark.parametrize("numa_nodes", [2, 12])
def test_a_list_that_stands_for_no_preference_changes_no_merge(numa_nodes: int) -> None:
    offered = HintList([TopologyHint(BitMask([1]), True), TopologyHint(BitMask([0, 1]), False)])
    merger = Merger(numa_nodes)

    assert merger.merge([offered, NO_PREFERENCE]) == merger.merge([offered])
    assert merger.merge([NO_PREFERENCE]) == TopologyHint(BitMask().fill(numa_nodes), True)


@pytest.mark.parametrize("numa_nodes", [2, 12])
def test_beside_what_is_impossible_nothing_is_preferred(numa_nodes: int) -> None:
    """The best place of the others is still found, as best-effort needs it."""
    offered = HintList([TopologyHint(BitMask([1]), True), TopologyHint(BitMask([0, 1]), False)])

    assert Merger(numa_nodes).merge([offered, IMPOSSIBLE]) == TopologyHint(BitMask([1]), False)


def test_the_names_are_those_of_the_compiled_modules() -> None:
    """Who imports them here gets the very same objects, and the bound that they keep to."""
    assert (BitMask, HintList, TopologyHint) == (
        bitmask.BitMask,
        hints.HintList,
        hints.TopologyHint,
    )
    assert (feasible_hints, smallest_size) == (feasible.feasible_hints, feasible.smallest_size)
    assert feasible_hints(MAX_NUMA_NODES, [], universe=1, preferred_size=1).best() == (1, True)
    with pytest.raises(ValueError, match=f"1 to {MAX_NUMA_NODES} NUMA nodes"):
        feasible_hints(MAX_NUMA_NODES + 1, [], universe=1, preferred_size=1)
