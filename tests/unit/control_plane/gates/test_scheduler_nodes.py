"""Nodes as kube-scheduler has them."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.gates.scheduler_nodes import SchedulerNodes
from alignup.control_plane.gates.scheduler_rules import UNSELECTED, NodeLoad
from alignup.control_plane.gates.waiting_pods import PLACE_LABEL
from alignup.records import replace
from inputs.keepers import ROOM, given, keeper_of, let_go, node
from inputs.waiting_pods import GATED_READER, waiting_pod
from inputs.watched_objects import pod_object

EAST = {"zone": "east"}


def test_the_sums_of_all_bound_pods_count() -> None:
    keeper = keeper_of("a")
    shared = pod_object("shared", "a")
    shared["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4", "memory": "1Gi"}}
    keeper.pod_seen(GATED_READER.decode(json.dumps(shared).encode()), 1)
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {}
    keeper.pod_gone("uid-shared", 2)
    assert given(keeper.decide(2)) == {"p": ("a",)}


def test_what_is_free_changes_with_the_pods_and_with_the_node() -> None:
    nodes = SchedulerNodes()
    assert nodes.free("a") == {}
    assert nodes.seen(node("a"))
    assert not nodes.seen(node("a"))
    nodes.changed.clear()

    pod = waiting_pod("p", cpu=3)
    nodes.load("a").add(pod.watched.pod)
    assert nodes.free("a")["cpu"] == 4000
    assert nodes.most_of(pod, "a") == 1
    assert nodes.part_of(pod) == 3 / 7

    assert nodes.seen(node("b"))
    assert nodes.changed == {"b"}
    assert nodes.part_of(pod) == 3 / 14
    assert sorted(("a", "b"), key=nodes.cpus_in_use) == ["b", "a"]

    nodes.gone("b")
    nodes.gone("b")
    assert nodes.part_of(pod) == 3 / 7


def test_nodes_that_may_take_a_pod_are_those_that_would_if_they_were_empty() -> None:
    nodes = SchedulerNodes()
    for made in (node("full"), node("cordoned", is_unschedulable=True), node("east", labels=EAST)):
        nodes.seen(made)
    nodes.load("full").add(waiting_pod("old", cpu=7).watched.pod)
    pod = waiting_pod("p", cpu=4)
    assert nodes.that_may_take([pod]) == ["full", "east"]
    assert nodes.that_may_take([waiting_pod("q", cpu=8)]) == []
    assert nodes.that_may_take([]) == []

    # one that follows its label would find it there
    assert nodes.that_may_take([let_go("p", ["full"], cpu=4)]) == ["full", "east"]

    different = [waiting_pod(f"p{number}", cpu=4, spec=selecting(number)) for number in range(21)]
    assert nodes.that_may_take(different[:20]) == []
    assert nodes.that_may_take(different) == ["full", "cordoned", "east"]


def selecting(number: int) -> dict[str, object]:
    return {"nodeSelector": {"number": str(number)}}


@pytest.mark.parametrize(("pods", "most"), [(1, 0), (2, 1), (3, 2), (110, 6)])
def test_a_node_has_room_for_no_more_pods_than_it_takes(pods, most) -> None:
    """Its CPUs would be enough for six more."""
    nodes = SchedulerNodes()
    nodes.seen(replace(node("a"), allocatable={**ROOM, "pods": pods}))
    nodes.load("a").add(waiting_pod("old", cpu=1).watched.pod)
    assert nodes.most_of(waiting_pod("p", cpu=1), "a") == most


def test_a_pod_that_counts_on_a_node_is_judged_as_if_it_did_not() -> None:
    nodes = SchedulerNodes()
    nodes.seen(node("a"))
    pod = waiting_pod("p", cpu=4)
    nodes.load("a").add(pod.watched.pod)
    assert nodes.refusal(pod, "a") == "Insufficient cpu"
    assert nodes.refusal_beside_others(pod, "a") == ""
    assert nodes.load("a").pods == 1
    nodes.load("a").add(waiting_pod("q", cpu=4).watched.pod)
    assert nodes.refusal_beside_others(pod, "a") == "Insufficient cpu"
    assert nodes.would_take(pod, "a", NodeLoad())
    assert not nodes.would_take(pod, "a", nodes.load("a"))
    assert not nodes.would_take(pod, "b", NodeLoad())


def test_a_pod_that_was_let_go_finds_its_label_on_each_node() -> None:
    nodes = SchedulerNodes()
    nodes.seen(node("a"))
    label = {"key": f"{PLACE_LABEL}uid-p", "operator": "Exists"}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [label]}]
        }
    }
    pod = waiting_pod("p", spec={"affinity": {"nodeAffinity": required}})
    assert nodes.refusal(pod, "a") == UNSELECTED
    assert nodes.refusal(replace(pod, is_gated=False), "a") == ""
