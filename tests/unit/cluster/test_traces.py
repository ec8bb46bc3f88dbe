"""Traces are read, with the groups of their pods, or made up."""

from __future__ import annotations

import json

import pytest

from alignup.cluster import Cluster
from alignup.cluster.traces import Arrival, Removal, read_trace, synthetic_trace
from alignup.errors import InputError
from alignup.kubernetes.versions import PodLevel, PodReading
from inputs.cluster_files import node_line, pod_manifest


def cluster_of(count=2, **more):
    return Cluster.from_json_lines([node_line(f"n{index}", **more) for index in range(count)])


def test_a_trace_is_read_in_order():
    """Pods that look alike are parsed once, and keep their own names."""
    lines = [
        json.dumps({"time": 0, "admit": pod_manifest("a"), "duration": 3}),
        "",
        json.dumps({"time": 1.5, "admit": pod_manifest("b")}),
        json.dumps({"time": 2, "remove": "a"}),
    ]
    first, second, third = read_trace("\n".join(lines))
    assert (first.time, first.pod.uid, first.duration) == (0, "a", 3)
    assert (second.pod.uid, second.pod.name, second.duration) == ("b", "b", None)
    assert second.pod.containers is first.pod.containers
    assert third == Removal(2, "a")
    assert read_trace([lines[0].encode()])[0].pod == first.pod


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "trace:1: expected an event"),
        (['{"time": 0}'], 'expected either "admit" or "remove", got \'neither\''),
        (
            [json.dumps({"time": 0, "admit": pod_manifest("a"), "remove": "a"})],
            'either "admit" or "remove", got \'both\'',
        ),
        (['{"time": 0, "remove": "a", "remove": "b"}'], "it has the key 'remove' twice"),
        (
            ['{"time": 1, "remove": "a"}', '{"time": 0, "remove": "a"}'],
            "trace:2: expected a time not before 1",
        ),
        ([json.dumps({"time": 0, "admit": pod_manifest("a")})] * 2, "uid that has not come yet"),
        ([json.dumps({"time": 0, "admit": pod_manifest("a"), "duration": -1})], "duration"),
        ([json.dumps({"time": 0, "admit": {"metadata": {"name": "a"}, "spec": {}}})], "containers"),
    ],
)
def test_a_wrong_line_is_named(lines, message):
    with pytest.raises(InputError, match=message):
        read_trace(lines)


def test_pods_of_one_spec_keep_their_names_however_a_kubelet_reads_them():
    manifests = [pod_manifest(uid) for uid in ("a", "b")]
    for manifest in manifests:
        manifest["spec"]["resources"] = {"limits": {"cpu": "64", "memory": "64Gi"}}

    for event in read_trace(json.dumps({"time": 0, "admit": manifest}) for manifest in manifests):
        assert event.pod.read_as(PodReading(PodLevel.MANAGED)).uid == event.pod.uid


def test_synthetic_traces_are_seeded():
    cluster = cluster_of(2)
    first, again = synthetic_trace(cluster, 20, seed=1), synthetic_trace(cluster, 20, seed=1)
    assert first == again
    assert first != synthetic_trace(cluster, 20, seed=2)
    assert [event.time for event in first] == sorted(event.time for event in first)


def member(name, labels, annotations=None, **spec):
    manifest = pod_manifest(name)
    manifest["metadata"] |= {"labels": labels, "annotations": annotations or {}}
    manifest["spec"] |= spec
    return json.dumps({"time": 0, "admit": manifest})


OWN = {"alignup.dev/group": "train"}
OBJECT = {"kind": "PodGroup", "metadata": {"name": "gang", "namespace": "default"}}
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
JOB_SET = {
    "kind": "JobSet",
    "metadata": {"name": "set"},
    "spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 2}}}]},
}


def memberships(*lines):
    arrivals = [event for event in read_trace(lines) if isinstance(event, Arrival)]
    keys = [arrival.membership for arrival in arrivals]
    return [None if key is None else (key.kind, key.name, key.size) for key in keys]


def test_the_groups_of_pods_are_read_as_gates_reads_them():
    """Pods of equal specs share a template, and have groups of their own."""
    assert memberships(
        member("a", OWN, {"alignup.dev/group-size": "4"}),
        member("b", {"app": "b"}, {"alignup.dev/group-size": "4"}),
        member("c", {}, schedulingGroup={"podGroupName": "gang"}),
        member("d", {"jobset.sigs.k8s.io/jobset-name": "set"}),
        member("e", {}),
    ) == [("alignup", "train", 4), None, ("podgroup", "gang", 0), ("jobset", "set", 0), None]


def test_an_object_says_how_many_members_run_together():
    """It may stand on any line; a PodGroup without a gang lets each member go alone."""
    of_group = member("a", {}, schedulingGroup={"podGroupName": "gang"})
    of_set = member("b", {"jobset.sigs.k8s.io/jobset-name": "set"})
    with_gang = json.dumps({"time": 0, "group": {**OBJECT, "spec": GANG}})
    without = json.dumps({"time": 0, "group": OBJECT})
    of_four = json.dumps({"time": 0, "group": JOB_SET})
    assert memberships(of_group, with_gang) == [("podgroup", "gang", 3)]
    assert memberships(with_gang, of_group) == [("podgroup", "gang", 3)]
    assert memberships(of_group, without) == [None]
    assert memberships(of_set, of_four) == [("jobset", "set", 4)]


def test_a_pod_group_of_volcano_is_another_kind_than_that_of_kubernetes():
    member_of_volcano = member("a", {}, {"scheduling.k8s.io/group-name": "gang"})
    of_volcano = {**OBJECT, "apiVersion": "scheduling.volcano.sh/v1beta1", "spec": {"minMember": 4}}
    of_kubernetes = {**OBJECT, "apiVersion": "scheduling.k8s.io/v1beta1", "spec": GANG}
    lines = [json.dumps({"time": 0, "group": group}) for group in (of_volcano, of_kubernetes)]
    assert memberships(member_of_volcano, *lines) == [("volcano podgroup", "gang", 4)]
    assert memberships(member_of_volcano, lines[1]) == [("volcano podgroup", "gang", 0)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (member("a", OWN), "how many members the group has.*group-size"),
        (member("a", OWN, {"alignup.dev/group-size": "few"}), "a number of pods.*got 'few'"),
        (member("a", ["x"]), "trace:1: .*labels"),
        ('{"time": 0, "group": {"kind": "Pod"}}', "one of PodGroup, JobSet, LeaderWorkerSet"),
        ('{"time": 0, "group": 5}', "trace:1"),
        ('{"time": 0, "group": {"kind": "PodGroup"}}', "trace:1: expected a PodGroup"),
        ('{"time": 0, "group": {"kind": "PodGroup"}, "remove": "a"}', "got 'both'"),
    ],
)
def test_a_group_that_cannot_be_read_is_named(line, message):
    with pytest.raises(InputError, match=message):
        read_trace([line])


def test_pods_of_other_systems_are_not_mistaken_for_each_other():
    events = []
    for number, system in enumerate(("linux", "windows", None, "linux")):
        pod = pod_manifest(f"p{number}")
        pod["metadata"]["labels"] = {"kubernetes.io/os": system} if system else {}
        events.append(json.dumps({"time": number, "admit": pod}))
    alone = [read_trace(event)[0].pod.constraints for event in events]
    assert [event.pod.constraints for event in read_trace(events)] == alone
    assert alone[0] == alone[3] != alone[1]
