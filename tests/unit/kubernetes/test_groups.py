"""Which pods are members of one group, and how many have to run together."""

from __future__ import annotations

import msgspec
import pytest

from alignup.errors import InputError
from alignup.kubernetes.groups import (
    GroupSizes,
    JobSet,
    LeaderWorkerSet,
    Membership,
    PodGroup,
    VolcanoPodGroup,
    group_object,
    is_member,
    membership_of,
    membership_of_manifest,
)

OWN = {"alignup.dev/group": "train"}
KUEUE = {"kueue.x-k8s.io/pod-group-name": "sample"}
LWS = {
    "leaderworkerset.sigs.k8s.io/name": "lws",
    "leaderworkerset.sigs.k8s.io/group-index": "1",
}
JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "set"}
TWO = {"alignup.dev/group-size": "2"}
JOB = {"batch.kubernetes.io/job-name": "job"}


@pytest.mark.parametrize(
    ("labels", "annotations", "pod_group", "expected"),
    [
        ({}, {}, "", None),
        ({"app": "a"}, {"alignup.dev/group-size": "3"}, "", None),
        (OWN, {"alignup.dev/group-size": "3"}, "", ("alignup", "train", 3)),
        (JOB, {"alignup.dev/group-size": "3"}, "", ("job", "job", 3)),
        (JOB, {}, "", None),
        (OWN, {"alignup.dev/group-size": "1"}, "", None),
        ({}, {}, "gang", ("podgroup", "gang", 0)),
        ({}, {"scheduling.k8s.io/group-name": "v"}, "", ("volcano podgroup", "v", 0)),
        ({}, {"scheduling.volcano.sh/group-name": "v"}, "", ("volcano podgroup", "v", 0)),
        (
            {},
            {"scheduling.k8s.io/group-name": "v", "scheduling.volcano.sh/group-name": "w"},
            "",
            ("volcano podgroup", "v", 0),
        ),
        (
            {},
            {"scheduling.k8s.io/group-name": "", "scheduling.volcano.sh/group-name": "w"},
            "",
            ("volcano podgroup", "w", 0),
        ),
        ({}, {"scheduling.k8s.io/group-name": ""}, "", None),
        (LWS, {"scheduling.k8s.io/group-name": "v"}, "", ("volcano podgroup", "v", 0)),
        # a LeaderWorkerSet says itself whether its pods are made together
        (
            LWS | KUEUE,
            {
                "scheduling.k8s.io/group-name": "v",
                "leaderworkerset.sigs.k8s.io/size": "3",
                "kueue.x-k8s.io/pod-group-total-count": "3",
            },
            "",
            ("leaderworkerset", "lws/1", 3),
        ),
        # a StatefulSet makes one pod after another
        (
            KUEUE,
            {
                "kueue.x-k8s.io/pod-group-total-count": "3",
                "kueue.x-k8s.io/pod-group-fast-admission": "true",
            },
            "",
            None,
        ),
        ({}, {"scheduling.k8s.io/group-name": "v"}, "gang", ("podgroup", "gang", 0)),
        (OWN, {"scheduling.k8s.io/group-name": "v", **TWO}, "", ("alignup", "train", 2)),
        (KUEUE, {"kueue.x-k8s.io/pod-group-total-count": "2"}, "", ("kueue", "sample", 2)),
        (
            LWS,
            {"leaderworkerset.sigs.k8s.io/size": "4"},
            "",
            ("leaderworkerset", "lws/1", 4),
        ),
        (LWS, {}, "", None),
        (JOB_SET | JOB, {}, "", ("jobset", "set", 0)),
        # what the user of alignup writes goes before what others write
        (OWN | KUEUE | JOB_SET, {"alignup.dev/group-size": "5"}, "g", ("alignup", "train", 5)),
        (JOB_SET | JOB, {"alignup.dev/group-size": "1"}, "", None),
    ],
)
def test_the_group_of_a_pod(labels, annotations, pod_group, expected) -> None:
    membership = membership_of("ns", labels, annotations, pod_group)
    if expected is None:
        assert membership is None
        return

    assert membership is not None
    assert is_member(labels, annotations) or pod_group
    assert (membership.kind, membership.name, membership.size) == expected
    assert membership.key == (membership.kind, "ns", membership.name)


