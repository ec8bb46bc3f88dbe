"""Who may be evicted for pods that wait."""

from __future__ import annotations

import pytest

from alignup.control_plane.gates.scheduler_rules import NodeLoad
from alignup.control_plane.gates.victims import load_without, may_go
from inputs.evictions import bound

DAEMON = [{"kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}]


@pytest.mark.parametrize(
    ("fields", "is_so"),
    [
        ({}, True),
        ({"priority": 1}, True),
        ({"priority": 2}, False),
        ({"leaving": True}, False),
        ({"owners": DAEMON}, False),
        ({"owners": []}, True),
    ],
)
def test_who_may_go_for_a_pod_of_priority_two(fields, is_so) -> None:
    assert may_go(bound("p", "a", **fields), 2) is is_so


def test_sums_without_some_pods_are_those_of_the_others() -> None:
    pods = [bound(f"p{number}", "a", cpu=number + 1) for number in range(3)]
    load = NodeLoad()
    for pod in pods:
        load.add(pod.pod)
    less = load_without(load, pods[:2])
    assert (less.pods, less.amounts["cpu"]) == (1, 3000)
    assert (load.pods, load.amounts["cpu"]) == (3, 6000)
