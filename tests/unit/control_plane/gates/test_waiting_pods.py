"""What is read of pods that wait behind the gate, and of those that were let go."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random

import pytest

from alignup.control_plane.api_server.objects import WatchedPod
from alignup.control_plane.gates.node_affinity import GATE, pinned
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL, GatedPodReader, WaitingPod
from alignup.errors import AlignupWarning, InputError
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


@pytest.mark.parametrize("has_own_terms", [False, True])
def test_who_was_let_go_by_a_label_is_of_the_kind_that_it_was_before(has_own_terms) -> None:
    """Each has a label of its own: kinds of one pod each would take the place of those of many."""
    reader = GatedPodReader()
    affinity = required(named("a"), named("b")) if has_own_terms else None

    def kind(name, **spec):
        return reader.decode(json.dumps(gated_object(name, spec=spec)).encode()).kind

    before = kind("p", affinity=affinity)
    label = f"{PLACE_LABEL}uid-p"
    assert kind("p", schedulingGates=None, affinity=pinned(affinity, ["a"], label)) is before
    # with the gate it waits for a node that has the label already
    assert kind("p", affinity=pinned(affinity, ["a"], label)) is not before
    # it is no other pod's
    assert kind("q", schedulingGates=None, affinity=pinned(affinity, ["a"], label)) is not before
    assert kind("p", schedulingGates=None, affinity=pinned(affinity, ["a"])) is not before


@pytest.mark.parametrize("unknown", [3, "x", [3], {"a": 1}, None])
def test_what_no_server_knows_in_a_term_changes_nothing(unknown) -> None:
    """A server of a later release may send it."""
    affinity = pinned(required(named("a")), ["a"], f"{PLACE_LABEL}uid-p")
    affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0]["unknown"] = unknown
    assert let_go("a", affinity).place == ("a",)


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
    assert pod.uid == "uid-p"
    assert pod.is_gated
    assert not pod.waits
    assert pod.fault.startswith("the pod cannot be read: expected a quantity")

    odd["spec"]["schedulingGates"] = []
    with pytest.warns(AlignupWarning, match="default/p are ignored"):
        assert isinstance(read(odd), WatchedPod)


def named(name, operator="In"):
    return {
        "matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}],
    }


def required(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("place", "affinity", "fields"),
    [
        ("a,b", required(named("a")), {}),
        ("a", required(named("a", "NotIn")), {}),
        ("a", required(named("b", "NotIn")), {}),
        ("a,b,c,d", required(*map(named, "abcd")), {}),
        (",".join("a" * 100_000), required(named("a")), {}),
        ("a", required(named("a")), {"generation": 1}),
        ("a", required(named("a")), {"requests": {"cpu": "1000"}}),
        ("a", required(named("a")), {"scheduler": "another"}),
        ("a", required(named("a")), {"owner": "DaemonSet"}),
        (
            "a",
            required({"matchExpressions": [{"key": "LABEL", "operator": "DoesNotExist"}]}),
            {},
        ),
    ],
)
def test_who_may_only_make_pods_has_no_node_kept(place, affinity, fields) -> None:
    """The annotation and the affinity are there when the pod is made, as somebody wrote them."""
    pod = gated_object("p", spec={"schedulingGates": None, "affinity": affinity})
    text = json.dumps(pod).replace("LABEL", f"{PLACE_LABEL}uid-p")
    pod = json.loads(text)
    pod["metadata"] |= {"annotations": {PLACE: place}, "generation": fields.get("generation", 2)}
    if "requests" in fields:
        pod["spec"]["containers"][0]["resources"] = {"requests": fields["requests"]}
    if "scheduler" in fields:
        pod["spec"]["schedulerName"] = fields["scheduler"]
    if "owner" in fields:
        owner = {"kind": fields["owner"], "name": "x", "uid": "u", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    assert read(pod).place == ()


def long_constraints(count):
    return {
        "affinity": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}] * count},
        "nodeSelector": {f"k{number}": "v" for number in range(count)},
        "tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(count)],
    }


@pytest.mark.parametrize("field", ["affinity", "nodeSelector", "tolerations"])
def test_who_asks_for_more_than_is_gone_through_at_each_node_gets_no_place(field) -> None:
    value = long_constraints(4000)[field]
    if field == "affinity":
        value = required(value)
    pod = waiting_pod("p", spec={field: value})
    assert not pod.waits
    assert pod.fault.endswith("bytes: a pod gets a place of at most 32768")

    # nobody looks for a place for it
    pod = gated_object("p", spec={field: value})
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    assert read(pod).waits

    value = long_constraints(100)[field]
    assert waiting_pod("p", spec={field: required(value) if field == "affinity" else value}).waits


def test_who_requests_resources_without_end_gets_no_place() -> None:
    pod = gated_object("p", cpu=1)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    limits |= {f"example.com/r{number}": "1" for number in range(2500)}
    assert read(pod).fault
    for number in range(100, 2500):
        del limits[f"example.com/r{number}"]
    assert read(pod).waits


def paths_in(value, path=()):
    """Yield the paths of all values in an object but the whole."""
    entries = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for key, entry in entries:
        yield (*path, key)
        yield from paths_in(entry, (*path, key))


DAMAGES = [None, 0, -1, 1 << 64, 1.5, "", "x", [], {}, [None], [[]], {"a": None}, True, "9" * 5000]
DAMAGES += [[{"matchExpressions": None}], [{"matchExpressions": [0]}], [{"matchFields": [{}]}]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_server_sends_is_a_pod_or_refused(seed) -> None:
    """Nothing that comes from outside ends in another error, which would end the keeper."""
    random = Random(seed)
    for _ in range(100):
        affinity = required(named("a"))
        if random.random() < 0.5:
            affinity = pinned(random.choice([None, affinity]), ["a"], f"{PLACE_LABEL}uid-p")

        pod = gated_object("p", spec={"affinity": affinity, "volumes": [{"name": "v"}]})
        pod["metadata"]["annotations"] = {PLACE: "a", "alignup.dev/group-size": "2"}
        pod["metadata"]["labels"] = {"alignup.dev/group": "g"}
        pod["spec"]["schedulingGates"] = random.choice([None, pod["spec"]["schedulingGates"]])
        *before, last = random.choice(list(paths_in(pod)))
        value = pod
        for key in before:
            value = value[key]
        value[last] = random.choice(DAMAGES)
        with suppress(InputError):
            read_pod = read(pod)
            if isinstance(read_pod, WaitingPod):
                pinned(read_pod.affinity, ["a"])
