"""Which pods get which places, after events in the order in which a test has them."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.gates.keeper import PATIENCE, Keeper, Label, Release
from alignup.control_plane.gates.node_affinity import pinned
from alignup.control_plane.gates.waiting_pods import PLACE
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.node_fit import NodeObject
from alignup.records import replace
from inputs.waiting_pods import GATED_READER, gated_object, waiting_pod
from inputs.watched_objects import description, pod_object, report

EMPTY = Description().template(json.dumps(description()), {})
GIBI = 1 << 30
ROOM = {"cpu": 7000, "memory": 15 * GIBI, "pods": 110, "example.com/gpu": 2}
TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}


def node(name, **fields):
    return NodeObject(name, allocatable=ROOM, **fields)


def exact(name, holdings=EMPTY):
    return report(name, described=description(), holdings=holdings)


def keeper_of(*names, **options):
    """Return a keeper of empty nodes with 3 and 4 CPUs on two NUMA nodes, single-numa-node."""
    keeper = Keeper(ClusterState(), **options)
    keeper.pods_listed([], 0)
    keeper.nodes_listed([node(name) for name in names], 0)
    for name in names:
        keeper.state.report_seen(exact(name), 0)
    return keeper


def bound(name, where, **fields):
    return GATED_READER.decode(json.dumps(pod_object(name, where, **fields)).encode())


def let_go(name, names, *, refused=False, version="2", **fields):
    """Return a gated pod as the API server has it after the keeper's patch."""
    pod = gated_object(name, **fields)
    label = f"alignup.dev/place-uid-{name}"
    pod["spec"] |= {"schedulingGates": None, "affinity": pinned(None, names, label)}
    pod["metadata"] |= {"annotations": {PLACE: ",".join(names)}, "resourceVersion": version}
    if refused:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod["status"] = {"conditions": [condition]}
    return GATED_READER.decode(json.dumps(pod).encode())


def given(decisions):
    """Return the places that decisions give, by the name of the pod."""
    return {
        decision.pod.watched.pod.name: decision.nodes
        for decision in decisions
        if isinstance(decision, Release)
    }


def labels(decisions):
    return [
        (decision.node, decision.key.rpartition("-")[2], decision.is_set)
        for decision in decisions
        if isinstance(decision, Label)
    ]


def test_a_pod_gets_a_place_where_a_node_aligns_it() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("large", cpu=5), 1)
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    (release,) = keeper.decide(1)
    assert release.nodes == ("a",)
    assert release.label == "alignup.dev/place-uid-p"
    assert release.pod.watched.pod.name == "p"
    assert keeper.decide(2) == []
    assert [pod.uid for pod in keeper.queue] == ["uid-large"]


def test_a_place_counts_until_the_pod_is_bound_and_after() -> None:
    keeper = keeper_of("a")
    for name in ("p", "q"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    assert given(keeper.decide(2)) == {}
    keeper.pod_seen(bound("p", "a", cpu=4), 3)
    assert keeper.places == {}
    assert given(keeper.decide(3)) == {}

    # its end is seen before the report says so, and the other way round
    keeper.pod_gone("uid-p", 4)
    assert given(keeper.decide(4)) == {"q": ("a",)}


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


def test_a_node_with_a_place_that_is_not_bound_takes_only_equal_pods() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("p", cpu=1), 1)
    keeper.decide(1)
    keeper.pod_seen(waiting_pod("other", cpu=2), 1)
    keeper.pod_seen(waiting_pod("copy", cpu=1), 1)
    assert given(keeper.decide(1)) == {"copy": ("a",)}

    keeper.pod_seen(bound("p", "a", cpu=1), 2)
    assert given(keeper.decide(2)) == {}
    keeper.pod_seen(bound("copy", "a", cpu=1), 3)
    assert given(keeper.decide(3)) == {}

    # nor before it has reported these
    reported = EMPTY.copy()
    for name in ("p", "copy"):
        assert reported.admit(keeper.state.pods[f"uid-{name}"].pod)
    keeper.state.report_seen(exact("a", reported), 4)
    keeper.reported(["a"])
    assert given(keeper.decide(4)) == {"other": ("a",)}


