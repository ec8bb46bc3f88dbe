"""Nodes that are kept for those who have waited long."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.gates.kept_nodes import PATIENCE
from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT
from inputs.keepers import bound, exact, given, keeper_of
from inputs.waiting_pods import GATED_READER, gated_object, waiting_pod
from inputs.watched_objects import pod_object


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


def test_no_node_is_kept_for_a_pod_that_fits_no_empty_one() -> None:
    keeper = keeper_of("a")
    keeper.pod_seen(waiting_pod("huge", cpu=6), 1)
    keeper.decide(1)
    assert keeper.decide(1 + 2 * PATIENCE) == []
    keeper.pod_seen(waiting_pod("p", cpu=1), 99)
    assert given(keeper.decide(99)) == {"p": ("a",)}


def of_daemon_set(name, where, cpu):
    pod = pod_object(name, where)
    owner = {"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return GATED_READER.decode(json.dumps(pod).encode())


@pytest.mark.parametrize("size", [1, 8])
def test_no_node_is_kept_for_what_a_daemon_set_never_leaves(size) -> None:
    """Else whoever makes pods as large as whole nodes has all nodes kept for ever."""
    names = "abcdefgh"
    keeper = keeper_of(*names)
    for name in names:
        keeper.pod_seen(of_daemon_set(f"ds-{name}", name, "500m"), 1)
        keeper.state.report_seen(exact(name), 1)
    for number in range(size):
        pod = gated_object(f"g{number}", cpu=3, namespace="greedy")
        amounts = {"cpu": "4", "memory": "1Gi"}
        second = {"name": "second", "resources": {"limits": amounts, "requests": amounts}}
        pod["spec"]["containers"].append(second)
        if size > 1:
            pod["metadata"]["labels"] = {"alignup.dev/group": "g"}
            pod["metadata"]["annotations"] = {"alignup.dev/group-size": str(size)}
        keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), 1)

    assert given(keeper.decide(1)) == {}
    assert given(keeper.decide(PATIENCE + 2)) == {}
    assert keeper.kept.owners() == []
    for number in range(8):
        keeper.pod_seen(waiting_pod(f"q{number}", cpu=4), PATIENCE + 3)
    assert len(given(keeper.decide(PATIENCE + 3))) == 8


def test_of_a_pod_for_which_room_was_made_and_which_goes_nothing_is_kept() -> None:
    keeper = keeper_of("a")
    pod = waiting_pod("p", cpu=4)
    keeper.pod_seen(pod, 1)
    keeper.kept.reserve("a", pod)
    keeper.pod_gone("uid-p", 2)
    keeper.decide(3)
    assert keeper.kept.reserved_for(pod) == set()
