"""Pods that wait are counted by a few reasons, and a scrape looks at no node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from alignup.control_plane.gates import wait_reasons
from alignup.control_plane.gates.wait_reasons import REASONS, WaitReasons
from alignup.kubernetes.node_fit import NodeObject
from inputs.keepers import ROOM, grouped_pod, keeper_of
from inputs.waiting_pods import GATED_READER, gated_object, waiting_pod
from inputs.watched_objects import watched

if TYPE_CHECKING:
    from alignup.control_plane.gates.keeper import Keeper


def counts(keeper, *, looks: int = 1, other_gates: int = 0) -> dict[str, int]:
    reasons = WaitReasons(keeper)
    for _ in range(looks):
        reasons.look()
    by_reason = reasons.counts(other_gates)
    assert tuple(by_reason) == REASONS
    return {reason: count for reason, count in by_reason.items() if count}


def waiting(keeper: Keeper, *pods) -> Keeper:
    for pod in pods:
        keeper.pod_seen(pod, 1)
    keeper.decide(1)
    return keeper


def test_no_node_aligns() -> None:
    keeper = waiting(keeper_of("a", "b"), waiting_pod("p", cpu=5), waiting_pod("q", cpu=5))
    assert counts(keeper) == {"no_node_aligns": 2}
    assert counts(waiting(keeper_of(), waiting_pod("p", cpu=5))) == {"no_node_aligns": 1}


def test_what_the_scheduler_would_refuse() -> None:
    keeper = keeper_of("a", "b")
    for name in ("a", "b"):
        keeper.node_seen(NodeObject(name, allocatable=ROOM, is_unschedulable=True), 0)
    assert counts(waiting(keeper, waiting_pod("p", cpu=2))) == {"scheduler_filters": 1}


def test_a_node_that_is_kept_for_another_pod() -> None:
    keeper = keeper_of("a")
    large = waiting_pod("large", cpu=5, priority=1)
    waiting(keeper, large)
    keeper.kept.reserve("a", large)
    by_reason = {"no_node_aligns": 1, "kept_for_others": 1}
    assert counts(waiting(keeper, waiting_pod("small", cpu=1))) == by_reason


def test_a_node_that_has_not_reported_its_last_pods() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(watched("there", "a", cpu=1), 1)
    assert counts(waiting(keeper, waiting_pod("p", cpu=2))) == {"not_reported": 1}


def test_of_several_nodes_the_one_that_is_nearest_to_a_place_says_the_reason() -> None:
    keeper = keeper_of("cordoned", "kept", "late")
    keeper.node_seen(NodeObject("cordoned", allocatable=ROOM, is_unschedulable=True), 0)
    assert counts(waiting(keeper, waiting_pod("large", cpu=5, priority=1))) == {"no_node_aligns": 1}
    keeper.kept.reserve("kept", next(iter(keeper.queue)))
    keeper.pod_seen(watched("there", "late", cpu=1), 1)
    waiting(keeper, waiting_pod("p", cpu=2))
    assert counts(keeper) == {"no_node_aligns": 1, "not_reported": 1}

    keeper.node_gone("late")
    assert counts(keeper) == {"no_node_aligns": 1, "kept_for_others": 1}
    keeper.node_gone("kept")
    assert counts(keeper) == {"no_node_aligns": 1, "scheduler_filters": 1}


def test_groups_other_gates_and_patches_that_were_refused() -> None:
    keeper = keeper_of("a")
    members = [grouped_pod(f"m{number}", size=3) for number in range(3)]
    waiting(keeper, *members[:2])
    assert counts(keeper) == {"group_incomplete": 2}
    waiting(keeper, members[2])
    assert counts(keeper) == {"group_has_no_room": 3}
    assert counts(keeper, other_gates=2) == {"group_has_no_room": 3, "other_gate": 2}

    keeper = keeper_of("a")
    pod = waiting_pod("p", cpu=2)
    waiting(keeper, pod)
    keeper.refused(pod, 2, for_good=True)
    assert counts(keeper) == {"patch_refused": 1}


@pytest.mark.filterwarnings("ignore")
def test_a_pod_that_gets_no_place_as_it_is() -> None:
    keeper = keeper_of("a")
    unreadable = gated_object("p", cpu="much")
    waiting(keeper, GATED_READER.decode(json.dumps(unreadable).encode()))
    assert counts(keeper) == {"unreadable": 1}


def test_a_pod_that_came_a_moment_ago() -> None:
    assert counts(waiting(keeper_of("a"), waiting_pod("p", cpu=5)), looks=0) == {"not_looked_at": 1}


def test_kinds_are_looked_at_in_turn_and_few_nodes_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds a look; the ones that were not looked at for longest come first."""
    keeper = keeper_of(*(f"n{number}" for number in range(80)))
    for name in list(keeper.nodes.objects):
        keeper.node_seen(NodeObject(name, allocatable=ROOM, is_unschedulable=True), 0)
    waiting(keeper, *(waiting_pod(f"p{number}", cpu=number + 1) for number in range(4)))
    reasons = WaitReasons(keeper)
    asked: list[str] = []
    why_not = keeper.choice.why_not

    def counting(pod, names):
        asked.extend([pod.watched.pod.name] * len(names))
        return why_not(pod, names)

    monkeypatch.setattr(keeper.choice, "why_not", counting)
    for look in range(4):
        asked.clear()
        reasons.look()
        assert sorted(set(asked)) == [f"p{2 * (look % 2)}", f"p{2 * (look % 2) + 1}"]
        assert len(asked) == 2 * wait_reasons._NODES

    asked.clear()
    assert reasons.counts(0)["scheduler_filters"] == 4
    assert not asked

    keeper.pod_gone("uid-p0", 2)
    reasons.look()
    assert reasons.counts(0)["scheduler_filters"] == 3
