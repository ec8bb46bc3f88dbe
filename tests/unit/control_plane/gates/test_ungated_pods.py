"""Pods with something exclusive that came to nodes without the gate are counted, and told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup.control_plane.gates.ungated_pods import UngatedPods
from alignup.control_plane.gates.waiting_pods import GatedPodReader, WaitingPod
from inputs.keepers import let_go
from inputs.watched_objects import pod_object

READER = GatedPodReader()
MIRROR = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}


def bound(name: str = "p", node: str = "a", **keys: Any):
    """Return the record of a pod on a node, with other keys of its metadata or spec."""
    pod = pod_object(name, node, cpu=keys.pop("cpu", 2))
    pod["metadata"] |= keys.pop("metadata", {})
    pod["spec"] |= keys.pop("spec", {})
    pod |= keys
    watched = READER.decode(json.dumps(pod).encode())
    assert not isinstance(watched, WaitingPod)
    return watched


def owned_by(kind: str, *, controller: bool = True) -> dict[str, Any]:
    owner = {"kind": kind, "name": "o", "uid": "u", "controller": controller, "apiVersion": "v1"}
    return {"ownerReferences": [owner]}


SHARED = {"requests": {"cpu": "100m"}}


@pytest.mark.parametrize(
    ("is_ungated", "keys"),
    [
        (True, {}),
        (True, {"metadata": owned_by("ReplicaSet")}),
        (True, {"spec": {"schedulerName": "default-scheduler"}}),
        (True, {"status": {"phase": "Failed"}}),
        # the annotation alone is anybody's
        (True, {"metadata": {"annotations": {"alignup.dev/place": "a"}}}),
        (False, {"metadata": owned_by("DaemonSet")}),
        (False, {"metadata": owned_by("Node")}),
        (False, {"metadata": {"annotations": MIRROR, **owned_by("Node", controller=False)}}),
        (False, {"spec": {"schedulerName": "other"}}),
        (False, {"spec": {"containers": [{"name": "c", "resources": SHARED}]}}),
    ],
)
def test_who_is_ungated(is_ungated, keys) -> None:
    assert bound(**keys).is_ungated is is_ungated


def test_a_pod_that_was_let_go_to_a_place_is_not() -> None:
    pod = let_go("p", ["a"], cpu=2)
    assert isinstance(pod, WaitingPod)
    manifest = pod_object("p", "a", cpu=2)
    manifest["metadata"]["annotations"] = {"alignup.dev/place": "a"}
    manifest["spec"]["affinity"] = dict(pod.affinity or {})
    watched = READER.decode(json.dumps(manifest).encode())
    assert not isinstance(watched, WaitingPod)
    assert not watched.is_ungated


def test_it_is_told_once_a_minute_of_those_that_are_new() -> None:
    pods = UngatedPods()
    assert pods.warning(0.0) == ""
    pods.seen(bound("p"))
    pods.seen(bound("q", "b"))
    pods.seen(bound("own", metadata=owned_by("DaemonSet")))
    assert len(pods) == 2
    warning = pods.warning(1.0)
    assert warning.startswith(
        "2 pods with exclusive CPUs, memory or devices came to nodes without the gate "
        "alignup.dev/room, such as default/q on node b: "
    )
    assert "`alignup gates --install`" in warning
    assert "`kubectl label namespace default alignup.dev/gates=enabled`" in warning

    pods.seen(bound("p"))
    assert pods.warning(100.0) == ""
    pods.seen(bound("r"))
    assert pods.warning(100.0) != ""
    pods.seen(bound("s"))
    assert pods.warning(159.0) == ""
    assert "such as default/s on node a" in pods.warning(160.0)


def test_those_that_end_or_are_gone_are_not_counted_and_not_told() -> None:
    pods = UngatedPods()
    for name in "pqrs":
        pods.seen(bound(name))
    pods.gone("uid-p")
    pods.gone("unknown")
    pods.seen(bound("q", status={"phase": "Failed"}))
    pods.forget_all_but(["uid-s"])
    assert len(pods) == 1
    pods.gone("uid-s")
    assert len(pods) == 0
    assert pods.warning(0.0) == ""
