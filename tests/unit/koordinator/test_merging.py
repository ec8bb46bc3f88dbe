"""Merging under a named policy, and the words of a refusal.

The merge that does not walk the product is compared with one that does.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.koordinator.merging import ScoredHint, best_in_order, mask_text, merge
from inputs.strategies import examples
from models.koordinator import walk

ONE, TWO, BOTH = ScoredHint(1, True), ScoredHint(2, True), ScoredHint(3, False)

MASKS = st.one_of(st.none(), st.integers(0, 15), st.sampled_from([1, 2, 3, 12, 15]))
SCORES = st.sampled_from([0, 0, 10, 20, 50, -5])
MIXED_HINTS = st.builds(ScoredHint, MASKS, st.booleans(), st.booleans(), SCORES)
PREFERRED_HINTS = st.builds(
    ScoredHint, MASKS, st.just(True), st.sampled_from([False, False, True]), SCORES
)
OTHER_HINTS = st.builds(
    ScoredHint, MASKS, st.just(False), st.sampled_from([False, False, True]), SCORES
)
LISTS = st.one_of(
    st.lists(st.lists(hints, max_size=6), max_size=4)
    for hints in (MIXED_HINTS, PREFERRED_HINTS, OTHER_HINTS)
)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (None, "<nil>"),
        (0, "00"),
        (1, "01"),
        (2, "10"),
        (4, "100"),
        (5, "0101"),
        (8, "1000"),
        (16, "10000"),
        (17, "010001"),
        (64, "1000000"),
    ],
)
def test_masks_are_printed_as_in_the_original(mask, text):
    assert mask_text(mask) == text


def test_no_policy_admits_without_looking():
    merged = merge("", [{"cpu": []}], 3)
    assert merged.admitted
    assert merged.hint == ScoredHint(None, preferred=False)


@pytest.mark.parametrize(("policy", "mask"), [("Restricted", 3), ("SingleNUMANode", None)])
def test_a_resource_that_cannot_be_had_refuses(policy, mask):
    merged = merge(policy, [{"memory": [], "cpu": []}, {"gpu": [ONE]}], 3)
    assert not merged.admitted
    assert merged.hint == ScoredHint(mask, preferred=False)
    assert merged.reasons == ("Unsatisfied NUMA cpu", "Unsatisfied NUMA memory")


@pytest.mark.parametrize(("policy", "joint"), [("Restricted", " & "), ("SingleNUMANode", ",")])
def test_a_refusal_lists_what_was_preferred_and_possible(policy, joint):
    short = ScoredHint(3, True, unsatisfied=True)
    merged = merge(
        policy, [{"memory": [TWO, short], "gpu": None}, {"cpu": [ONE, BOTH]}, None, {}], 3
    )
    listed = ["cpu prefer [01] among [01 11]", "memory prefer [10] among [10]"]
    assert merged.reasons == (f"Unaligned NUMA Hint cause {joint.join(listed)}",)
    assert not merged.admitted


def test_best_effort_admits_whatever_comes():
    merged = merge("BestEffort", [{"cpu": []}, {"memory": [ONE]}], 3)
    assert merged.admitted
    assert merged.reasons == ()
    assert merged.hint == ScoredHint(3, preferred=False)


def test_best_effort_keeps_a_satisfied_result():
    assert merge("BestEffort", [{"cpu": [BOTH, TWO]}], 3).hint == TWO


def test_a_single_numa_machine_needs_no_affinity():
    merged = merge("SingleNUMANode", [{"cpu": [ScoredHint(1, True, score=7)]}], 1)
    assert merged.admitted
    assert merged.hint == ScoredHint(None, preferred=True)


def test_an_unknown_policy_is_a_clear_error():
    with pytest.raises(InputError, match="got 'restricted' at policy"):
        merge("restricted", [], 3)


def never(_mask):
    return False


@examples(300)
@given(lists=LISTS, all_nodes=st.integers(0, 15), violating=st.sets(st.integers(0, 15)))
@example(lists=[], all_nodes=3, violating={3})
@example(lists=[[]], all_nodes=3, violating=set())
def test_equals_the_walk(lists, all_nodes, violating):
    """Whatever the lists, the result is the one that the literal product leads to."""
    expected = walk(lists, all_nodes, violating.__contains__)
    assert best_in_order(lists, all_nodes, violating.__contains__) == expected


def test_order_decides_where_masks_and_scores_disagree():
    """A smaller mask and a higher score replace each other, so the later of two hints wins."""
    low, high = ScoredHint(1, True, score=10), ScoredHint(2, True, score=20)
    assert best_in_order([[low, high]], 3, never) == high
    assert best_in_order([[high, low]], 3, never) == low


def test_order_decides_among_other_results_too():
    """The same without any preferred combination, where the winner is found through blocks."""
    low, high = ScoredHint(1, False, score=10), ScoredHint(2, False, score=20)
    wide = ScoredHint(7, False)
    for lists in ([[low, high], [wide, low, wide]], [[high, low, wide], [wide, high]]):
        assert best_in_order(lists, 7, never) == walk(lists, 7, never)


@pytest.mark.parametrize("lists", [5, pytest.param(10, marks=pytest.mark.slow)])
def test_the_product_is_not_walked(lists):
    """Lists of 255 hints are merged; the product of five has 13 digits, that of ten 25."""
    hints = [ScoredHint(mask, False, score=mask % 7) for mask in range(1, 256)]
    best = best_in_order([hints] * lists, 255, never)
    assert best.mask is not None
    assert best.mask.bit_count() == 1
    assert not best.preferred


def test_a_violating_result_is_only_demoted():
    """A preferred combination that violates exclusivity may still win.

    Then it counts as one that is not preferred.
    """
    hints = [ScoredHint(1, True, score=5)]
    assert best_in_order([hints], 3, lambda mask: mask == 1) == ScoredHint(1, False, score=5)
