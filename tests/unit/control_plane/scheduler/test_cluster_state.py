"""The state of a cluster after events in any order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import Node, read_machine
from alignup.claims.objects import Pool, Slice
from alignup.control_plane.api_server.objects import WatchedPod, decode_pod
from alignup.control_plane.scheduler.cluster_state import (
    LONGEST_BINDING,
    REPORT_DELAY,
    SLOWEST_REPORT,
    ClusterState,
    View,
    WatchedClaims,
)
from alignup.control_plane.scheduler.node_state import AmountsMember, ExactMember
from alignup.errors import AlignupWarning
from alignup.koordinator.effective import NODE_LABEL
from alignup.kubelet.node_resource_topology.report import (
    HOLDINGS,
    Description,
    decode_report,
    holdings_of,
)
from alignup.kubernetes.node_fit import node_object
from alignup.records import replace
from inputs.strategies import examples
from inputs.watched_objects import READER, description, pod_object, report, topology, watched

EMPTY = Description().template(json.dumps(description()), {})

NAMES = ("n", "m", "a")

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "gone", "report", "node gone", "list"]),
        st.integers(0, 5),
        st.sampled_from(NAMES),
    ),
    max_size=30,
)


def exact(name: str = "n", **given):
    return report(name, described=description(), holdings=given.get("holdings", EMPTY))


def admits(state: ClusterState, name: str, **limits) -> bool:
    judged = state.view.judge(watched("asked", **limits).pod, "least-numa-nodes")
    return bool(judged.admitted[state.view.numbers([name])[0]])


def test_a_node_is_known_by_what_it_publishes() -> None:
    state = ClusterState()
    state.report_seen(exact("e"), 0)
    state.report_seen(report("a"), 0)
    assert isinstance(state.members["e"], ExactMember)
    assert isinstance(state.members["a"], AmountsMember)


@pytest.mark.parametrize("annotations", [{}, {"k8stopoawareschedwg/rte-update": "periodic"}])
@pytest.mark.parametrize("zones", [0, 1, 2])
@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_another_exporter_of_a_node_that_publishes_changes_nothing(
    annotations, zones, policy
) -> None:
    """It replaces zones and attributes and keeps annotations that it does not know.

    So do `updateNRTInfo` of the resource topology exporter and the topology updater of Node Feature
    Discovery.
    """
    held = EMPTY.copy()
    pod = watched("held", "n", cpu=3)
    assert held.admit(pod.pod)
    published = topology("n", described=description(), holdings=held)
    overwritten = topology("n", cpu=[3, 4])
    overwritten["zones"] = overwritten["zones"][:zones]
    overwritten["attributes"] = [{"name": "topologyManagerPolicy", "value": policy}]
    overwritten["metadata"]["annotations"] = {**published["metadata"]["annotations"], **annotations}
    states = []
    for document in (published, overwritten):
        state = ClusterState()
        state.report_seen(decode_report(json.dumps(document).encode()), 0)
        state.pod_seen(pod, 0)
        assert isinstance(state.members["n"], ExactMember)
        states.append([admits(state, "n", cpu=cpu) for cpu in range(1, 9)])

    assert states[0] == states[1]
    assert True in states[0]
    assert False in states[0]


@pytest.mark.parametrize("pod_first", [True, False])
@pytest.mark.parametrize("kind", [exact, report])
def test_a_pod_and_a_report_may_come_in_any_order(kind, pod_first) -> None:
    state = ClusterState()
    pod = watched("a", "n", cpu=3)
    events = [lambda: state.pod_seen(pod, 0), lambda: state.report_seen(kind("n"), 0)]
    for event in events if pod_first else reversed(events):
        event()

    # an object is taken to count the pods that were there before it
    number = 1
    if kind is exact or not pod_first:
        number = 2
        assert not admits(state, "n", cpu=3, gpu=2)
        assert admits(state, "n", cpu=4)
        state.pod_seen(watched("b", "n", cpu=4), 0)
        assert not admits(state, "n", cpu=1)
    assert len(state.pods) == number


def test_a_pod_that_moved_is_on_its_new_node_only() -> None:
    """A name can be taken by another pod of the same uid only in tests.

    A missed end must do no harm all the same.
    """
    state = ClusterState()
    for name in ("n", "m"):
        state.report_seen(exact(name), 0)
    state.pod_seen(watched("a", "n", cpu=4), 0)
    state.pod_seen(watched("a", "m", cpu=4), 0)
    assert "n" not in state.by_node
    assert list(state.by_node["m"]) == ["uid-a"]


def test_a_list_ends_what_is_not_on_it_but_not_what_is_only_assumed() -> None:
    state = ClusterState()
    state.report_seen(exact(), 0)
    state.pod_seen(watched("a", "n"), 0)
    state.assume(watched("b", "n"), 0)
    state.pods_listed([watched("c", "n")], 1)
    assert {state.pods.get(f"uid-{name}") is not None for name in "bc"} == {True}
    assert state.pods.get("uid-a") is None


@pytest.mark.parametrize("pods_first", [True, False])
def test_a_node_is_passed_over_while_the_order_of_two_pods_is_not_known(pods_first) -> None:
    """An extender that starts again finds pods that their kubelet has not given to yet.

    In which order will it?
    """
    state = ClusterState()
    pods = [watched("a", "n", cpu=3), watched("b", "n", cpu=2), watched("c", "m", cpu=2)]
    pods.append(watched("shared", "m", cpu="500m", memory="0"))
    events = [
        lambda: state.pods_listed(pods, 0),
        lambda: state.reports_listed([exact("n"), exact("m")], 0),
    ]
    for event in events if pods_first else reversed(events):
        event()

    assert state.uncertain == {"n"}
    state.changed.clear()
    kubelet = EMPTY.copy()
    kubelet.admit(pods[1].pod)
    state.report_seen(exact("n", holdings=kubelet), 1)
    assert state.uncertain == set()
    assert state.changed == {"n"}
    state.pod_seen(watched("d", "n", cpu=1), 2)  # this one comes after the others, as everybody saw
    assert state.uncertain == set()


def test_the_order_of_two_pods_is_not_asked_for_for_ever() -> None:
    state = ClusterState()
    state.report_seen(exact("n"), 0)
    state.pods_listed([watched("a", "n", cpu=3), watched("b", "n", cpu=2)], 0)
    state.tick(SLOWEST_REPORT)
    assert state.uncertain == {"n"}
    state.tick(SLOWEST_REPORT + 1)
    assert state.uncertain == set()


def test_a_node_that_is_gone_is_not_asked() -> None:
    state = ClusterState()
    state.nodes_listed({"n": {}, "m": {}})
    for name in ("n", "m"):
        state.report_seen(exact(name), 0)
    state.nodes_listed({"m": {}})
    assert list(state.members) == ["m"]
    state.reports_listed([], 0)
    assert list(state.members) == []


def test_koordinators_label_overrides_the_policy_of_the_kubelet() -> None:
    state = ClusterState()
    loose = report("n", described=description(topologyManagerPolicy="none"), holdings=EMPTY)
    state.report_seen(loose, 0)
    assert admits(state, "n", cpu=5)
    state.node_seen("n", {NODE_LABEL: "SingleNUMANode"})
    assert not admits(state, "n", cpu=5)
    state.node_seen("n", {})
    assert admits(state, "n", cpu=5)


def test_a_pods_policy_keeps_it_from_the_nodes_of_others() -> None:
    """Exclusivity, with what the pods hold as far as they are watched."""
    state = ClusterState()
    loose = report("n", described=description(topologyManagerPolicy="none"), holdings=EMPTY)
    state.report_seen(loose, 0)
    spec = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}
    wide = watched("wide", "n", cpu=5)
    state.pod_seen(wide, 0)
    exclusive = watched("asked", cpu=1)
    exclusive.pod.annotations["scheduling.koordinator.sh/numa-topology-spec"] = json.dumps(spec)
    assert not state.view.judge(exclusive.pod, "least-numa-nodes").admitted[0]
    state.pod_gone("uid-wide", 0)
    assert state.view.judge(exclusive.pod, "least-numa-nodes").admitted[0]


def test_a_report_that_cannot_be_read_is_warned_of_and_the_node_is_not_known() -> None:
    state = ClusterState()
    state.report_seen(exact(), 0)
    broken = report("n", described={"machine": 3})
    with pytest.warns(AlignupWarning, match="what node n reports"):
        state.report_seen(broken, 0)
    assert list(state.members) == []
    state.report_seen(exact(), 0)
    assert list(state.members) == ["n"]


def test_waiting_for_a_report_ends() -> None:
    state = ClusterState()
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    state.pod_seen(watched("a", "n", cpu=3), 0)
    state.report_seen(exact(holdings=kubelet), 0)
    state.report_seen(report("m"), 0)
    state.pod_seen(watched("b", "m", cpu=3), 0)
    state.pod_gone("uid-a", 0)
    state.tick(SLOWEST_REPORT)
    assert not admits(state, "n", cpu=3, gpu=2)
    state.tick(SLOWEST_REPORT + 1)
    assert state.members["n"].node.pods == ()
    assert state.members["m"].pending == ()


def test_what_a_node_reported_last_counts_after_another_came_or_went() -> None:
    """Rows of nodes that did not change are kept, and only these."""
    state = ClusterState()
    state.report_seen(report("n", cpu=[3, 0]), 0)
    state.report_seen(exact("m"), 0)
    assert admits(state, "n", cpu=2)
    state.report_seen(report("n", cpu=[0, 0]), 0)
    assert not admits(state, "n", cpu=2)
    state.node_gone("m")
    assert not admits(state, "n", cpu=2)


@examples(100)
@given(EVENTS)
def test_any_events_leave_a_state_that_one_list_puts_right(events) -> None:
    state = ClusterState()
    kinds = {"n": exact("n"), "m": exact("m"), "a": report("a")}
    for event, number, name in events:
        if event == "pod":
            state.pod_seen(watched(f"p{number}", name, cpu=1 + number % 3), 0)
        elif event == "gone":
            state.pod_gone(f"uid-p{number}", 0)
        elif event == "report":
            state.report_seen(report("a", cpu=[number % 4, 0]) if name == "a" else kinds[name], 0)
        elif event == "node gone":
            state.node_gone(name)
        else:
            state.pods_listed([watched("p0", name)], 0)

        pod, anew = watched("asked", cpu=2, gpu=number % 3).pod, View()
        for member in state.members.values():
            anew.put(member)
        judged, expected = (
            node_report.judge(pod, "least-numa-nodes") for node_report in (state.view, anew)
        )
        assert (state.view.names, judged.admitted.tolist()) == (
            anew.names,
            expected.admitted.tolist(),
        )

    state.pods_listed([], 0)
    state.reports_listed(list(kinds.values()), 0)
    assert len(state.pods) == 0
    for name in ("n", "m"):
        state.node_gone(name)
        state.report_seen(kinds[name], 0)

    fresh = ClusterState()
    for node_report in kinds.values():
        fresh.report_seen(node_report, 0)

    for name in ("n", "m"):
        assert admits(state, name, cpu=4, gpu=1) == admits(fresh, name, cpu=4, gpu=1)


def test_the_copy_of_a_static_pod_is_the_pod_that_its_kubelet_reports() -> None:
    """And a pod that only says so is one of its own."""
    mirror_pod = pod_object("static-a", "a", cpu=2)
    metadata = mirror_pod["metadata"]
    metadata["annotations"] = {
        "kubernetes.io/config.mirror": "uid-of-file",
        "kubernetes.io/config.hash": "uid-of-file",
    }
    assert READER.read(decode_pod(json.dumps(mirror_pod).encode())).pod.uid == "uid-static-a"

    metadata["ownerReferences"] = [{"kind": "Node", "name": "a", "uid": "n", "controller": True}]
    copy = READER.read(decode_pod(json.dumps(mirror_pod).encode()))
    assert copy.pod.uid == "uid-of-file"

    state = ClusterState()
    kubelet = Description().template(json.dumps(description()), {}).copy()
    kubelet.admit(copy.pod)
    state.report_seen(report("a", described=description(), holdings=kubelet), 0)
    state.pod_seen(copy, 0)
    assert [pod.uid for pod in state.members["a"].node.pods] == ["uid-of-file"]


def test_a_pod_that_was_bound_and_ended_in_a_gap_of_the_watch_is_gone_with_the_next_list() -> None:
    """A list that began after the server has bound it; one that began before may lack it."""
    state = ClusterState()
    state.assume(watched("b", "n", cpu=4), 0.0)
    state.pods_listed([], 2.0, 1.0)
    assert list(state.pods) == [watched("b").pod.uid]  # the request may be under way
    state.assumed_rightly(watched("b").pod.uid, 3.0)
    state.pods_listed([], 5.0, 2.5)
    assert state.pods
    state.pods_listed([], 6.0, 4.0)
    assert not state.pods
    assert not state.assumed


def test_a_binding_whose_answer_never_came_counts_until_a_list_that_began_after_any_answer() -> (
    None
):
    state = ClusterState()
    state.assume(watched("b", "n", cpu=4), 0.0)
    state.pods_listed([], 600.0)
    assert not state.pods


def test_a_pod_that_a_report_has_ended_does_not_come_back_with_a_late_event() -> None:
    """Pods and reports are watched apart: its start may be told of after its end was reported."""
    state, kubelet = ClusterState(), EMPTY.copy()
    kubelet.admit(watched("a", cpu=4).pod)
    state.report_seen(exact("n", holdings=kubelet), 0)
    state.pod_seen(watched("a", "n", cpu=4), 0)
    assert not admits(state, "n", cpu=4)
    state.report_seen(exact("n"), 1)
    state.pod_seen(replace(watched("a", "n", cpu=4), since="s"), 1)
    assert admits(state, "n", cpu=4)
    state.pod_gone("uid-a", 2)
    assert not state.uncertain


def mirror(copy: str) -> WatchedPod:
    """The copy of a static pod of four CPUs, which an API server knows by a uid of its own."""
    made = pod_object("static-n", "n", cpu=4)
    made["metadata"] |= {
        "uid": copy,
        "annotations": {
            "kubernetes.io/config.mirror": "hash",
            "kubernetes.io/config.hash": "hash",
            "kubernetes.io/config.source": "file",
        },
        "ownerReferences": [{"kind": "Node", "name": "n", "uid": "of-n", "controller": True}],
    }
    return READER.read(decode_pod(json.dumps(made).encode()))


def test_a_static_pod_whose_copy_is_deleted_and_made_anew_keeps_its_cpus() -> None:
    """As after `kubectl delete` of it, or after a drain: the kubelet runs it on."""
    state, kubelet = ClusterState(), EMPTY.copy()
    first = mirror("first")
    kubelet.admit(first.pod)
    state.report_seen(exact("n", holdings=kubelet), 0)
    state.pod_seen(first, 1)
    assert not admits(state, "n", cpu=4)
    state.pod_gone("hash", 10)
    state.pod_seen(mirror("second"), 11)
    for moment in range(12, 700, 5):
        state.report_seen(exact("n", holdings=kubelet), moment)
        state.tick(moment)
        assert not admits(state, "n", cpu=4)

    # the deletion of the first is told once more, and the copy is there when all are listed
    state.pod_gone("hash", 700)
    for moment in range(701, 900, 5):
        state.tick(moment)
        assert not admits(state, "n", cpu=4)


def test_a_static_pod_whose_file_is_put_back_counts_though_a_list_has_shown_it_all_the_time() -> (
    None
):
    """A list that was behind showed its copy after that was deleted; then a report lacked it."""
    state, kubelet = ClusterState(), EMPTY.copy()
    first = mirror("first")
    kubelet.admit(first.pod)
    state.report_seen(exact("n", holdings=kubelet), 0)
    state.pod_seen(first, 1)
    state.pod_gone("hash", 10)
    state.pods_listed([first], 12, is_cached=True)
    state.report_seen(exact("n"), 13)
    assert admits(state, "n", cpu=4)
    state.pod_seen(mirror("second"), 40)
    assert not admits(state, "n", cpu=4)


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("seen_again", [1, 50, 100, 500])
@pytest.mark.parametrize("how", ["list", "event"])
def test_a_pod_that_is_seen_again_keeps_what_it_holds(how, seen_again, reported) -> None:
    """A list of an API server's cache may be behind, and an event wrong."""
    state, kubelet = ClusterState(), EMPTY.copy()
    pod = watched("a", "n", cpu=4)
    state.report_seen(exact("n"), 0)
    state.pod_seen(pod, 1)
    kubelet.admit(pod.pod)
    if reported:
        state.report_seen(exact("n", holdings=kubelet), 2)

    if how == "list":
        state.pods_listed([], 3)
    else:
        state.pod_vanished("uid-a", 3)
    for moment in range(4, 3 + seen_again):
        state.tick(moment)
        assert not admits(state, "n", cpu=4)

    if seen_again < 500:
        state.pod_seen(pod, 3 + seen_again)
    else:
        state.pods_listed([pod], 3 + seen_again)
    state.report_seen(exact("n", holdings=kubelet), 600)
    for moment in range(600, 800):
        state.tick(moment)
        assert not admits(state, "n", cpu=4)
    assert not state.uncertain


