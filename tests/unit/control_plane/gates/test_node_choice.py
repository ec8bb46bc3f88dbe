"""Which nodes may be the place of a pod."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from alignup.control_plane.gates.node_choice import UNREPORTED
from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.node_fit import NodeObject
from inputs.keepers import EMPTY, ROOM, TAINT, bound, exact, given, keeper_of, node
from inputs.waiting_pods import GATED_READER, gated_object, waiting_pod
from inputs.watched_objects import description, report


def test_what_a_report_lists_stays_taken_until_both_say_that_it_ended() -> None:
    keeper = keeper_of("a")
    holder = EMPTY.copy()
    pod = bound("p", "a", cpu=4)
    assert holder.admit(pod.pod)
    keeper.pod_seen(pod, 1)
    keeper.state.report_seen(exact("a", holder), 1)
    keeper.pod_seen(waiting_pod("q", cpu=4), 2)
    assert given(keeper.decide(2)) == {}

    # the API server lists it still: the scheduler would refuse the node
    keeper.state.report_seen(exact("a"), 3)
    assert given(keeper.decide(3)) == {}
    keeper.pod_gone("uid-p", 4)
    assert given(keeper.decide(4)) == {"q": ("a",)}


@pytest.mark.parametrize(
    "standing",
    [{"is_unschedulable": True}, {"taints": (TAINT,)}, {"labels": {"zone": "west"}}],
)
def test_a_node_that_its_scheduler_refuses_is_asked_again_when_it_changes(standing) -> None:
    keeper = keeper_of("a")
    keeper.node_seen(node("a", **standing), 1)
    keeper.pod_seen(waiting_pod("p", cpu=2, spec={"nodeSelector": {"zone": "east"}}), 1)
    assert given(keeper.decide(1)) == {}
    keeper.node_seen(node("a", labels={"zone": "east"}), 2)
    assert given(keeper.decide(2)) == {"p": ("a",)}


def test_a_pod_that_fits_only_beside_another_one_gets_no_place() -> None:
    """Its first container takes all CPUs near the NIC, where nobody keeps it from that."""
    described = description()
    described["devices"]["example.com/nic"] = [{"id": "nic0", "numa": 0}]
    empty = Description().template(json.dumps(described), {})
    keeper = keeper_of()
    keeper.node_seen(NodeObject("a", allocatable={**ROOM, "example.com/nic": 1}), 0)
    keeper.state.report_seen(report("a", described=described, holdings=empty), 0)
    keeper.pod_seen(bound("beside", "a", cpu=1), 1)

    pod = gated_object("p", cpu=3)
    second = gated_object("second", cpu=1, **{"example.com/nic": 1})["spec"]["containers"][0]
    pod["spec"]["containers"].append({**second, "name": "second"})
    fragile = GATED_READER.decode(json.dumps(pod).encode())
    assert keeper.state.members["a"].node.try_admit(fragile.watched.pod)
    assert not empty.try_admit(fragile.watched.pod)
    keeper.pod_seen(fragile, 1)
    now = SLOWEST_REPORT + 3
    assert keeper.decide(now) == []
    keeper.pod_gone("uid-beside", now)
    assert keeper.decide(now) == []


def test_a_node_is_asked_once_by_its_scheduler_and_a_pod_read_once_for_all_nodes(
    monkeypatch,
) -> None:
    """Both are most of the time that reasons take, of which there is one for each node."""
    names = [f"n{number}" for number in range(20)]
    keeper = keeper_of(*names)
    questions = Counter()

    def counting(owner, method):
        original = getattr(owner, method)

        def counted(*args, **options):
            questions[method] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, method, counted)

    counting(keeper.nodes, "refusal")
    counting(keeper.state.view, "empty_admits")
    pod = waiting_pod("p", cpu=2)
    assert keeper.choice.why_not(pod, names) == [""] * 20
    assert questions == {"refusal": 20, "empty_admits": 1}
    questions.clear()
    assert len(keeper.choice.capacities(pod)) == 20
    assert questions == {"refusal": 20, "empty_admits": 1}


def test_why_not_says_what_comes_first() -> None:
    keeper = keeper_of("cordoned", "kept", "busy", "free")
    keeper.node_seen(node("cordoned", is_unschedulable=True), 1)
    keeper.kept.reserve("kept", waiting_pod("large", cpu=4))
    keeper.pod_seen(bound("other", "busy", cpu=1), 1)
    keeper.nodes.gone("gone")
    pod = waiting_pod("p", cpu=2)
    names = ["cordoned", "kept", "busy", "free", "gone"]
    words = keeper.choice.why_not(pod, names)
    assert words == [
        "node(s) were unschedulable",
        "node(s) were kept for a pod that has waited longer",
        UNREPORTED,
        "",
        "node(s) had no Node object",
    ]
    for name, text in zip(names, words, strict=True):
        assert keeper.choice.takes(pod, name) is (not text)
