"""Merging under a named policy, and the words of a refusal."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.koordinator.merging import ScoredHint, mask_text, merge

ONE, TWO, BOTH = ScoredHint(1, True), ScoredHint(2, True), ScoredHint(3, False)


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
