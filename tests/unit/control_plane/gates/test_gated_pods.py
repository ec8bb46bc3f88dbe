"""Where each pod stands that waits."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.gates.decisions import Release
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