@pytest.mark.parametrize(
    ("labels", "annotations", "place"),
    [
        (OWN, {}, "alignup.dev/group-size"),
        (OWN, {"alignup.dev/group-size": "0"}, "alignup.dev/group-size"),
        (OWN, {"alignup.dev/group-size": "many"}, "alignup.dev/group-size"),
        (OWN, {"alignup.dev/group-size": "9" * 5000}, "alignup.dev/group-size"),
        (KUEUE, {}, "kueue.x-k8s.io/pod-group-total-count"),
        (LWS, {"leaderworkerset.sigs.k8s.io/size": "-1"}, "leaderworkerset.sigs.k8s.io/size"),
    ],
)
def test_a_count_that_cannot_be_read_is_an_error(labels, annotations, place) -> None:
    with pytest.raises(InputError, match=place):
        membership_of("ns", labels, annotations)


def decoded(kind, spec, name="x"):
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, kind)


@pytest.mark.parametrize(
    ("kind", "spec", "size"),
    [
        (PodGroup, {"schedulingPolicy": {"gang": {"minCount": 4}}}, 4),
        (PodGroup, {"schedulingPolicy": {"basic": {}}}, 1),
        (PodGroup, {}, 1),
        (VolcanoPodGroup, {"minMember": 4}, 4),
        (VolcanoPodGroup, {"minMember": 0}, 1),
        (VolcanoPodGroup, {"queue": "q"}, 1),
        (JobSet, {"replicatedJobs": [{"template": {"spec": {"parallelism": 3}}}]}, 3),
        (
            JobSet,
            {
                "replicatedJobs": [
                    {"replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 2}}},
                    {"replicas": 1, "template": {"spec": {}}},
                ]
            },
            5,
        ),
        (
            JobSet,
            {
                "replicatedJobs": [{"replicas": 4}],
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
            },
            1,
        ),
        (
            JobSet,
            {
                "replicatedJobs": [{"replicas": 4}],
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            },
            4,
        ),
        (JobSet, {"replicatedJobs": [{}, {"replicas": 2, "dependsOn": [{"name": "a"}]}]}, 1),
        (JobSet, {"replicatedJobs": [{"replicas": 0}]}, 1),
    ],
)
def test_how_many_an_object_asks_for(kind, spec, size) -> None:
    item = decoded(kind, spec)
    assert item.size == size

    kinds = {PodGroup: "podgroup", VolcanoPodGroup: "volcano podgroup", JobSet: "jobset"}
    membership = Membership(kinds[kind], "ns", "x", object_name="x")
    sizes = GroupSizes()
    assert sizes.size(membership) == 0
    sizes.seen(item)
    assert sizes.size(membership) == size
    sizes.gone(item)
    assert sizes.size(membership) == 0
    sizes.gone(item)


def test_workers_that_wait_for_their_leader_are_no_group() -> None:
    annotations = {"leaderworkerset.sigs.k8s.io/size": "4"}
    membership = membership_of("ns", LWS, annotations)
    assert membership is not None
    sizes = GroupSizes()
    assert sizes.size(membership) == 4
    sizes.seen(decoded(LeaderWorkerSet, {"startupPolicy": "LeaderReady"}, "lws"))
    assert sizes.size(membership) == 1
    sizes.seen(decoded(LeaderWorkerSet, {"startupPolicy": "LeaderCreated"}, "lws"))
    assert sizes.size(membership) == 4


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "zone"}
BY_NODE_SELECTOR = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}