def test_a_node_that_does_not_report_is_taken_to_have_admitted_its_pods() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(bound("p", "a", cpu=1), 1)
    keeper.pod_seen(waiting_pod("other", cpu=2), 1)
    assert given(keeper.decide(1)) == {}
    assert given(keeper.decide(10)) == {}
    assert given(keeper.decide(12)) == {"other": ("a",)}


def test_the_sums_of_all_bound_pods_count() -> None:
    keeper = keeper_of("a")
    shared = pod_object("shared", "a")
    shared["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4", "memory": "1Gi"}}
    keeper.pod_seen(GATED_READER.decode(json.dumps(shared).encode()), 1)
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {}
    keeper.pod_gone("uid-shared", 2)
    assert given(keeper.decide(2)) == {"p": ("a",)}


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


def test_pods_that_need_no_place_are_let_go_at_once_and_once() -> None:
    keeper = keeper_of()
    pod = gated_object("p")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}
    waiting = GATED_READER.decode(json.dumps(pod).encode())
    keeper.pod_seen(waiting, 1)
    assert keeper.decide(1) == [Release(waiting)]
    keeper.pod_seen(replace(waiting, version="2"), 1)
    assert keeper.decide(1) == []

    # the patch named an older version
    keeper.refused(waiting, 2)
    assert keeper.decide(2) == [Release(replace(waiting, version="2"))]


@pytest.mark.parametrize("changes_first", [False, True])
def test_a_refused_pod_waits_again_once_it_has_changed(changes_first) -> None:
    keeper = keeper_of("a")
    pod = waiting_pod("p", cpu=4)
    keeper.pod_seen(pod, 1)
    (release,) = keeper.decide(1)
    if changes_first:
        keeper.pod_seen(replace(pod, version="2"), 2)
        keeper.refused(release.pod, 2)
    else:
        keeper.refused(release.pod, 2)
        assert keeper.decide(2) == []
        keeper.pod_seen(pod, 2)
        assert keeper.decide(2) == []
        keeper.pod_seen(replace(pod, version="2"), 2)

    (release,) = keeper.decide(2)
    assert release.pod.version == "2"


def test_a_pod_refused_for_what_it_says_is_tried_again_much_later() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    (release,) = keeper.decide(1)
    keeper.refused(release.pod, 2, for_good=True)
    assert keeper.decide(30) == []
    assert given(keeper.decide(33)) == {"p": ("a",)}


def test_a_place_is_given_up_with_its_pod() -> None:
    keeper = keeper_of("a")
    for name in ("p", "q"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 1)
    keeper.decide(1)
    keeper.pod_gone("uid-p", 2)
    assert given(keeper.decide(2)) == {"q": ("a",)}

    # a user takes the gate off, without a place
    keeper.pod_seen(waiting_pod("q", cpu=4, spec={"schedulingGates": None}), 3)
    assert keeper.places == {}
    keeper.pod_seen(waiting_pod("r", cpu=4), 4)
    assert given(keeper.decide(4)) == {"r": ("a",)}


@pytest.mark.parametrize("nodes_first", [False, True])
def test_a_keeper_that_starts_anew_knows_the_places_by_the_objects(nodes_first) -> None:
    keeper = Keeper(ClusterState())
    pods = [let_go("p", ["a"], cpu=4), waiting_pod("q", cpu=4), let_go("r", ["b"], cpu=4)]
    nodes = [
        node("a"),
        node("b", is_unschedulable=True),
        node("c", labels={"alignup.dev/place-uid-r": "true", "alignup.dev/place-uid-old": "true"}),
    ]
    if nodes_first:
        keeper.nodes_listed(nodes, 0)
        keeper.pods_listed(pods, 0)
    else:
        keeper.pods_listed(pods, 0)
        keeper.nodes_listed(nodes, 0)
    for name in ("a", "b", "c"):
        keeper.state.report_seen(exact(name), 0)

    decisions = keeper.decide(1)
    assert given(decisions) == {}
    assert labels(decisions) == [("c", "old", False)]
    assert keeper.places["uid-r"].nodes == ("b", "c")

    # another list does not take the places away, however old they are
    keeper.pods_listed(pods, 900, 899)
    assert given(keeper.decide(901)) == {}
    keeper.pod_gone("uid-p", 902)
    assert given(keeper.decide(902)) == {"q": ("a",)}