@pytest.mark.parametrize("reported", [True, False])
def test_a_pod_that_vanished_for_good_holds_nothing_soon_after_a_list_without_it(reported) -> None:
    state, kubelet = ClusterState(), EMPTY.copy()
    pod = replace(watched("a", "n", cpu=4), grace=30)
    state.report_seen(exact("n"), 0)
    state.pod_seen(pod, 0)
    kubelet.admit(pod.pod)
    wait = REPORT_DELAY
    if reported:
        state.report_seen(exact("n", holdings=kubelet), 0)
        wait = SLOWEST_REPORT + pod.grace

    state.pods_listed([], 0)
    assert not state.is_overdue(wait)
    state.pods_listed([], REPORT_DELAY)  # too early: what is behind may be so for a while
    state.tick(wait + 1)
    assert not admits(state, "n", cpu=4)
    assert state.is_overdue(wait + 1)
    state.pods_listed([], wait + 1)
    if reported:  # it may have been deleted right before the list
        state.tick(2 * wait + 1)
        assert not admits(state, "n", cpu=4)
        state.tick(2 * wait + 2)
    else:
        state.tick(wait + 2)
    assert admits(state, "n", cpu=4)
    state.tick(2 * wait + SLOWEST_REPORT + 2)
    assert not state.uncertain
    assert not state.is_overdue(10_000)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("reported_at", [0, 5, 10])
