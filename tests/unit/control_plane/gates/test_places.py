"""Nodes that pods are on their way to, and what may come there beside them."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT
from alignup.kubelet.node_resource_topology.report import holdings_of
from inputs.keepers import EMPTY, bound, exact, given, keeper_of, let_go, node
from inputs.waiting_pods import GATED_READER, waiting_pod
from inputs.watched_objects import pod_object


def test_a_place_counts_until_the_pod_is_bound_and_after() -> None:
    keeper = keeper_of("a")
    for name in ("p", "q"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    assert given(keeper.decide(2)) == {}
    keeper.pod_seen(bound("p", "a", cpu=4), 3)
    assert not keeper.places
    assert given(keeper.decide(3)) == {}

    # its end is seen before the report says so, and the other way round
    keeper.pod_gone("uid-p", 4)
    assert given(keeper.decide(4)) == {"q": ("a",)}


def test_a_pod_that_was_let_go_and_is_missing_may_have_been_bound_meanwhile() -> None:
    """It was bound and deleted by force while nobody watched: its kubelet is at it still."""
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.pod_seen(waiting_pod("q", cpu=4), 2)
    keeper.pods_listed([waiting_pod("q", cpu=4)], 3)
    assert not keeper.places
    assert given(keeper.decide(3)) == {}
    keeper.pods_listed([waiting_pod("q", cpu=4)], 14)
    keeper.state.tick(15)
    assert given(keeper.decide(15)) == {"q": ("a",)}


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
    assert keeper.nodes.load("a").amounts["cpu"] == 2000
    keeper.pod_seen(bound("p", "a", cpu=1), 4)
    assert member.node.cpu.cpus("uid-p", "main") == cpus
    assert keeper.nodes.load("a").amounts["cpu"] == 2000


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


def test_a_place_is_given_up_with_its_pod() -> None:
    keeper = keeper_of("a")
    for name in ("p", "q"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 1)
    keeper.decide(1)
    keeper.pod_gone("uid-p", 2)
    assert given(keeper.decide(2)) == {"q": ("a",)}

    # a user takes the gate off, without a place
    keeper.pod_seen(waiting_pod("q", cpu=4, spec={"schedulingGates": None}), 3)
    assert not keeper.places
    keeper.pod_seen(waiting_pod("r", cpu=4), 4)
    assert given(keeper.decide(4)) == {"r": ("a",)}


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


def test_of_kinds_those_are_copies_that_ask_for_the_same() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=1), 1)
    (release,) = keeper.decide(1)
    (busy,) = release.nodes
    (idle,) = {"a", "b"} - {busy}
    pods = [
        waiting_pod("copy", cpu=1),
        waiting_pod("choosy", cpu=1, spec={"nodeSelector": {"zone": "east"}}),
        waiting_pod("other", cpu=2),
    ]
    kinds = [pod.kind for pod in pods]
    assert keeper.places.copies_among(kinds, busy) == kinds[:2]
    assert keeper.places.copies_among(kinds, idle) == kinds
    assert [keeper.places.are_copies(kind, busy) for kind in kinds] == [True, True, False]


def test_of_a_node_that_was_passed_over_and_is_gone_nothing_is_kept() -> None:
    """Its pods have ended, and it reports no more."""
    keeper = keeper_of("a", "b")
    keeper.pod_seen(bound("old", "a", cpu=1), 1)
    keeper.pod_seen(bound("other", "b", cpu=1), 1)
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {}
    assert keeper.unadmitted._passed_over == {"a", "b"}
    keeper.pod_gone("uid-old", 2)
    assert given(keeper.decide(2)) == {"p": ("a",)}
    keeper.node_gone("a")
    keeper.decide(4)
    assert keeper.unadmitted._passed_over == {"b"}