WRONG = {
    "cordon": lambda keeper: keeper.node_seen(node("a", is_unschedulable=True), 3),
    "taint": lambda keeper: keeper.node_seen(node("a", taints=(TAINT,)), 3),
    "gone": lambda keeper: keeper.node_gone("a", 3),
    "another pod": lambda keeper: keeper.pod_seen(bound("other", "a", cpu=4), 3),
}


@pytest.mark.parametrize("event", WRONG)
def test_a_place_that_turns_out_wrong_is_given_anew_by_a_label(event) -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    WRONG[event](keeper)
    assert labels(keeper.decide(3)) == [("b", "p", True)]
    assert labels(keeper.decide(4)) == []

    key = "alignup.dev/place-uid-p"
    keeper.node_seen(node("b", labels={key: "true"}), 4)
    assert keeper.decide(4) == []
    keeper.pod_seen(waiting_pod("q", cpu=4), 4)
    assert given(keeper.decide(4)) == {}

    keeper.pod_seen(bound("p", "b", cpu=4), 5)
    assert labels(keeper.decide(5)) == [("b", "p", False)]
    keeper.node_seen(node("b"), 6)
    assert labels(keeper.decide(6)) == []
    assert keeper.places == {}


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


SPREAD = {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}


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


def test_pods_come_by_priority_and_a_refused_one_stops_nobody() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("low", cpu=4), 1)
    keeper.pod_seen(waiting_pod("high", cpu=4, priority=9), 1)
    keeper.pod_seen(waiting_pod("large", cpu=5, priority=99), 1)
    assert given(keeper.decide(1)) == {"high": ("a",)}


def test_a_large_pod_is_not_passed_by_small_ones_for_ever() -> None:
    """A node of 7 CPUs with five small pods, of which one ends and one comes at a time."""
    keeper = keeper_of("a")
    now = 1.0
    for number in range(5):
        keeper.pod_seen(bound(f"s{number}", "a", cpu=1), now)

    keeper.pod_seen(waiting_pod("large", cpu=4, created="2026-01-01T00:00:00Z"), now)
    placed_at = None
    for number in range(5, 60):
        now += 10.0
        keeper.pod_seen(
            waiting_pod(f"s{number}", cpu=1, created=f"2026-01-01T00:01:{number:02}Z"), now
        )
        if f"uid-s{number - 5}" in keeper.state.pods:
            keeper.pod_gone(f"uid-s{number - 5}", now)
        for name, nodes in given(keeper.decide(now)).items():
            keeper.pod_seen(bound(name, nodes[0], cpu=4 if name == "large" else 1), now)
            if name == "large":
                placed_at = now

    assert placed_at is not None
    assert placed_at >= PATIENCE
    # the node takes small ones again
    assert sum(pod.pod.exclusive_cpus == 1 for pod in keeper.state.pods.values()) > 1


def test_no_node_is_kept_for_a_pod_that_fits_no_empty_one() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("huge", cpu=6), 1)
    keeper.decide(1)
    assert keeper.decide(1 + 2 * PATIENCE) == []
    keeper.pod_seen(waiting_pod("p", cpu=1), 99)
    assert given(keeper.decide(99)) == {"p": ("a",)}


def test_a_leader_that_begins_anew_forgets_what_it_asked_for() -> None:
    keeper = keeper_of("a")
    pod = waiting_pod("p", cpu=4)
    keeper.pod_seen(pod, 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    assert [gated.uid for gated in keeper.gated] == ["uid-p"]
    keeper.begin_term(2)
    keeper.pod_seen(replace(pod, version="5"), 2)
    (release,) = keeper.decide(2)
    assert release.pod.version == "5"
