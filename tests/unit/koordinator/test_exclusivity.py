"""The rules of exclusivity over masks: what mixes, and which hints are left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.koordinator.effective import (
    NOTHING_HELD,
    Occupancy,
    document_score,
    exclusivity_sentence,
    holding_words,
    mixes,
)
from alignup.koordinator.node_policies import NOTHING_AVOIDED, Avoidance, permitted, rounds
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints

BUSY = Occupancy(single=0b0001, multi=0b1100)
"""Four NUMA nodes: a pod under SingleNUMANode in node 0, a pod across nodes 2 and 3."""

MASKS = st.integers(0, 15)


def hints(*masks):
    return HintList([TopologyHint(None if m is None else BitMask.from_int(m), True) for m in masks])


@pytest.mark.parametrize(
    ("mask", "single", "expected"),
    [
        (0b0001, True, False),
        (0b0010, True, False),
        (0b0100, True, True),
        (0b0001, False, False),
        (0b0011, False, True),
        (0b0110, False, False),
        (0b1111, False, True),
        (0b0000, False, False),
    ],
)
def test_a_mix_is_a_node_with_pods_of_both_kinds(mask, single, expected):
    """Pods under SingleNUMANode keep away from pods across NUMA nodes, and these from them."""
    assert mixes(mask, BUSY, single=single) is expected


@pytest.mark.parametrize(
    ("exclusive", "single", "expected"),
    [
        ("Required", False, [Avoidance(across=0b0001)]),
        ("Preferred", False, [Avoidance(across=0b0001), NOTHING_AVOIDED]),
        ("", False, [NOTHING_AVOIDED]),
        ("Required", True, [Avoidance(alone=0b1110), Avoidance(alone=0b1100)]),
        ("Preferred", True, [Avoidance(alone=0b1110), Avoidance(alone=0b1100), NOTHING_AVOIDED]),
        ("", True, [NOTHING_AVOIDED]),
    ],
)
def test_rounds(exclusive, single, expected):
    assert list(rounds(exclusive, BUSY, 0b1111, single=single)) == expected


def test_a_node_with_pods_of_both_kinds_attracts_nobody():
    occupancy = Occupancy(single=0b0011, multi=0b0110)
    assert rounds("Required", occupancy, 0b1111, single=True) == (
        Avoidance(alone=0b1110),
        Avoidance(alone=0b0110),
    )


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("exclusive", ["Required", "Preferred", ""])
def test_an_empty_machine_leaves_everything(exclusive, single):
    assert rounds(exclusive, NOTHING_HELD, 0b1111, single=single) == (NOTHING_AVOIDED,)


@given(MASKS, MASKS, MASKS, st.booleans())
def test_no_round_of_required_leaves_a_hint_that_mixes(held_single, held_multi, mask, single):
    """For a pod under SingleNUMANode that is a hint of one node.

    Its policy passes over all others.
    """
    occupancy = Occupancy(held_single, held_multi)
    for avoidance in rounds("Required", occupancy, 0b1111, single=single):
        if avoidance.allows(mask) and (mask.bit_count() == 1 or not single):
            assert not mixes(mask, occupancy, single=single)


@given(MASKS, MASKS, MASKS)
def test_the_last_round_of_required_leaves_all_that_does_not_mix(held_single, held_multi, mask):
    occupancy = Occupancy(held_single, held_multi)
    last = rounds("Required", occupancy, 0b1111, single=False)[-1]
    assert last.allows(mask) or mixes(mask, occupancy, single=False)
    for position in range(4):
        last = rounds("Required", occupancy, 0b1111, single=True)[-1]
        assert last.allows(1 << position) or mixes(1 << position, occupancy, single=True)


def test_hints_across_nodes_go_where_these_are_avoided():
    kept = permitted(hints(0b1, 0b10, 0b11, 0b110, 0b1110, 0b1111, None), Avoidance(across=0b1))
    assert kept == hints(0b1, 0b10, 0b110, 0b1110, None)


def test_hints_of_one_node_go_where_these_are_avoided():
    """And all hints of several nodes, which single-numa-node passes over."""
    kept = permitted(hints(0b1, 0b10, 0b100, 0b11, 0b1100, None), Avoidance(alone=0b1))
    assert kept == hints(0b10, 0b100, None)


def test_plain_sequences_of_hints_are_taken_too():
    assert permitted(list(hints(0b11, 0b10)), Avoidance(across=0b1)) == hints(0b10)


def test_lists_that_describe_more_hints_than_can_be_walked():
    """On 40 NUMA nodes of a CPU each, of which some are closed."""
    everywhere = feasible_hints(40, [(None, [1] * 40, 1)], universe=(1 << 40) - 1, preferred_size=1)
    kept = permitted(everywhere, Avoidance(alone=(1 << 38) - 1))
    assert [int(hint.affinity) for hint in kept] == [1 << 38, 1 << 39]


def test_what_is_left_may_be_nothing():
    assert not permitted(hints(0b11), Avoidance(across=0b1))


def test_without_anything_to_avoid_the_list_is_the_same_object():
    offered = hints(0b11)
    assert permitted(offered, NOTHING_AVOIDED) is offered


def test_a_sentence_names_the_pods_in_the_way():
    occupancy = Occupancy(single=0b100, multi=0b11)
    holders = {
        "ns/one": holding_words(occupancy, (0, 1, 8), single=True),
        "ns/wide": holding_words(occupancy, (0, 1, 8), single=False),
    }
    assert exclusivity_sentence(holders) == (
        "exclusivity (singleNUMANodeExclusive Required) keeps it away from pod 'ns/one' on NUMA "
        "node 8 under "
        "SingleNUMANode, pod 'ns/wide' across NUMA nodes 0+1"
    )
    assert exclusivity_sentence(dict.fromkeys("abcdefg", "there")).endswith(
        "pod 'd' there and 3 more"
    )


def test_a_resource_that_nodes_lack_adds_nothing_to_the_score():
    assert document_score(3, 0, 0) == 70


def test_one_numa_node_always_scores_above_two():
    assert document_score(1, 0.1, 100) > document_score(2, 100, 100)
