"""Where each pod stands that waits."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.gates.decisions import Release
from alignup.control_plane.gates.node_affinity import pinned
from alignup.control_plane.gates.waiting_pods import PLACE
from alignup.records import replace
from inputs.keepers import bound, given, keeper_of, let_go
from inputs.waiting_pods import GATED_READER, gated_object, waiting_pod


def test_a_pod_shown_as_it_was_before_its_binding_stays_bound() -> None:
    """As the answer to a question asked before: no place is kept for it, nor given up."""
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    (release,) = keeper.decide(1)
    pod = bound("p", release.nodes[0], cpu=4)
    keeper.pod_seen(pod, 2)
    for earlier in (let_go("p", release.nodes, cpu=4), waiting_pod("p", cpu=4)):
        keeper.pod_seen(earlier, 3)
        assert not keeper.places
        assert not keeper.state.assumed
        assert keeper.state.pods["uid-p"].node == release.nodes[0]
        assert given(keeper.decide(3)) == {}


@pytest.mark.parametrize("is_let_go", [True, False])
def test_a_pod_deleted_by_force_and_shown_as_before_its_binding_gets_no_place(is_let_go) -> None:
    """Its kubelet has it for a while, and what it holds stays taken."""
    keeper = keeper_of("a", "b")
    waiting = waiting_pod("p", cpu=4)
    keeper.pod_seen(waiting, 1)
    (release,) = keeper.decide(1)
    (name,) = release.nodes
    keeper.pod_seen(bound("p", name, cpu=4), 2)
    keeper.pod_vanished("uid-p", 3)
    keeper.state.pod_missing("uid-p", 3)
    keeper.pod_seen(let_go("p", release.nodes, cpu=4) if is_let_go else waiting, 4)
    assert given(keeper.decide(4)) == {}
    assert not keeper.places
    assert keeper.state.members[name].node.manager.has_pod("uid-p")


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


def test_an_annotation_that_somebody_wrote_keeps_no_node() -> None:
    keeper = keeper_of("a", "b")
    pod = gated_object("p")
    pod["metadata"]["annotations"] = {PLACE: "a,b"}
    pod["spec"]["affinity"] = pinned(None, ["a"])
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), 1)
    assert given(keeper.decide(1)) == {"p": ()}

    # it needs no place, so that the patch left the annotation as it was
    pod["spec"]["schedulingGates"] = None
    pod["metadata"]["resourceVersion"] = "2"
    keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), 2)
    assert not keeper.places
    for name in ("q", "r"):
        keeper.pod_seen(waiting_pod(name, cpu=4), 3)
    assert set(given(keeper.decide(3))) == {"q", "r"}


@pytest.mark.filterwarnings("ignore")
def test_a_pod_that_cannot_be_read_stays_until_it_can() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("p", cpu="much"), 1)
    assert keeper.decide(1) == []
    assert list(keeper.pods.faulty) == ["uid-p"]
    keeper.pod_seen(waiting_pod("p", cpu="more"), 5)
    assert keeper.pods.faulty["uid-p"][1] == 1

    keeper.pod_seen(waiting_pod("p", cpu=4), 6)
    assert keeper.pods.faulty == {}
    assert given(keeper.decide(6)) == {"p": ("a",)}

    keeper.pod_seen(waiting_pod("q", cpu="much"), 7)
    keeper.pods_listed([], 8)
    assert keeper.pods.faulty == {}


def test_a_pod_that_has_ended_before_its_patch_was_refused_waits_no_more() -> None:
    keeper = keeper_of("a")
    pod = waiting_pod("p", cpu=4)
    keeper.pod_seen(pod, 1)
    assert len(keeper.decide(1)) == 1
    keeper.pod_gone("uid-p", 2)
    keeper.refused(pod, 3, for_good=True)
    assert not keeper.pods.parked
    assert keeper.decide(100) == []
    assert not keeper.queue
