"""Which pods get which places, after events in the order in which a test has them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given as given_by_hypothesis
from hypothesis import strategies as st

from alignup.control_plane.gates.keeper import PATIENCE, Keeper, Label, Release
from alignup.control_plane.gates.keeper_service import patch_of
from alignup.control_plane.gates.node_affinity import pinned, required_terms
from alignup.control_plane.gates.scheduler_rules import NodeLoad
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL
from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT, ClusterState
from alignup.kubelet.node_resource_topology.report import Description, holdings_of
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
    label = f"{PLACE_LABEL}uid-{name}"
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
    assert release.label == f"{PLACE_LABEL}uid-p"
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


def test_a_node_that_is_gone_is_no_member_of_the_cluster_any_more() -> None:
    keeper = keeper_of("a", "b")
    keeper.node_gone("a", 1)
    assert set(keeper.state.members) == {"b"}
    keeper.nodes_listed([node("a")], 2)
    assert set(keeper.state.members) <= {"a"}


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


@pytest.mark.parametrize("how", ["event", "list"])
@pytest.mark.parametrize("reported", [True, False])
def test_a_pod_that_is_seen_no_longer_keeps_what_it_holds_until_that_is_sure(how, reported) -> None:
    """Its kubelet may be at it still; its scheduler counts it no more."""
    keeper = keeper_of("a")
    pod = bound("p", "a", cpu=4)
    holder = EMPTY.copy()
    assert holder.admit(pod.pod)
    keeper.pod_seen(pod, 1)
    if reported:
        keeper.state.report_seen(exact("a", holder), 1)
    keeper.pod_seen(waiting_pod("q", cpu=4), 2)
    if how == "event":
        keeper.pod_vanished("uid-p", 3)
    else:
        keeper.pods_listed([waiting_pod("q", cpu=4)], 3, is_cached=True)
    assert keeper._load_of("a").amounts["cpu"] == 0
    keeper.state.tick(10)
    assert given(keeper.decide(10)) == {}

    if reported:
        keeper.state.report_seen(exact("a"), 11)
        keeper.reported(["a"])
    else:
        keeper.state.pod_missing("uid-p", 11)
        keeper.state.tick(14)
    assert given(keeper.decide(14)) == {"q": ("a",)}


def test_a_pod_that_was_let_go_and_is_missing_may_have_been_bound_meanwhile() -> None:
    """It was bound and deleted by force while nobody watched: its kubelet is at it still."""
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(waiting_pod("q", cpu=4), 2)
    keeper.pods_listed([waiting_pod("q", cpu=4)], 3)
    assert keeper.places == {}
    assert given(keeper.decide(3)) == {}
    keeper.pods_listed([waiting_pod("q", cpu=4)], 14)
    keeper.state.tick(15)
    assert given(keeper.decide(15)) == {"q": ("a",)}


def test_a_pod_shown_as_it_was_before_its_binding_stays_bound() -> None:
    """As the answer to a question asked before: no place is kept for it, nor given up."""
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    (release,) = keeper.decide(1)
    pod = bound("p", release.nodes[0], cpu=4)
    keeper.pod_seen(pod, 2)
    for earlier in (let_go("p", release.nodes, cpu=4), waiting_pod("p", cpu=4)):
        keeper.pod_seen(earlier, 3)
        assert keeper.places == {}
        assert not keeper.state.assumed
        assert keeper.state.pods["uid-p"].node == release.nodes[0]
        assert given(keeper.decide(3)) == {}


def test_a_place_that_is_reported_is_not_taken_back() -> None:
    """Its pod is bound there, and the event that says so is late: the sums count it once."""
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("p", cpu=1), 1)
    keeper.decide(1)
    holder = EMPTY.copy()
    assert holder.admit(bound("old", "a", cpu=1).pod)
    assert holder.admit(bound("p", "a", cpu=1).pod)
    holder.remove("uid-old")
    keeper.state.report_seen(exact("a", holder), 2)
    member = keeper.state.members["a"]
    cpus = member.node.cpu.cpus("uid-p", "main")
    keeper.pod_seen(bound("other", "a", cpu=1), 3)
    assert member.node.cpu.cpus("uid-p", "main") == cpus
    assert keeper._load_of("a").amounts["cpu"] == 2000
    keeper.pod_seen(bound("p", "a", cpu=1), 4)
    assert member.node.cpu.cpus("uid-p", "main") == cpus
    assert keeper._load_of("a").amounts["cpu"] == 2000


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


# What a pod demands of a node before it is bound, of which its kubelet's managers see nothing. All
# but the last one an API server's defaults, or a platform, put into every pod.
CHOOSY = {
    "tolerations of the defaults": {
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for key in ("not-ready", "unreachable")
        ]
    },
    "selector": {"nodeSelector": {"zone": "east"}},
    "affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "zone", "operator": "In", "values": ["east"]}
                            ]
                        }
                    ]
                }
            }
        }
    },
}


@pytest.mark.parametrize("spec", CHOOSY.values(), ids=CHOOSY)
@pytest.mark.parametrize("is_due", [True, False])
def test_pods_that_choose_their_nodes_are_copies_once_they_are_bound(spec, is_due) -> None:
    keeper = keeper_of("a")
    keeper.node_seen(node("a", labels={"zone": "east"}), 0)
    keeper.pod_seen(waiting_pod("p", cpu=1, spec=spec), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    if not is_due:
        placed = pod_object("p", "a", cpu=1)
        placed["spec"] |= spec
        keeper.pod_seen(GATED_READER.decode(json.dumps(placed).encode()), 2)

    keeper.pod_seen(waiting_pod("copy", cpu=1, spec=spec), 3)
    keeper.pod_seen(waiting_pod("unchoosy", cpu=1), 3)
    keeper.pod_seen(waiting_pod("other", cpu=2, spec=spec), 3)
    assert given(keeper.decide(3)) == {"copy": ("a",), "unchoosy": ("a",)}


def test_a_node_that_does_not_report_is_taken_to_have_admitted_its_pods() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(bound("p", "a", cpu=1), 1)
    keeper.pod_seen(waiting_pod("other", cpu=2), 1)
    assert given(keeper.decide(1)) == {}
    assert given(keeper.decide(SLOWEST_REPORT)) == {}
    assert given(keeper.decide(SLOWEST_REPORT + 2)) == {"other": ("a",)}


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


def test_a_pod_that_was_deleted_holds_what_its_kubelet_may_still_give_it() -> None:
    """No report has listed it yet: only who looks for it knows that it is not there."""
    keeper = keeper_of("a")
    keeper.pod_seen(bound("p", "a", cpu=4), 1)
    keeper.pod_seen(waiting_pod("q", cpu=4), 1)
    keeper.pod_vanished("uid-p", 2)
    assert keeper.state.is_vanished("uid-p")
    assert given(keeper.decide(3)) == {}
    keeper.state.pod_missing("uid-p", 4)
    keeper.state.tick(60)
    assert given(keeper.decide(60)) == {"q": ("a",)}

    # of an end there is no doubt
    keeper.pod_seen(bound("q", "a", cpu=4), 61)
    keeper.pod_seen(waiting_pod("r", cpu=4), 61)
    keeper.pod_gone("uid-q", 62)
    assert given(keeper.decide(63)) == {"r": ("a",)}


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
        node(
            "c",
            labels={
                f"{PLACE_LABEL}uid-r": "true",
                f"{PLACE_LABEL}uid-old": "true",
            },
        ),
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
    assert {"uid-p", "uid-r", "uid-r@c"} == keeper.state.pods.keys()
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


def test_a_label_that_is_refused_is_asked_for_again_some_time_later() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("a", is_unschedulable=True), 2)
    (label,) = keeper.decide(2)
    keeper.label_refused(label)
    assert keeper.decide(2.5) == []
    assert keeper.decide(3.5) == [label]


def test_a_node_that_is_gone_gets_no_label() -> None:
    keeper = keeper_of("a", "b", "c")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("a", is_unschedulable=True), 2)
    (label,) = keeper.decide(2)
    keeper.node_gone("b", 3)
    keeper.label_refused(label)
    # it gets yet another one, and the one that is gone is not asked for
    assert labels(keeper.decide(4)) == [("c", "p", True)]
    assert labels(keeper.decide(6)) == []


def test_a_node_is_passed_over_while_one_leaves_and_another_one_comes() -> None:
    keeper = keeper_of("a")
    holder = EMPTY.copy()
    leaving = bound("old", "a", cpu=1)
    assert holder.admit(leaving.pod)
    keeper.pod_seen(leaving, 1)
    keeper.state.report_seen(exact("a", holder), 1)
    keeper.pod_seen(waiting_pod("p", cpu=2), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}

    keeper.pod_gone("uid-old", 2)
    keeper.pod_seen(waiting_pod("q", cpu=2), 2)
    assert given(keeper.decide(2)) == {}
    keeper.state.report_seen(exact("a"), 3)
    keeper.reported(["a"])
    assert given(keeper.decide(3)) == {"q": ("a",)}


def test_who_is_bound_comes_before_who_is_still_to_be_bound() -> None:
    """Their kubelet gets them in this order."""
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("p", cpu=3), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(bound("other", "a", cpu=3), 2)
    expected = EMPTY.copy()
    for name in ("other", "p"):
        assert expected.admit(keeper.state.pods[f"uid-{name}"].pod)
    assert holdings_of(keeper.state.members["a"].node) == holdings_of(expected)


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


@pytest.mark.parametrize("relabels", [True, False])
@pytest.mark.parametrize("has_terms", [True, False])
def test_every_release_can_be_written_as_a_patch(relabels, has_terms) -> None:
    """Several candidates too, for a pod with terms of its own or without."""
    keeper = keeper_of("a", "b", "c", relabels=relabels)
    term = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = {"nodeAffinity": required} if has_terms else None
    keeper.pod_seen(waiting_pod("p", cpu=4, spec={**SPREAD, "affinity": affinity}), 1)
    (release,) = filter(lambda decision: isinstance(decision, Release), keeper.decide(1))
    assert len(release.nodes) == (1 if has_terms and not relabels else 3)
    terms = required_terms(patch_of(release)["spec"]["affinity"])
    assert len(terms) == (1 if has_terms else len(release.nodes) + relabels)


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


def test_a_node_that_is_kept_takes_more_important_pods_and_no_others() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(bound("old", "a", cpu=4), 1)
    keeper.pod_seen(waiting_pod("large", cpu=4, priority=1), 1)
    keeper.decide(1)
    now = 2 + max(PATIENCE, SLOWEST_REPORT)
    assert keeper.decide(now) == []
    keeper.pod_seen(waiting_pod("small", cpu=1), now)
    keeper.pod_seen(waiting_pod("equal", cpu=2, priority=1), now)
    assert given(keeper.decide(now)) == {}
    keeper.pod_seen(waiting_pod("important", cpu=1, priority=2), now)
    assert given(keeper.decide(now)) == {"important": ("a",)}


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


def test_a_keeper_that_stands_by_follows_the_one_that_leads() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.stand_by()

    # what this one has decided came to nothing
    keeper.pod_seen(let_go("p", ["b"], cpu=4), 2)
    assert keeper.places["uid-p"].nodes == ("b",)
    assert {pod.node for pod in keeper.state.pods.values()} == {"b"}
    keeper.node_seen(node("a", labels={f"{PLACE_LABEL}uid-p": "true"}), 3)
    assert keeper.places["uid-p"].nodes == ("b", "a")

    # a label that nobody wants is taken away by who leads
    keeper.begin_term(4)
    keeper.pod_seen(bound("p", "a", cpu=4), 4)
    assert labels(keeper.decide(4)) == [("a", "p", False)]


def test_a_label_that_another_one_sets_late_is_taken_away() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("b", labels={f"{PLACE_LABEL}uid-p": "true"}), 3)
    assert labels(keeper.decide(3)) == [("b", "p", False)]
    assert keeper.places["uid-p"].nodes == ("a",)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("new", "new", "bound", "bound", "ended", "report", "cordon", "uncordon"),
                *("foreign", "let go", "refused", "time", "list", "node gone", "shared"),
            )
        ),
        st.integers(0, 7),
    ),
    max_size=60,
)


class World:
    """A cluster as its API server and its kubelets have it, which tells a keeper of each change."""

    def __init__(self) -> None:
        self.names = ("a", "b", "c")
        self.keeper = keeper_of(*self.names)
        self.kubelets = {name: EMPTY.copy() for name in self.names}
        self.pods = {}
        self.given = {}
        self.now = 1.0
        self.count = 0

    def run(self, event, number) -> None:
        """Let something happen."""
        self.now += 0.1
        name = self.names[number % 3]
        getattr(self, event.replace(" ", "_"))(number, name)
        for decision in self.keeper.decide(self.now):
            if isinstance(decision, Release):
                self.given[decision.pod.uid] = decision

    def new(self, number, _name) -> None:
        self.count += 1
        spec = SPREAD if number == 7 else {}
        pod = waiting_pod(f"p{self.count}", cpu=1 + number % 4, priority=number % 2, spec=spec)
        self.keeper.pod_seen(pod, self.now)

    def bound(self, number, _name) -> None:
        """Bind one of those that were let go, as its scheduler does, to one of its nodes."""
        if not self.given:
            return
        uid = sorted(self.given)[number % len(self.given)]
        decision = self.given.pop(uid)
        self._bind(decision.pod, decision.nodes[number % len(decision.nodes)])

    def _bind(self, pod, name) -> None:
        plain = pod.watched.pod
        record = bound(plain.name, name, cpu=plain.exclusive_cpus)
        # the kubelet admits it at once, and reports it some time later
        assert self.kubelets[name].admit(record.pod), (plain.name, name)
        self.pods[pod.uid] = name
        self.keeper.pod_seen(record, self.now)

    def foreign(self, number, name) -> None:
        """Bind a pod that no keeper has placed, where there is room."""
        self.count += 1
        record = bound(f"f{self.count}", name, cpu=1 + number % 2)
        due = [uid for uid, decision in self.given.items() if name in decision.nodes]
        if not due and self.kubelets[name].admit(record.pod):
            self.pods[record.pod.uid] = name
            self.keeper.pod_seen(record, self.now)

    def shared(self, number, name) -> None:
        """Bind a pod that takes of the sums only."""
        self.count += 1
        pod = pod_object(f"s{self.count}", name)
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{number}00m"}}
        self.keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), self.now)

    def let_go(self, number, _name) -> None:
        """Show that a gate is off."""
        if self.given:
            decision = self.given[sorted(self.given)[number % len(self.given)]]
            plain = decision.pod.watched.pod
            pod = let_go(plain.name, decision.nodes, cpu=plain.exclusive_cpus)
            self.keeper.pod_seen(pod, self.now)

    def refused(self, number, _name) -> None:
        """Let a patch come to nothing."""
        if self.given:
            uid = sorted(self.given)[number % len(self.given)]
            if not self.keeper.places[uid].is_open:
                self.keeper.refused(self.given.pop(uid).pod, self.now)

    def ended(self, number, _name) -> None:
        if self.pods:
            uid = sorted(self.pods)[number % len(self.pods)]
            self.kubelets[self.pods.pop(uid)].remove(uid)
            # a server says the one or the other, and who looks for it finds none
            if number % 2:
                self.keeper.pod_gone(uid, self.now)
            else:
                self.keeper.pod_vanished(uid, self.now)
                self.keeper.state.pod_missing(uid, self.now)

    def report(self, _number, name) -> None:
        self.keeper.state.report_seen(exact(name, self.kubelets[name]), self.now)
        self.keeper.reported([name])

    def cordon(self, _number, name) -> None:
        # a pod that was let go to it would have to move
        if not any(name in decision.nodes for decision in self.given.values()):
            self.keeper.node_seen(node(name, is_unschedulable=True), self.now)

    def uncordon(self, _number, name) -> None:
        self.keeper.node_seen(node(name), self.now)

    def node_gone(self, _number, name) -> None:
        # what nobody has reported of it is known again only when it reports
        if not any(name in decision.nodes for decision in self.given.values()):
            self.keeper.node_gone(name, self.now)
            self.report(0, name)

    def time(self, number, _name) -> None:
        self.now += (0.5, 2.0, 12.0, 40.0)[number % 4]
        self.keeper.state.tick(self.now)

    def list(self, _number, _name) -> None:
        """List what is bound and what waits."""
        pods = list(self.keeper.queue)
        pods += [place.newest for place in self.keeper.places.values()]
        state = self.keeper.state
        pods += [pod for uid, pod in state.pods.items() if uid not in state.assumed]
        pods += [pod for pod, _ in self.keeper._parked.values()]
        self.keeper.pods_listed(pods, self.now, self.now)


@given_by_hypothesis(EVENTS)
def test_nobody_waits_whom_a_node_would_take_and_no_kubelet_rejects_anybody(events) -> None:
    """Only what changed is asked: asked anew, all nodes refuse all that wait.

    Kubelets that admit pods at once reject none of those that were let go.
    """
    world = World()
    keeper = world.keeper
    for event, number in events:
        world.run(event, number)
        for pod in keeper.queue:
            assert keeper._choose(pod, None, 1) == [], (event, pod.uid)

        # the sums are those of all pods that count as bound
        for name in world.names:
            load = NodeLoad()
            for watched in keeper.state.by_node.get(name, {}).values():
                load.add(watched.pod)
            kept = keeper._load_of(name)
            assert (+kept.amounts, kept.pods) == (+load.amounts, load.pods)
