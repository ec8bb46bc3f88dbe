"""Hints, and packed lists of them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.topology_manager.hints import (
    BitMask,
    HintList,
    TopologyHint,
    feasible_hints,
)
from inputs.strategies import cases, examples, pairs
from models import topology_manager as model

NARROW = cases(1, 8)


def without_empty(
    hint_pairs: list[tuple[int | None, bool]],
) -> list[tuple[int | None, bool]]:
    """Return the hints but those of an empty mask, which have no arrays."""
    return [(mask, preferred) for mask, preferred in hint_pairs if mask != 0]


def hints_of(*given_pairs: tuple[int | None, bool]) -> HintList:
    return HintList(model.hint_list(given_pairs))


def test_a_hint_is_a_value() -> None:
    """Equal hints are equal, hash alike, evaluate back from their repr and survive pickling."""
    hint = TopologyHint(BitMask([0, 1]), True)

    assert hint == TopologyHint(BitMask([0, 1]), True)
    assert hash(hint) == hash(TopologyHint(BitMask([0, 1]), True))
    assert hint != TopologyHint(BitMask([0, 1]), False)
    assert hint != TopologyHint(None, True)
    assert hint != "hint"
    assert repr(hint) == "TopologyHint(BitMask([0, 1]), True)"
    assert repr(TopologyHint(None, False)) == "TopologyHint(None, False)"
    assert pickle.loads(pickle.dumps(hint)) == hint  # noqa: S301 - our own bytes


def test_a_hint_cannot_be_changed_and_can_be_matched() -> None:
    """Its two fields are read-only, and positional in a match statement."""
    hint = TopologyHint(BitMask([3]), False)
    match hint:
        case TopologyHint(affinity, preferred):
            assert (affinity, preferred) == (BitMask([3]), False)
    with pytest.raises(AttributeError):
        hint.preferred = True
    with pytest.raises(TypeError):
        TopologyHint([3], False)


@given(st.lists(pairs(9), max_size=12))
def test_a_list_keeps_what_it_was_given(given_pairs: list[tuple[int | None, bool]]) -> None:
    """Order, repetitions, empty masks and hints without a mask stay as they came.

    That holds below and above 8 nodes.
    """
    hints = model.hint_list(given_pairs)
    packed = HintList(hints)

    assert list(packed) == hints
    assert packed.pairs() == given_pairs
    assert (len(packed), bool(packed), packed.total()) == (len(hints), bool(hints), len(hints))
    assert packed == HintList(iter(hints))
    assert hash(packed) == hash(HintList(hints))
    assert [packed[index] for index in range(len(hints))] == hints
    assert list(packed.sample(3)) == hints[:3]
    assert all(hint in packed for hint in hints)
    assert pickle.loads(pickle.dumps(packed)) == packed  # noqa: S301 - our own bytes
    assert eval(repr(packed)) == packed  # noqa: S307 - that a repr evaluates back is the promise


def test_lists_of_equal_hints_are_equal() -> None:
    """A list that a caller wrote equals one that was computed, if hints and order are the same."""
    computed = feasible_hints(2, [(None, [1, 1], 1)], universe=3, preferred_size=1)

    assert computed == hints_of((1, True), (2, True), (3, False))
    assert hash(computed) == hash(hints_of((1, True), (2, True), (3, False)))
    assert computed != hints_of((2, True), (1, True), (3, False))
    assert computed != [TopologyHint(BitMask([0]), True)]
    assert TopologyHint(BitMask([0]), True) in computed
    assert TopologyHint(BitMask([0]), False) not in computed


def test_the_empty_list_says_that_nothing_will_do() -> None:
    assert not HintList.empty()
    assert list(HintList.empty()) == []
    assert HintList.empty() == HintList([]) == HintList()
    assert HintList.empty().best() is None


@pytest.mark.parametrize("wrong", [3, (1, True), None, BitMask([1])])
def test_a_list_takes_hints_only(wrong: object) -> None:
    with pytest.raises(TypeError, match="expected TopologyHint objects, got"):
        HintList([wrong])


@given(cases(1, 10), st.integers(0, 1023))
@examples(60)
def test_the_best_hint_is_preferred_then_narrowest_then_lowest(case: Any, inner: int) -> None:
    """`best` and `best_containing` agree with looking at every hint.

    Families are narrow, wide and listed.
    """
    numa_nodes, demands, options = case
    inner &= (1 << numa_nodes) - 1
    expected = model.feasible(numa_nodes, demands, **options)
    ordered = sorted(expected, key=lambda hint: (not hint[1], hint[0].bit_count(), hint[0]))
    best = next(iter(ordered), None)
    best_around = next((hint for hint in ordered if hint[0] & inner == inner), None)

    for hints in (feasible_hints(numa_nodes, demands, **options), hints_of(*expected)):
        assert hints.best() == best
        assert hints.best_containing(inner) == best_around


def test_a_list_as_long_as_is_allowed_can_be_walked() -> None:
    """16 nodes in every combination, and one that is used alone."""
    longest = feasible_hints(
        17, [(None, [1] * 17, 1)], universe=(1 << 16) - 1, preferred_size=1, alone=1 << 16
    )

    assert longest.total() == len(longest.pairs()) == 65536


@given(cases(1, 10), st.integers(0, 1023))
@examples(60)
def test_hints_that_avoid_nodes_are_those_that_do_not_mix(case: Any, avoided: int) -> None:
    """Masks of several nodes of which one is avoided are left out.

    Single nodes stay, and so does any node.
    """
    numa_nodes, demands, options = case
    offered = model.feasible(numa_nodes, demands, **options)
    expected = [
        (mask, preferred)
        for mask, preferred in offered
        if mask.bit_count() < 2 or not mask & avoided
    ]

    assert feasible_hints(numa_nodes, demands, **options).avoiding(avoided).pairs() == expected
    assert hints_of((None, True), *offered).avoiding(avoided).pairs() == [(None, True), *expected]


@pytest.mark.parametrize("numa_nodes", [5, 10])
def test_a_node_that_is_avoided_and_may_only_be_used_alone_stays(numa_nodes: int) -> None:
    hints = feasible_hints(numa_nodes, [], universe=0b11, preferred_size=1, alone=0b1_0000)

    assert (
        hints.avoiding(0b1_0000).pairs()
        == hints.pairs()
        == [(1, True), (2, True), (16, True), (3, False)]
    )


@pytest.mark.parametrize("numa_nodes", [5, 10])
def test_no_hint_contains_nodes_that_may_not_be_used(numa_nodes: int) -> None:
    hints = feasible_hints(
        numa_nodes, [(None, [1] * numa_nodes, 1)], universe=0b11, preferred_size=1
    )

    assert hints.best_containing(0b10) == (0b10, True)
    assert hints.best_containing(0b110) is None


@pytest.mark.parametrize("numa_nodes", [2, 9, 30])
def test_a_sample_has_no_negative_size(numa_nodes: int) -> None:
    hints = feasible_hints(numa_nodes, [], universe=(1 << numa_nodes) - 1, preferred_size=1)

    assert hints.sample(0) == ()
    with pytest.raises(ValueError, match="how many hints to return, got -1"):
        hints.sample(-1)


def arrays_of(hints: HintList) -> list[tuple[int, bool]]:
    return list(zip(hints.masks.tolist(), hints.preferred.tolist(), strict=True))


@given(st.lists(pairs(8) | pairs(20), max_size=12).map(without_empty))
def test_arrays_hold_each_hint_once_in_ascending_order(
    given_pairs: list[tuple[int | None, bool]],
) -> None:
    """0 stands for any node and comes first.

    A preferred hint comes before the other of its mask.
    """
    hints = hints_of(*given_pairs)
    expected = sorted({(mask or 0, not preferred) for mask, preferred in given_pairs})

    assert arrays_of(hints) == [(mask, not is_unpreferred) for mask, is_unpreferred in expected]
    fits_a_byte = all((mask or 0) < 256 for mask, _ in given_pairs)
    assert hints.masks.dtype == ("u1" if fits_a_byte else "u8")
    assert hints.preferred.dtype == bool
    assert not hints.masks.flags.writeable
    assert not hints.preferred.flags.writeable


@given(st.lists(pairs(8) | pairs(64), max_size=12).map(without_empty))
def test_a_list_from_arrays_is_the_one_they_came_from(
    given_pairs: list[tuple[int | None, bool]],
) -> None:
    """Up to order and repetitions; it can be walked, counted and sent elsewhere as any other."""
    hints = hints_of(*given_pairs)
    again = HintList.from_arrays(hints.masks, hints.preferred)

    assert arrays_of(again) == arrays_of(hints)
    assert set(again) == set(hints)
    assert len(again) == len(set(hints)) == again.total()
    assert pickle.loads(pickle.dumps(again)) == again  # noqa: S301 - our own bytes
    assert HintList.from_arrays(hints.masks[::-1], hints.preferred[::-1]) == again


@given(NARROW)
@examples(50)
def test_arrays_of_computed_lists(case: tuple[int, list[Any], dict[str, Any]]) -> None:
    numa_nodes, demands, options = case
    hints = feasible_hints(numa_nodes, demands, **options)

    assert arrays_of(hints) == sorted(model.feasible(numa_nodes, demands, **options))
    assert HintList.from_arrays(hints.masks, hints.preferred) == hints


def test_arrays_that_are_no_hints_are_refused() -> None:
    with pytest.raises(TypeError, match="expected masks of an integer type, got float64"):
        HintList.from_arrays([0.5], [True])
    with pytest.raises(TypeError, match="expected preferred of type bool, got int64"):
        HintList.from_arrays([1], [1])
    with pytest.raises(ValueError, match="expected masks of 0 or more, got -3 at 1"):
        HintList.from_arrays([1, -3], [True, True])
    for masks, preferred in ([[1]], [[True]]), ([1, 2], [True]), (1, True):
        with pytest.raises(
            ValueError, match="expected masks and preferred of one dimension and one length"
        ):
            HintList.from_arrays(masks, preferred)


@pytest.mark.parametrize("second_mask", [1, 1 << 20])
def test_a_hint_of_no_node_has_no_array(second_mask: int) -> None:
    """0 would read as any node."""
    with pytest.raises(ValueError, match="hints of at least one node"):
        _ = hints_of((0, True), (second_mask, True)).masks


def test_a_list_too_long_to_walk_has_no_arrays() -> None:
    everything = feasible_hints(34, [(None, [1] * 34, 1)], universe=(1 << 34) - 1, preferred_size=1)

    with pytest.raises(OverflowError, match="at most 65536 hints"):
        _ = everything.masks


def test_long_lists_that_were_given_can_be_walked() -> None:
    masks = list(range(1, 70_001))
    hints = HintList.from_arrays(masks, [False] * len(masks))

    assert hints.total() == len(hints) == 70_000
    assert hints.masks.tolist() == masks


@pytest.mark.parametrize("preferred", ["no", "", None, 2])
def test_whether_a_hint_is_preferred_is_a_truth_value(preferred: Any) -> None:
    with pytest.raises(TypeError, match=r"^expected True or False for preferred, got"):
        TopologyHint(None, preferred)
