"""Looking into a family of masks that is only described: its size, its best, some of it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given

from alignup.topology_manager.hints import (
    feasible_hints,
)
from inputs.strategies import cases, examples
from models import topology_manager as model

WIDE = cases(9, 10)


@examples(50)
@given(WIDE)
def test_wide_feasible_hints_are_those_of_a_plain_enumeration(
    case: tuple[int, list[Any], dict[str, Any]],
) -> None:
    """Beyond 8 nodes a description is walked, sampled and counted as the enumeration says."""
    numa_nodes, demands, options = case
    expected = model.feasible(numa_nodes, demands, **options)
    described = feasible_hints(numa_nodes, demands, **options)

    assert described.pairs() == expected
    assert model.unpacked(described) == expected
    assert (described.total(), len(described)) == (len(expected), len(expected))
    assert [model.pair(hint) for hint in described.sample(5)] == expected[:5]
    assert bool(described) is bool(expected)


def test_a_list_too_long_to_walk_is_sampled() -> None:
    """2^34 hints are counted and shown in part; walking, measuring or pickling them is refused."""
    everything = feasible_hints(34, [(None, [1] * 34, 1)], universe=(1 << 34) - 1, preferred_size=1)

    assert everything.total() == 2**34 - 1
    assert [model.pair(hint) for hint in everything.sample(35)] == [
        (1 << node, True) for node in range(34)
    ] + [(3, False)]
    assert everything.best() == (1, True)
    assert everything.best_containing(0b110) == (0b110, False)
    assert repr(everything) == (
        "<HintList of 17179869183 hints, first [TopologyHint(BitMask([0]), True), "
        "TopologyHint(BitMask([1]), True)]>"
    )
    assert everything
    for walk in (
        len,
        list,
        pickle.dumps,
        hash,
        lambda hints: hints[0],
        lambda hints: hints.pairs(),
    ):
        with pytest.raises(
            OverflowError,
            match=r"at most 65536 hints to walk through, got 17179869183; use sample\(\)",
        ):
            walk(everything)


def test_a_list_too_varied_to_count_says_so() -> None:
    """Nodes that all differ are not counted one by one.

    No total is known, and a sample is still there.
    """
    amounts = [3**node % 1009 + 1 for node in range(40)]
    varied = feasible_hints(
        40, [(None, amounts, sum(amounts) // 3)], universe=(1 << 40) - 1, preferred_size=9
    )

    assert varied.total() is None
    with pytest.raises(OverflowError, match="got too many to count"):
        len(varied)
    assert len(varied.sample(2)) == 2


def test_a_sample_is_bounded() -> None:
    """However much is asked for, no more than 65,536 hints are kept in memory."""
    everything = feasible_hints(34, [(None, [1] * 34, 1)], universe=(1 << 34) - 1, preferred_size=1)

    assert len(everything.sample(2**31 - 1)) == 65536
