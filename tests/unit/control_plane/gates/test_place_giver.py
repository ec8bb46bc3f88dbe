"""Who gets which node, and another one where that turns out wrong."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.gates.node_affinity import pinned
from alignup.control_plane.gates.reasons import Reasons
from alignup.control_plane.gates.wait_reasons import WaitReasons
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL
from inputs.keepers import (
    GIBI,
    SPREAD,
    TAINT,
    bound,
    given,
    grouped_pod,
    keeper_of,
    labels,
    let_go,
    node,
)
from inputs.waiting_pods import GATED_READER, gated_object, member, waiting_pod
from inputs.watched_objects import description, report


def test_a_pod_gets_a_place_where_a_node_aligns_it() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("large", cpu=5), 1)
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    (release,) = keeper.decide(1)
    assert release.nodes == ("a",)
    assert release.label == f"{PLACE_LABEL}uid-p"
    assert release.pod.watched.pod.name == "p"
    assert keeper.decide(2) == []
    assert [pod.uid for pod in keeper.queue] == ["uid-large"]


def test_only_nodes_that_changed_are_asked() -> None:
    keeper = keeper_of("a", "b")
    for name in ("p", "q", "r"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",), "q": ("b",)}
    for name, where in (("p", "a"), ("q", "b")):
        keeper.pod_seen(bound(name, where, cpu=4), 2)
    keeper.decide(2)

    judged = keeper.counts.judged
    for now in range(3, 9):
        assert keeper.decide(now) == []
    assert keeper.counts.judged == judged

    keeper.pod_seen(bound("small", "a", cpu=1), 9)
    keeper.pod_gone("uid-small", 9)
    keeper.decide(9)
    # a node without enough in sum is not asked at all
    assert keeper.counts.judged == judged


def test_who_fits_no_empty_node_is_asked_for_only_where_other_nodes_come() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("large", cpu=5), 1)
    assert keeper.waits_for_changes
    assert keeper.decide(1) == []
    assert not keeper.waits_for_changes

    judged = keeper.counts.judged
    keeper.pod_seen(bound("small", "a", cpu=1), 2)
    keeper.pod_gone("uid-small", 2)
    keeper.pod_seen(waiting_pod("large-too", cpu=5), 2)
    assert keeper.decide(2) == []
    assert keeper.counts.judged == judged

    keeper.node_seen(node("b"), 3)
    described = description(topologyManagerPolicy="best-effort")
    keeper.state.report_seen(report("b", described=described), 3)
    assert set(given(keeper.decide(3)).values()) == {("b",)}


def test_a_kind_of_which_none_waits_any_more_is_hopeless_no_more() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("large", cpu=5), 1)
    keeper.decide(1)
    assert len(keeper.pods.hopeless_kinds) == 1
    keeper.pod_gone("uid-large", 2)
    assert not keeper.pods.hopeless_kinds


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda keeper: keeper.pod_seen(waiting_pod("q", cpu=4), 3), id="a pod"),
        pytest.param(lambda keeper: keeper.pod_seen(grouped_pod("q"), 3), id="a group"),
        pytest.param(lambda keeper: keeper.node_seen(node("b", taints=(TAINT,)), 3), id="a node"),
        pytest.param(
            lambda keeper: keeper.node_seen(node("b", labels={f"{PLACE_LABEL}uid": "true"}), 3),
            id="a label",
        ),
    ],
)
def test_a_change_matters_where_something_waits_for_it(wait) -> None:
    """Else it is decided with the next thing that does."""
    keeper = keeper_of("a")
    keeper.decide(1)
    assert not keeper.waits_for_changes
    keeper.pod_seen(waiting_pod("p", cpu=4), 2)
    assert keeper.waits_for_changes
    assert given(keeper.decide(2)) == {"p": ("a",)}
    keeper.decide(2)
    assert not keeper.waits_for_changes
    wait(keeper)
    assert keeper.waits_for_changes


def test_a_kind_that_waits_anew_is_asked_for_everywhere() -> None:
    keeper = keeper_of("a", "b")
    for name in ("p", "q", "r"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 1)
    assert len(given(keeper.decide(1))) == 2
    keeper.pod_gone("uid-r", 2)
    for name, where in (("p", "a"), ("q", "b")):
        keeper.pod_seen(bound(name, where, cpu=4), 2)
        keeper.pod_gone(f"uid-{name}", 2)

    # nothing of the kind waits while both nodes get free
    keeper.decide(3)
    keeper.pod_seen(waiting_pod("s", cpu=4), 4)
    assert set(given(keeper.decide(4))) == {"s"}


WRONG = {
    "cordon": lambda keeper: keeper.node_seen(node("a", is_unschedulable=True), 3),
    "taint": lambda keeper: keeper.node_seen(node("a", taints=(TAINT,)), 3),
    "gone": lambda keeper: keeper.node_gone("a"),
    "another pod": lambda keeper: keeper.pod_seen(bound("other", "a", cpu=4), 3),
}


@pytest.mark.parametrize("event", WRONG)
def test_a_place_that_turns_out_wrong_is_given_anew_by_a_label(event) -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 1.2)
    WRONG[event](keeper)
    # at once, and not when it is looked at what no event tells of
    assert labels(keeper.decide(1.3)) == [("b", "p", True)]
    assert labels(keeper.decide(4)) == []

    key = f"{PLACE_LABEL}uid-p"
    keeper.node_seen(node("b", labels={key: "true"}), 4)
    assert keeper.decide(4) == []
    keeper.pod_seen(waiting_pod("q", cpu=4), 4)
    assert given(keeper.decide(4)) == {}

    keeper.pod_seen(bound("p", "b", cpu=4), 5)
    assert labels(keeper.decide(5)) == [("b", "p", False)]
    keeper.node_seen(node("b"), 6)
    assert labels(keeper.decide(6)) == []
    assert not keeper.places


def test_a_place_that_is_final_stays_as_it_is() -> None:
    keeper = keeper_of("a", "b", relabels=False)
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    (release,) = keeper.decide(1)
    assert release.label == ""
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("a", is_unschedulable=True), 3)
    assert keeper.decide(3) == []


def test_who_has_no_other_place_gets_one_when_a_node_gets_free() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(bound("old", "b", cpu=4), 1)
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("a", is_unschedulable=True), 2)
    keeper.pod_seen(waiting_pod("q", cpu=4), 2)
    assert keeper.decide(2) == []
    keeper.pod_gone("uid-old", 3)
    decisions = keeper.decide(3)
    assert labels(decisions) == [("b", "p", True)]
    assert given(decisions) == {}


def test_a_pod_that_its_scheduler_refuses_on_its_node_gets_another() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.pod_seen(let_go("p", ["a"], cpu=4, refused=True, version="3"), 2)
    assert keeper.decide(3) == []
    keeper.pod_seen(let_go("p", ["a"], cpu=4, refused=True, version="4"), 4)
    assert labels(keeper.decide(6)) == [("b", "p", True)]


def test_a_pod_with_terms_of_its_own_reaches_its_node_by_the_label_at_once() -> None:
    keeper = keeper_of("a")
    term = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {"affinity": {"nodeAffinity": required}}
    keeper.pod_seen(waiting_pod("p", cpu=2, spec=spec), 1)
    decisions = keeper.decide(1)
    assert labels(decisions) == [("a", "p", True)]
    assert given(decisions) == {"p": ("a",)}

    # a place that it reaches by a label only is not wrong before that is there
    pod = gated_object("p", cpu=2)
    pod["spec"] |= {
        "schedulingGates": None,
        "affinity": pinned(spec["affinity"], [], f"{PLACE_LABEL}uid-p"),
    }
    pod["metadata"] |= {"annotations": {PLACE: "a"}, "resourceVersion": "2"}
    keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), 2)
    assert keeper.decide(9) == []
    assert keeper.counts.mended == 0


def test_a_pod_of_which_its_scheduler_knows_more_has_several_candidates() -> None:
    keeper = keeper_of("a", "b", "c", "d")
    keeper.pod_seen(waiting_pod("p", cpu=4, spec=SPREAD), 1)
    assert given(keeper.decide(1)) == {"p": ("a", "b", "c")}

    # each place is kept until the scheduler has chosen
    for name in ("q", "r", "s", "t", "u"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 1)
    assert given(keeper.decide(1)) == {"q": ("d",)}
    keeper.pod_seen(let_go("p", ["a", "b", "c"], cpu=4), 2)
    assert given(keeper.decide(2)) == {}
    keeper.pod_seen(bound("p", "b", cpu=4), 3)
    assert given(keeper.decide(3)) == {"r": ("a",), "s": ("c",)}
    assert {pod.node for pod in keeper.state.pods.values()} == {"a", "b", "c", "d"}


def unmet(name, number=0, **fields):
    """Return a pod of which its scheduler knows more, of a kind of its own by its memory."""
    return waiting_pod(name, cpu=3, memory=GIBI + number, spec=SPREAD, **fields)


def refused_by_its_scheduler(name, nodes, number=0, **fields):
    return let_go(name, nodes, refused=True, cpu=3, memory=GIBI + number, spec=SPREAD, **fields)


@pytest.mark.parametrize(("nodes", "most"), [(12, 6), (40, 6), (80, 10)])
def test_pods_that_are_refused_everywhere_keep_some_nodes_of_a_namespace(nodes, most) -> None:
    """Also once each got other nodes beside those that were refused."""
    keeper = keeper_of(*(f"n{number:02}" for number in range(nodes)))
    for number in range(nodes):
        keeper.pod_seen(unmet(f"p{number:02}", number), 1)
    kept = {}
    for second in range(1, 40, 3):
        kept |= given(keeper.decide(second))
        for name, names in kept.items():
            fields = {"number": int(name[1:]), "version": str(second + 1)}
            keeper.pod_seen(refused_by_its_scheduler(name, names, **fields), second)
        assert len({name for place in keeper.places for name in place.nodes}) == most

    # others find the rest, and pods like these of another namespace do, too
    keeper.pod_seen(unmet("other", nodes, namespace="other"), 41)
    assert [len(names) for names in given(keeper.decide(41)).values()] == [3]
    for number in range(nodes):
        keeper.pod_seen(waiting_pod(f"q{number:02}", cpu=4), 42)
    assert len(given(keeper.decide(42))) == nodes - most - 3


def test_pods_of_all_namespaces_that_are_refused_keep_half_of_the_nodes_and_a_few_of_each() -> None:
    keeper = keeper_of(*(f"n{number:02}" for number in range(40)))
    for number in range(60):
        keeper.pod_seen(unmet(f"p{number:02}", number, namespace=f"ns{number % 4}"), 1)
    assert sum(len(names) for names in given(keeper.decide(1)).values()) == 20

    # one that has none yet gets its first ones all the same
    keeper.pod_seen(unmet("first", namespace="new"), 2)
    assert [len(names) for names in given(keeper.decide(2)).values()] == [3]
    keeper.pod_seen(unmet("second", 1, namespace="new"), 3)
    assert given(keeper.decide(3)) == {}


def test_who_waits_for_pods_of_its_namespace_gets_a_place_once_they_are_bound_or_gone() -> None:
    keeper = keeper_of(*(f"n{number:02}" for number in range(12)))
    for number in range(3):
        keeper.pod_seen(unmet(f"p{number}", number), 1)
    first = given(keeper.decide(1))
    assert set(first) == {"p0", "p1"}
    assert given(keeper.decide(2)) == {}
    (waiting,) = keeper.queue
    assert Reasons(keeper).reason(waiting).startswith("pods of its namespace with spread")
    reasons = WaitReasons(keeper)
    reasons.look()
    assert reasons.counts(0)["namespace_keeps_nodes"] == 1
    keeper.pod_seen(bound("p0", first["p0"][1], cpu=3, memory=GIBI), 3)
    assert [len(names) for names in given(keeper.decide(3)).values()] == [3]

    # also where nothing was asked for its kind meanwhile but nodes that changed
    keeper.pod_seen(unmet("p3", 3), 4)
    keeper.pod_seen(bound("other", "n11", cpu=1), 4)
    assert given(keeper.decide(4)) == {}
    keeper.pod_gone("uid-p1", 5)
    assert set(given(keeper.decide(5))) == {"p3"}
    assert [len(places) for places in keeper.places._unsure.values()] == [6]
    for name in ("p2", "p3"):
        keeper.pod_gone(f"uid-{name}", 6)
    assert not keeper.places._unsure
    assert not keeper.places._all_unsure


def test_who_waits_for_pods_of_its_namespace_stops_none_without_such_constraints() -> None:
    keeper = keeper_of(*(f"n{number:02}" for number in range(12)))
    for number in range(3):
        keeper.pod_seen(unmet(f"p{number}"), 1)
    volume = {"volumes": [{"persistentVolumeClaim": {"claimName": "lost"}}]}
    for name in ("v1", "v2", "v3"):
        keeper.pod_seen(waiting_pod(name, cpu=2, spec=volume), 1)
    keeper.pod_seen(waiting_pod("w", cpu=2, created="2026-02-01T00:00:00Z"), 1)
    assert "w" in given(keeper.decide(1))


def test_a_group_of_such_pods_waits_for_those_of_its_namespace() -> None:
    keeper = keeper_of(*(f"n{number:02}" for number in range(12)))
    for number in range(2):
        keeper.pod_seen(unmet(f"p{number}", number), 1)
    assert len(given(keeper.decide(1))) == 2
    for number in range(2):
        pod = member(f"m{number}", 2, cpu=3, spec=SPREAD)
        keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), 2)
    assert keeper.decide(2) == []
    assert len(keeper.groups.waiting) == 2
    keeper.pod_gone("uid-p0", 3)
    keeper.decide(3)
    assert {"uid-m0", "uid-m1"} <= set(keeper.places.uids)


def test_a_kept_node_is_not_given_beyond_the_part_of_a_namespace() -> None:
    keeper = keeper_of(*(f"n{number:02}" for number in range(12)), patience=5)
    for number in range(3):
        keeper.pod_seen(unmet(f"p{number}", number), 1)
    assert set(given(keeper.decide(1))) == {"p0", "p1"}
    for second in range(2, 30):
        assert given(keeper.decide(second)) == {}


def test_pods_come_by_priority_and_a_refused_one_stops_nobody() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("low", cpu=4), 1)
    keeper.pod_seen(waiting_pod("high", cpu=4, priority=9), 1)
    keeper.pod_seen(waiting_pod("large", cpu=5, priority=99), 1)
    assert given(keeper.decide(1)) == {"high": ("a",)}


@pytest.mark.parametrize("relabels", [True, False])
def test_a_late_label_matters_to_pods_that_follow_it_or_will(relabels) -> None:
    keeper = keeper_of("a", "b", "c", relabels=relabels)
    term = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    keeper.pod_seen(waiting_pod("terms", cpu=7, spec={"affinity": {"nodeAffinity": required}}), 1)
    keeper.pod_seen(waiting_pod("plain", cpu=7), 1)
    keeper.pod_seen(let_go("open", ["a"], cpu=2), 1)
    keeper.pod_seen(bound("bound", "b", cpu=2), 1)
    pods = {pod.watched.pod.name for pod in keeper.giver.pods_for_late_labels()}
    assert pods == ({"open", "terms"} if relabels else {"open"})