@pytest.mark.parametrize(
    ("of_set", "of_job", "size"),
    [
        ({}, {}, 4),
        (EXCLUSIVE, {}, 1),
        ({}, EXCLUSIVE, 1),
        (EXCLUSIVE | BY_NODE_SELECTOR, {}, 4),
        ({}, EXCLUSIVE | BY_NODE_SELECTOR, 4),
        (BY_NODE_SELECTOR, EXCLUSIVE, 1),
    ],
)
def test_pods_that_follow_a_leader_of_their_job_are_no_group(of_set, of_job, size) -> None:
    jobs = [
        {"replicas": 1, "template": {}},
        {"replicas": 3, "template": {"metadata": {"annotations": of_job}}},
    ]
    item = decoded(JobSet, {"replicatedJobs": jobs})
    item.metadata.annotations = of_set
    assert item.size == size


def test_workers_that_follow_the_node_of_their_leader_are_no_group() -> None:
    membership = membership_of("ns", LWS, {"leaderworkerset.sigs.k8s.io/size": "4"})
    sizes = GroupSizes()
    item = decoded(LeaderWorkerSet, {"startupPolicy": "LeaderCreated"}, "lws")
    item.metadata.annotations = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    sizes.seen(item)
    assert sizes.size(membership) == 1


def test_a_list_is_all_there_is_of_its_kind() -> None:
    sizes = GroupSizes()
    group = Membership("podgroup", "ns", "x", object_name="x")
    job_set = Membership("jobset", "ns", "x", object_name="x")
    sizes.seen(decoded(PodGroup, {"schedulingPolicy": {"gang": {"minCount": 2}}}))
    sizes.seen(decoded(JobSet, {"replicatedJobs": [{"replicas": 3}]}))

    sizes.listed(PodGroup, [])
    assert (sizes.size(group), sizes.size(job_set)) == (0, 3)
    sizes.listed(JobSet, [decoded(JobSet, {"replicatedJobs": [{"replicas": 2}]})])
    assert sizes.size(job_set) == 2


@pytest.mark.parametrize(
    ("manifest", "owner", "expected"),
    [
        ({}, ("Pod", ""), None),
        ({"metadata": {"labels": {"app": "a"}}, "spec": {}}, ("Pod", ""), None),
        (
            {"metadata": {"labels": OWN, "annotations": {"alignup.dev/group-size": "3"}}},
            ("Pod", ""),
            ("alignup", "train", 3),
        ),
        ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, ("Pod", ""), ("podgroup", "g", 0)),
        (
            {"metadata": {"annotations": {"alignup.dev/group-size": "3"}}},
            ("Job", "j"),
            ("job", "j", 3),
        ),
        ({"metadata": {}}, ("Job", "j"), None),
        ({"metadata": {}}, ("JobSet", "s"), ("jobset", "s", 0)),
        ({"metadata": {"labels": OWN}}, ("Pod", ""), ("unreadable", "train", 0)),
        ({"metadata": {"labels": [1], "annotations": "x"}, "spec": 5}, ("Pod", ""), None),
        ({"metadata": {"labels": {"alignup.dev/group": 5}}}, ("Pod", ""), None),
    ],
)
def test_the_group_of_a_manifest(manifest, owner, expected) -> None:
    membership = membership_of_manifest(manifest, *owner)
    if expected is None:
        assert membership is None
    else:
        assert membership is not None
        assert (membership.kind, membership.name, membership.size) == expected
        assert membership.namespace == "default"


def test_objects_of_groups_are_read_by_their_api_group() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "minMember": 5}
    manifest = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    sizes = []
    for api_version in ("scheduling.k8s.io/v1beta1", "scheduling.volcano.sh/v1beta1", "", "x/v1"):
        item = group_object({**manifest, "apiVersion": api_version})
        sizes.append(item and item.size)
    assert sizes == [3, 5, 3, None]
    assert group_object({"kind": "Pod"}) is None
    with pytest.raises(InputError, match="a PodGroup"):
        group_object({"kind": "PodGroup"}, "here")


def test_what_objects_say_takes_the_place_of_what_pods_do_not() -> None:
    sizes = GroupSizes()
    gang = Membership("podgroup", "default", "g", object_name="g")
    assert sizes.resized(gang) == gang
    item = group_object({"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {}})
    assert item is not None
    sizes.seen(item)
    assert sizes.resized(gang) is None
