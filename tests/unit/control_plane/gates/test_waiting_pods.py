"""What is read of pods that wait behind the gate, and of those that were let go."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.api_server.objects import WatchedPod
from alignup.control_plane.gates.node_affinity import GATE, pinned
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL, GatedPodReader, WaitingPod
from alignup.errors import AlignupWarning
from inputs.waiting_pods import gated_object, waiting_pod
from inputs.watched_objects import pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def read(pod, **options):
    return GatedPodReader(**options).decode(json.dumps(pod).encode())


def test_a_pod_has_what_its_scheduler_looks_at() -> None:
    toleration = {"key": "a", "operator": "Exists"}
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    spec = {
        "nodeSelector": {"zone": "east"},
        "tolerations": [toleration],
        "affinity": affinity,
        "overhead": {"cpu": "250m"},
    }
    pod = waiting_pod("p", priority=3, cpu=2, spec=spec)
    constraints = pod.kind.constrained.constraints
    assert constraints.node_selector == {"zone": "east"}
    assert list(constraints.tolerations) == [toleration]
    assert constraints.node_affinity == tuple(terms)
    assert pod.kind.requests == {"cpu": 2250, "memory": 1 << 30}
    assert pod.affinity == affinity
    assert pod.watched.priority == 3
    assert pod.version == "1"
    assert pod.created == "2026-01-01T00:00:00Z"
    assert pod.waits
    assert pod.needs_place
    assert pod.label == f"{PLACE_LABEL}uid-p"


def test_copies_are_of_one_kind_and_others_are_not() -> None:
    reader = GatedPodReader()

    def kind(name, **fields):
        return reader.decode(json.dumps(gated_object(name, **fields)).encode()).kind

    first = kind("p", cpu=2)
    assert kind("q", cpu=2, priority=7, namespace="other") is first
    others = [
        kind("r", cpu=3),
        kind("s", cpu=2, spec={"nodeSelector": {"a": "b"}}),
        kind("t", cpu=2, spec={"tolerations": [{"operator": "Exists"}]}),
        kind("u", cpu=2, gpu=1),
    ]
    assert len({first, *others}) == 5


@pytest.mark.parametrize(
    ("changes", "waits", "needs_place"),
    [
        ({}, True, True),
        ({"schedulingGates": [{"name": GATE}, {"name": "kueue"}]}, False, True),
        ({"schedulingGates": [{"name": "kueue"}]}, False, True),
        ({"schedulingGates": None}, False, True),
        ({"schedulerName": "another"}, True, False),
    ],
)
def test_only_its_own_gate_keeps_a_pod_waiting(changes, waits, needs_place) -> None:
    pod = waiting_pod("p", spec=changes)
    assert (pod.waits, pod.needs_place) == (waits, needs_place)


def test_who_asks_for_nothing_exclusive_needs_no_place() -> None:
    pod = gated_object("p")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}
    assert not read(pod).needs_place
    pod["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    assert read(pod).needs_place

    daemon = gated_object("p")
    daemon["metadata"]["ownerReferences"] = [
        {"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    ]
    assert not read(daemon).needs_place
    assert read(gated_object("p", spec={"schedulerName": "own"}), scheduler="own").needs_place

    # whole memory is pinned, whatever the CPUs
    assert waiting_pod("p", cpu="1500m").needs_place


@pytest.mark.parametrize(
    ("spec", "unseen"),
    [
        ({}, ()),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            ("topology spread constraints",),
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "z"}]}}}, ("affinity to pods",)),
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "z"}]}}},
            ("affinity to pods",),
        ),
        ({"affinity": {"podAffinity": None, "podAntiAffinity": {}}}, ()),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, ()),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, ("volumes",)),
        ({"volumes": [{"ephemeral": {"volumeClaimTemplate": {}}}]}, ("volumes",)),
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, ("claims of devices",)),
    ],
)
def test_what_the_keeper_does_not_see_is_told(spec, unseen) -> None:
    assert waiting_pod("p", spec=spec).unseen == unseen


def let_go(place, affinity):
    pod = gated_object("p", spec={"schedulingGates": None, "affinity": affinity})
    pod["metadata"]["annotations"] = {PLACE: place}
    return read(pod)


def test_a_place_stands_in_the_pod_that_was_let_go() -> None:
    label = f"{PLACE_LABEL}uid-p"
    assert let_go("a", pinned(None, ["a"])).place == ("a",)
    assert let_go("a,b", pinned(None, ["a", "b"], label)).place == ("a", "b")

    own = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z"}]}] * 2}
        }
    }
    assert let_go("a", pinned(own, [], label)).place == ("a",)
    assert let_go("a", pinned(own, ["a"])).place == ("a",)


def test_an_annotation_alone_is_no_place() -> None:
    label = f"{PLACE_LABEL}uid-p"
    assert let_go("a", None).place == ()
    assert let_go("a", {"nodeAffinity": None}).place == ()
    assert let_go("b", pinned(None, ["a"])).place == ()
    assert let_go("a", pinned(None, ["a"], f"{PLACE_LABEL}uid-other")).place == ()
    assert let_go("", pinned(None, ["a"], label)).place == ()

    gated = gated_object("p", spec={"affinity": pinned(None, ["a"], label)})
    gated["metadata"]["annotations"] = {PLACE: "a"}
    assert read(gated).place == ()


def test_its_scheduler_refuses_a_pod_by_a_condition() -> None:
    def refused(**condition):
        pod = gated_object("p", spec={"schedulingGates": None})
        pod["status"] = {"conditions": [condition]}
        return read(pod).is_refused

    assert refused(type="PodScheduled", status="False", reason="Unschedulable")
    assert not refused(type="PodScheduled", status="False", reason="SchedulingGated")
    assert not refused(type="PodScheduled", status="True")
    assert not refused(type="Ready", status="False", reason="Unschedulable")


def test_a_pod_that_is_bound_or_cannot_be_read_does_not_wait() -> None:
    bound = read(pod_object("p", "a", cpu=2))
    assert isinstance(bound, WatchedPod)
    assert bound.node == "a"

    ended = pod_object("p", cpu=2)
    ended["status"] = {"phase": "Failed"}
    assert read(ended).node == ""

    odd = gated_object("p", cpu="much")
    with pytest.warns(AlignupWarning, match="default/p are ignored"):
        pod = read(odd)
    assert not isinstance(pod, WaitingPod)
    assert pod.pod.uid == "uid-p"
