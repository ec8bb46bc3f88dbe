"""Who holds which NUMA nodes, and as which kind of pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.koordinator.occupancy import NOTHING_HELD, Occupancy, OccupancyTracker, pod_occupancy
from fakes import hint


@pytest.mark.parametrize(
    ("policy", "containers", "expected"),
    [
        ("single-numa-node", [(0b01, hint(True, 0))], Occupancy(single=0b01)),
        ("single-numa-node", [(0b01, hint(True, 0)), (0b10, hint(True, 1))], Occupancy(single=0b11)),
        ("single-numa-node", [(0, hint(True, 1))], Occupancy(single=0b10)),
        ("single-numa-node", [(0, hint(True))], NOTHING_HELD),
        ("restricted", [(0b011, hint(True, 0, 1))], Occupancy(multi=0b11)),
        ("restricted", [(0b001, hint(True, 0, 1))], Occupancy(multi=0b11)),
        ("restricted", [(0b01, hint(True, 0)), (0b10, hint(True, 1))], NOTHING_HELD),
        ("restricted", [(0, hint(True, 0, 1, 2))], NOTHING_HELD),
        ("restricted", [(0, hint(True, 0, 1))], Occupancy(multi=0b011)),
        ("best-effort", [(0b010, hint(False, 0, 1, 2))], NOTHING_HELD),
        ("best-effort", [(0b110, hint(False, 1))], Occupancy(multi=0b110)),
        ("none", [(0b01, None), (0b10, None)], Occupancy(multi=0b11)),
        ("none", [(0b01, None), (0b00, None)], NOTHING_HELD),
    ],
)
def test_what_a_pod_holds(policy, containers, expected):
    """By what its containers got, and by affinities that say so; a pod in one node by chance holds nothing."""
    assert pod_occupancy(policy, containers, 0b111) == expected


def test_removing_and_replacing():
    tracker = OccupancyTracker()
    tracker.add("single", Occupancy(single=0b0001))
    tracker.add("multi", Occupancy(multi=0b1100))
    assert tracker.occupancy == Occupancy(single=0b0001, multi=0b1100)
    tracker.remove("single")
    tracker.remove("single")
    assert tracker.occupancy == Occupancy(multi=0b1100)
    tracker.add("multi", Occupancy(multi=0b11))
    assert tracker.occupancy == Occupancy(multi=0b11)
    assert "multi" in tracker
    assert "single" not in tracker


def test_holders_are_those_of_the_nodes_asked_for():
    tracker = OccupancyTracker()
    tracker.add("a", Occupancy(single=0b01))
    tracker.add("b", Occupancy(multi=0b11))
    assert list(tracker.holders(Occupancy(single=0b11))) == ["a"]
    assert list(tracker.holders(Occupancy(multi=0b10))) == ["b"]
    assert tracker.holders(Occupancy(single=0b10)) == {}


PODS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 15), st.integers(0, 15)))


@given(PODS)
def test_the_tracker_holds_what_its_pods_hold(pods):
    tracker, model = OccupancyTracker(), {}
    for uid, single, multi in pods:
        if single == multi:
            tracker.remove(uid)
            model.pop(uid, None)
        else:
            model[uid] = Occupancy(single, multi)
            tracker.add(uid, model[uid])
        expected = NOTHING_HELD
        for held in model.values():
            expected |= held
        assert tracker.occupancy == expected
