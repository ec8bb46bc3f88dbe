"""Who holds which NUMA nodes, and what that leaves for others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.koordinator import ExclusivityTracker, NumaNodeState, Occupancy, document_score
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint


def hints(*masks):
    return HintList([TopologyHint(None if m is None else BitMask.from_int(m), True) for m in masks])


@pytest.fixture
def tracker():
    """Four NUMA nodes: a SingleNUMANode pod in node 0, a pod across nodes 2 and 3."""
    made = ExclusivityTracker()
    made.add("single", [BitMask([0])], "single-numa-node")
    made.add("multi", [None, BitMask([2, 3])], "restricted")
    return made


def test_states(tracker):
    assert tracker.occupancy == Occupancy(single=0b0001, multi=0b1100)
    states = [tracker.occupancy.state(position).value for position in range(4)]
    assert states == ["single", "idle", "shared", "shared"]


def test_containers_of_a_single_node_pod_may_be_in_several_nodes():
    tracker = ExclusivityTracker()
    tracker.add("pod", [0b01, 0b10], "single-numa-node")
    assert tracker.occupancy == Occupancy(single=0b11)


def test_a_pod_in_one_node_by_chance_holds_nothing(tracker):
    tracker.add("other", [0b10], "best-effort")
    assert tracker.occupancy.state(1) is NumaNodeState.IDLE


def test_required_skips_mixed_hints_and_no_others(tracker):
    found = tracker.filtered(hints(0b1, 0b10, 0b11, 0b110, 0b1110, 0b1111, None), "Required")
    assert found == hints(0b1, 0b10, 0b110, 0b1110, None)


def test_what_is_left_may_be_nothing(tracker):
    assert not tracker.filtered(hints(0b11), "Required")


@pytest.mark.parametrize("exclusive", ["Preferred", ""])
def test_without_required_the_list_is_the_same_object(tracker, exclusive):
    offered = hints(0b11)
    assert tracker.filtered(offered, exclusive) is offered


def test_an_empty_machine_changes_nothing():
    offered = hints(0b11)
    assert ExclusivityTracker().filtered(offered, "Required") is offered
    assert ExclusivityTracker().attempts("Preferred") == ("",)


def test_attempts(tracker):
    assert tracker.attempts("Required") == ("Required",)
    assert tracker.attempts("Preferred") == ("Required", "")
    assert tracker.attempts("") == ("",)


def test_preferred_scores_mixed_placements_zero(tracker):
    assert tracker.score(0b11, 4, 8, "Preferred") == 0
    assert tracker.score(0b11, 4, 8) == 85
    assert tracker.score(0b110, 4, 8, "Preferred") == 85
    assert tracker.score(0b1, 8, 8, "Preferred") == 100


def test_a_resource_that_nodes_lack_adds_nothing_to_the_score():
    assert document_score(3, 0, 0) == 70


def test_one_numa_node_always_scores_above_two():
    assert document_score(1, 0.1, 100) > document_score(2, 100, 100)


def test_removing_and_replacing(tracker):
    tracker.remove("single")
    tracker.remove("single")
    assert tracker.occupancy == Occupancy(multi=0b1100)
    tracker.add("multi", [0b11], "restricted")
    assert tracker.occupancy == Occupancy(multi=0b11)


PODS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 15), st.sampled_from(["single-numa-node", "restricted"]))
)


@given(PODS)
def test_after_all_pods_are_gone_nothing_is_held(pods):
    tracker = ExclusivityTracker()
    for uid, mask, policy in pods:
        tracker.add(uid, [mask], policy)
    for uid in "abc":
        tracker.remove(uid)
    assert tracker.occupancy == Occupancy()


def test_states_by_name():
    assert Occupancy.from_states(["idle", "single", "shared"]) == Occupancy(single=0b010, multi=0b100)
    with pytest.raises(InputError, match=r"got 'busy' at node_states\[1\]"):
        Occupancy.from_states(["idle", "busy"])