@pytest.mark.parametrize("deleted_at", [*range(5, 150, 10), 600])
def test_a_pod_that_was_missed_and_is_deleted_later_has_its_grace_period(
    deleted_at, reported_at, told
) -> None:
    """It is deleted by force long after a list that was behind has missed it, and runs on."""
    state, kubelet = ClusterState(), EMPTY.copy()
    pod = replace(watched("a", "n", cpu=4), grace=30)
    kubelet.admit(pod.pod)
    state.report_seen(exact("n"), 0)
    state.pod_seen(pod, 0)
    state.pods_listed([], 1)
    freed_at = None
    for now in range(1, deleted_at + 400, 5):
        if now > reported_at:
            state.report_seen(exact("n", holdings=kubelet), now)
        state.tick(now)
        if now == deleted_at + 1 and told:
            state.pod_vanished("uid-a", now)
        if state.is_overdue(now) or now == deleted_at + 101:
            state.pods_listed([] if now > deleted_at else [pod], now)
        if now <= deleted_at + pod.grace:
            assert not admits(state, "n", cpu=4), now
        elif freed_at is None and admits(state, "n", cpu=4):
            freed_at = now
    assert freed_at is not None


@pytest.mark.parametrize("absent", [10, 300, 100_000])
def test_a_static_pod_that_is_reported_runs_on_however_long_its_copy_is_missing(absent) -> None:
    """An API server, or what decides for it, may not take another copy; no list is asked for."""
    state, kubelet = ClusterState(), EMPTY.copy()
    copy = mirror("first")
    kubelet.admit(copy.pod)
    state.report_seen(exact("n", holdings=kubelet), 0)
    state.pod_seen(copy, 0)
    state.pod_vanished("hash", 1)
    for now in range(2, absent, max(1, absent // 50)):
        state.pods_listed([], now)
        state.pod_missing("hash", now)
        state.tick(now)
        assert not admits(state, "n", cpu=4)
        assert not state.is_overdue(now)

    # its manifest is taken away
    state.report_seen(exact("n"), absent)
    assert admits(state, "n", cpu=4)
    assert not state.is_overdue(2 * absent + 1000)


def test_a_report_that_lists_a_pod_that_was_missed_before_lets_it_be_looked_for_again() -> None:
    """Two lists that are behind have missed it, and it runs."""
    state, kubelet = ClusterState(), EMPTY.copy()
    pod = watched("a", "n", cpu=4)
    state.report_seen(exact("n"), 0)
    state.pod_seen(pod, 0)
    state.pods_listed([], 1, is_cached=True)
    state.pods_listed([], REPORT_DELAY + 2, is_cached=True)
    kubelet.admit(pod.pod)
    state.report_seen(exact("n", holdings=kubelet), REPORT_DELAY + 2)
    for moment in range(13, 1000):
        state.tick(moment)
        assert not admits(state, "n", cpu=4)
    assert state.is_overdue(1000)
    state.pods_listed([pod], 1000)
    state.tick(2000)
    assert not admits(state, "n", cpu=4)


def test_a_pod_that_vanished_and_is_seen_elsewhere_holds_nothing_where_it_was() -> None:
    state = ClusterState()
    for name in ("n", "m"):
        state.report_seen(exact(name), 0)
    state.pod_seen(watched("a", "n", cpu=4), 0)
    state.pod_vanished("uid-a", 1)
    state.pod_seen(watched("a", "m", cpu=4), 2)
    assert admits(state, "n", cpu=4)
    assert not admits(state, "m", cpu=4)


def test_a_pod_that_counts_as_bound_and_is_reported_is_not_taken_back() -> None:
    """Its binding was refused here, because somebody else had bound it there."""
    state, kubelet = ClusterState(), EMPTY.copy()
    for name in ("old", "a"):
        kubelet.admit(watched(name, cpu=3).pod)
    kubelet.remove("uid-old")
    state.report_seen(exact("n"), 0)
    state.assume(watched("a", "n", cpu=3), 0)
    state.report_seen(exact("n", holdings=kubelet), 1)
    assert str(state.members["n"].node.cpu.free_cpus) == "1-3,7"
    state.assumed_wrongly("uid-a")
    assert str(state.members["n"].node.cpu.free_cpus) == "1-3,7"
    state.pod_seen(watched("a", "n", cpu=3), 2)
    assert str(state.members["n"].node.cpu.free_cpus) == "1-3,7"

    # a list without it tells that it is gone
    state.assume(watched("b", "n", cpu=3), 3)
    state.assumed_wrongly("uid-b")
    assert "uid-b" not in state.pods


def test_a_pod_that_was_looked_for_in_vain_holds_nothing_soon_after() -> None:
    state = ClusterState()
    state.report_seen(exact("n"), 0)
    state.pod_seen(watched("a", "n", cpu=4), 0)
    state.pod_vanished("uid-a", 0)
    state.pod_missing("uid-a", 0)
    state.tick(REPORT_DELAY)
    assert not admits(state, "n", cpu=4)
    state.tick(REPORT_DELAY + 1)
    assert admits(state, "n", cpu=4)


def test_a_kubelet_has_as_long_as_the_grace_period_to_end_a_pod() -> None:
    state, kubelet = ClusterState(), EMPTY.copy()
    pod = replace(watched("a", "n", cpu=4), grace=600)
    kubelet.admit(pod.pod)
    state.pod_seen(replace(pod, is_leaving=True), 0)
    state.report_seen(exact("n", holdings=kubelet), 0)
    state.tick(500)
    assert not admits(state, "n", cpu=4)
    state.pod_gone("uid-a", 500)
    state.tick(500 + 600 + SLOWEST_REPORT)
    assert not admits(state, "n", cpu=4)
    state.tick(500 + 600 + SLOWEST_REPORT + 1)
    assert admits(state, "n", cpu=4)


def test_what_was_given_up_and_is_seen_again_holds_what_the_report_says() -> None:
    """The same report comes again and again: no other one mends it."""
    state, kubelet = ClusterState(), EMPTY.copy()
    for name in ("old", "a"):
        kubelet.admit(watched(name, cpu=3).pod)
    kubelet.remove("uid-old")
    state.pod_seen(watched("a", "n", cpu=3), 0)
    state.report_seen(exact("n", holdings=kubelet), 0)
    assert str(state.members["n"].node.cpu.free_cpus) == "1-3,7"
    state.pod_gone("uid-a", 0)
    state.tick(SLOWEST_REPORT + 1)
    assert str(state.members["n"].node.cpu.free_cpus) == "1-7"
    state.pod_seen(watched("a", "n", cpu=3), 100)
    assert str(state.members["n"].node.cpu.free_cpus) == "1-3,7"
    assert not admits(state, "n", cpu=4)
    assert not state.has_unreported(1000)


def test_only_pods_that_hold_what_no_report_lists_let_lists_be_asked_for() -> None:
    state, kubelet = ClusterState(), EMPTY.copy()
    late = REPORT_DELAY + 1
    state.report_seen(exact("n"), 0)
    state.report_seen(report("m"), 0)
    state.pod_seen(watched("shared", "n", cpu="500m", memory="0"), 0)
    assert not state.has_unreported(late)
    state.pod_seen(watched("a", "n", cpu=3), 0)
    assert state.has_unreported(late)
    kubelet.admit(watched("a", cpu=3).pod)
    state.report_seen(exact("n", holdings=kubelet), 0)
    assert not state.has_unreported(late)
    state.pod_seen(watched("b", "m", cpu=3), 0)
    assert state.has_unreported(late)
    state.tick(SLOWEST_REPORT + 1)
    assert not state.has_unreported(late)


def test_a_pod_that_its_node_is_about_to_report_lets_no_list_be_asked_for() -> None:
    """In a busy cluster there is always one; each list of a large one costs its server dearly."""
    state = ClusterState()
    state.report_seen(exact("n"), 0)
    state.pod_seen(watched("a", "n", cpu=3), 20)
    assert not state.has_unreported(20 + REPORT_DELAY / 2)
    state.report_seen(exact("n"), 25)  # an old one, that came late
    state.pod_seen(watched("a", "n", cpu=3), 26)
    assert state.has_unreported(20 + REPORT_DELAY)


def test_a_list_that_may_be_behind_ends_no_pod_that_was_bound_meanwhile() -> None:
    state = ClusterState()
    state.assume(watched("a", "n"), 0)
    state.assumed_rightly("uid-a", 1)
    state.pods_listed([], 5, 4, is_cached=True)
    assert state.pods
    state.pods_listed([], 5, 4)
    assert not state.pods


def test_a_node_is_passed_over_while_a_pod_that_it_would_refuse_is_not_reported() -> None:
    """What is in its way here may be gone there: then the kubelet has it."""
    state, kubelet = ClusterState(), EMPTY.copy()
    state.report_seen(exact("n"), 0)
    state.pod_seen(watched("phantom", "n", cpu=4), 0)
    other = watched("other", "n", cpu=4, gpu=1)
    state.pod_seen(watched("small", "n", cpu=1), 0)
    state.pod_seen(other, 0)
    assert state.uncertain == {"n"}
    kubelet.admit(watched("small", cpu=1).pod)
    kubelet.admit(other.pod)
    state.report_seen(exact("n", holdings=kubelet), 1)
    state.pod_gone("uid-phantom", 2)
    assert state.uncertain == set()
    assert not admits(state, "n", cpu=1, gpu=2)


def test_a_pod_that_a_list_shows_is_assumed_no_longer() -> None:
    state = ClusterState()
    state.assume(watched("a", "n"), 0)
    assert state.is_overdue(LONGEST_BINDING + REPORT_DELAY + 1)
    assert not state.is_overdue(LONGEST_BINDING + REPORT_DELAY - 1)
    state.pods_listed([watched("a", "n")], 1)
    assert not state.assumed


def test_a_pod_that_was_assumed_wrongly_was_never_there() -> None:
    """Those behind it get the places that they would have without it, and nothing is doubted."""
    state = ClusterState()
    state.report_seen(exact(), 0)
    for name in ("a", "b"):
        state.assume(watched(name, "n", cpu=3), 0)
    assert not admits(state, "n", cpu=2)
    state.changed.clear()

    state.assumed_wrongly("uid-a")
    expected = EMPTY.copy()
    assert expected.admit(watched("b", "n", cpu=3).pod)
    assert holdings_of(state.members["n"].node) == holdings_of(expected)
    assert state.changed == {"n"}
    assert not state.uncertain
    assert list(state.by_node["n"]) == ["uid-b"]

    # who is bound stays, whatever is said of it
    state.pod_seen(watched("b", "n", cpu=3), 1)
    for uid in ("uid-b", "uid-unknown"):
        state.assumed_wrongly(uid)
    assert list(state.pods) == ["uid-b"]


def test_a_node_of_amounts_forgets_who_was_assumed_wrongly_too() -> None:
    state = ClusterState()
    state.report_seen(report("n"), 0)
    before = state.members["n"].amounts
    state.assume(watched("a", "n", cpu=3), 0)
    assert state.members["n"].amounts != before
    state.assumed_wrongly("uid-a")
    assert state.members["n"].amounts == before
    assert not state.by_node


def test_one_member_says_which_of_several_pods_it_takes() -> None:
    state = ClusterState()
    for name in ("n", "m"):
        state.report_seen(exact(name), 0)
    state.pod_seen(watched("a", "n", cpu=3), 0)
    pods = {cpus: watched("asked", cpu=cpus).pod for cpus in range(1, 6)}
    for name in ("n", "m", "n"):
        taken = state.view.taken_by_one(name, pods, "least-numa-nodes")
        assert taken == [cpus for cpus in pods if admits(state, name, cpu=cpus)]
        scores = state.view.judge_on(pods[4], ["n", "m"], "least-numa-nodes")
        judged = state.view.judge(pods[4], "least-numa-nodes")
        numbers = state.view.numbers(["n", "m"])
        assert scores == dict(zip(("n", "m"), judged.score[numbers].tolist(), strict=True))

    # what is kept of a pod holds until some node has another device
    wanted = {"nics": watched("asked", cpu=1, **{"example.com/nic": 2}).pod}
    assert state.view.taken_by_one("n", wanted, "least-numa-nodes") == ["nics"]
    with_nic = {**description(), "devices": {"example.com/nic": [{"id": "nic0", "numa": 0}]}}
    empty = Description().template(json.dumps(with_nic), {})
    state.report_seen(report("o", described=with_nic, holdings=empty), 1)
    assert state.view.taken_by_one("o", wanted, "least-numa-nodes") == []


def test_what_gives_devices_is_made_once_for_a_node_and_its_slices() -> None:
    """And anew for another machine, another Node object or other slices."""
    claims = WatchedClaims(lambda _: None)
    node = Node(read_machine("xeon-2s"))
    described = node_object({"metadata": {"name": "n"}})
    first = claims._provider(node, described)
    assert claims._provider(node, described) is first
    assert claims._provider(node.copy(), described) is first

    relabelled = node_object({"metadata": {"name": "n", "labels": {"a": "b"}}})
    second = claims._provider(node, relabelled)
    assert second is not first
    assert claims._provider(Node(read_machine("dgx-h100")), relabelled) is not second

    third = claims._provider(node, described)
    claims.slices.changed(Slice("s", "driver", Pool("p"), node_name="n"))
    assert claims._provider(node, described) is not third


def lying(*pods, described=None, **container):
    """Return a report of the node `liar` that lists pods as they are given."""
    fields = {"cpus": "1-3", "memory": {"memory": {"0": 1 << 30}}, **container}
    holdings = [
        {"uid": f"uid-{name}", "name": name, "containers": {"main": fields}} for name in pods
    ]
    document = topology("liar", described=described or description(), holdings=EMPTY)
    document["metadata"]["annotations"][HOLDINGS] = json.dumps({"pods": holdings})
    return decode_report(json.dumps(document).encode())


def other_machine(number):
    """Return a description that differs from that of any other number."""
    document = description()
    document["machine"]["numaNodes"][0]["memory"] += number << 20
    if number % 2:
        document["machine"]["numaNodes"].pop()
        document["devices"] = {}
    return document


LIES = {
    "a pod of another node": [lying("held")],
    "a pod twice": [lying("a", "a")],
    "CPUs of two pods": [lying("a", "b")],
    "CPUs that do not exist": [lying("a", cpus="900-905")],
    "CPUs that are none": [lying("a", cpus="x")],
    "memory of a NUMA node that does not exist": [lying("a", memory={"memory": {"9": 4096}})],
    "more memory than there is": [lying("a", memory={"memory": {"0": 1 << 50}})],
    "less than no memory": [lying("a", memory={"memory": {"0": -1}})],
    "devices that do not exist": [lying("a", devices={"example.com/gpu": ["gpu9"]})],
    "devices of two pods": [lying("a", "b", cpus="", devices={"example.com/gpu": ["gpu0"]})],
    "a resource that does not exist": [lying("a", devices={"example.com/x": ["gpu0"]})],
    "another machine each time": [lying("a", described=other_machine(n)) for n in range(9)],
    "holdings of another machine": [lying("a"), lying("a", described=other_machine(1))],
    "now this and now that": [lying("held"), lying(), lying("a"), report("liar"), lying("held")],
    "less than nothing is free": [report("liar", cpu=[-3, -4], gpu=[-1, 5])],
    "more is free than any machine has": [report("liar", cpu=[10**17, 10**18])],
}


@pytest.mark.filterwarnings("ignore:what node liar reports is ignored")
@pytest.mark.parametrize("lie", LIES)
def test_what_a_node_reports_of_itself_changes_nothing_elsewhere(lie) -> None:
    """Nor does it end what watches the nodes."""
    state = ClusterState()
    state.report_seen(exact("n"), 0)
    pod = watched("held", "n", cpu=3)
    state.pod_seen(pod, 0)
    before = [admits(state, "n", cpu=cpu) for cpu in range(1, 6)]
    for moment, lies in enumerate(LIES[lie], 1):
        state.report_seen(lies, moment)
        state.tick(moment)
        assert [admits(state, "n", cpu=cpu) for cpu in range(1, 6)] == before
        assert state.by_node == {"n": {"uid-held": pod}}

    state.report_seen(exact("liar"), 20)
    assert admits(state, "liar", cpu=4, gpu=1)
