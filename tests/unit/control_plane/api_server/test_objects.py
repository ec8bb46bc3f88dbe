"""Objects as an API server sends them, and the records of pods that are made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup import Node
from alignup.control_plane.api_server.objects import (
    Memo,
    PodReader,
    WatchedPod,
    decode_budget,
    decode_node,
    decode_pod,
    rules_of,
)
from alignup.errors import InputError
from alignup.kubernetes.pod import CONFIG_SOURCE
from alignup.kubernetes.versions import KNOWN_VERSIONS
from inputs.watched_objects import description, pod_object, watched

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def read(pod: dict[str, Any], reader: PodReader | None = None) -> WatchedPod:
    """Return the record of a pod that comes as JSON."""
    return (reader or PodReader()).read(decode_pod(json.dumps(pod).encode()))


def budget(name: str, selector: Any, allowed: int = 0, namespace: str = "default"):
    """Return a PodDisruptionBudget that comes as JSON."""
    return decode_budget(
        json.dumps(
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"selector": selector},
                "status": {"disruptionsAllowed": allowed},
            }
        ).encode()
    )


@pytest.mark.parametrize(
    ("decode", "kind"), [(decode_pod, "Pod"), (decode_node, "Node"), (decode_budget, "PodDisr")]
)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"metadata": {"name": 3}}', b"\xff"])
def test_what_is_no_object_of_the_kind_is_refused(decode, kind, data) -> None:
    with pytest.raises(InputError, match=f"expected a {kind}"):
        decode(data)


@pytest.mark.parametrize("decode", [decode_pod, decode_node])
def test_what_is_decoded_already_stays_as_it_is(decode) -> None:
    decoded = decode(json.dumps(pod_object("p")).encode())
    assert decode(decoded) is decoded


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"scheduling.k8s.io/group-name": "g"}},
        {"labels": {"jobset.sigs.k8s.io/jobset-name": "g"}},
        {"labels": {"app": "a"}, "annotations": {"scheduling.volcano.sh/group-name": "g"}},
    ],
)
def test_a_pod_is_a_member_by_a_label_or_by_an_annotation(metadata) -> None:
    pod = pod_object("p", cpu=1)
    pod["metadata"] |= metadata
    membership = read(pod).membership
    assert membership is not None
    assert membership.object_name == "g"


def test_a_record_has_the_facts_that_requests_do_not_tell() -> None:
    pod = pod_object("p", "n", cpu=2, priority=7)
    pod["metadata"] |= {
        "labels": {"app": "x"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-03T00:00:00Z",
        "ownerReferences": [
            {"kind": "Other", "name": "o", "uid": "o"},
            {"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True},
        ],
    }
    pod["spec"]["nodeSelector"] = {"disk": "fast"}
    record = read(pod)
    assert (record.node, record.priority, record.labels) == ("n", 7, {"app": "x"})
    assert (record.owner, record.is_leaving, record.has_selector) == ("ReplicaSet", True, True)
    assert record.since == "2026-01-01T00:00:00Z"

    pod["status"]["startTime"] = "2026-01-02T00:00:00Z"
    assert read(pod).since == "2026-01-02T00:00:00Z"

    plain = read(pod_object("q"))
    assert (plain.node, plain.priority, plain.labels, plain.owner) == ("", 0, {}, "")
    assert not plain.is_leaving
    assert not plain.has_selector


@pytest.mark.parametrize(
    ("spec", "metadata", "grace"),
    [
        ({}, {}, 0),
        ({"terminationGracePeriodSeconds": 30}, {}, 30),
        ({"terminationGracePeriodSeconds": 30}, {"deletionGracePeriodSeconds": 600}, 600),
        ({"terminationGracePeriodSeconds": 30}, {"deletionGracePeriodSeconds": 0}, 30),
        ({"terminationGracePeriodSeconds": -1}, {}, 0),
    ],
)
def test_a_kubelet_may_take_the_longest_grace_period_that_the_object_names(
    spec, metadata, grace
) -> None:
    pod = pod_object("p", "n")
    pod["spec"] |= spec
    pod["metadata"] |= metadata
    assert read(pod).grace == grace


@pytest.mark.parametrize(
    ("phase", "node"),
    [("Pending", "n"), ("Running", "n"), ("Unknown", "n"), ("Succeeded", ""), ("Failed", "")],
)
def test_a_pod_that_has_ended_is_on_no_node(phase, node) -> None:
    record = read({**pod_object("p", "n"), "status": {"phase": phase}})
    assert record.node == node
    assert record.has_ended is not bool(node)


@pytest.mark.parametrize(
    ("fields", "is_particular"),
    [
        ({}, False),
        ({"affinity": {"podAffinity": {"preferred": [{}]}}}, False),
        ({"affinity": {"podAffinity": {REQUIRED: []}}}, False),
        ({"affinity": {"podAffinity": 3}}, False),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, True),
        ({"affinity": {"podAffinity": {}, "podAntiAffinity": {REQUIRED: [{}]}}}, True),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, False),
        ({"topologySpreadConstraints": [{}, {"whenUnsatisfiable": "DoNotSchedule"}]}, True),
    ],
)
def test_only_what_is_required_makes_a_pod_particular(fields, is_particular) -> None:
    pod = pod_object("p")
    pod["spec"] |= fields
    assert read(pod).is_particular is is_particular


def test_copies_share_their_requests_and_labels_and_keep_few_annotations() -> None:
    reader = PodReader()
    policy = "scheduling.koordinator.sh/numa-topology-spec"
    pods = []
    for name in ("a", "b"):
        pod = pod_object(name, cpu=2)
        pod["metadata"]["labels"] = {"app": "x"}
        pod["metadata"]["annotations"] = {policy: "{}", CONFIG_SOURCE: "api", "long": "x" * 1000}
        pods.append(read(pod, reader))

    first, second = pods
    assert first.pod.all_containers is second.pod.all_containers
    assert first.labels is second.labels
    assert (first.pod.name, second.pod.name) == ("a", "b")
    assert first.pod.annotations == {policy: "{}", CONFIG_SOURCE: "api"}

    third = read(pod_object("c", cpu=3), reader)
    assert third.pod.all_containers != first.pod.all_containers


def test_claims_made_of_templates_have_the_names_that_the_status_tells() -> None:
    pod = pod_object("p")
    pod["spec"]["resourceClaims"] = [
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "late", "resourceClaimTemplateName": "t"},
        {"name": "plain", "resourceClaimName": "c"},
    ]
    pod["status"]["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": "p-made"}]
    claims = read(pod).pod.constraints.claims
    assert [claim.claim for claim in claims] == ["p-made", "", "c"]


@pytest.mark.parametrize("version", KNOWN_VERSIONS, ids=str)
def test_claims_have_their_names_however_a_kubelet_reads_the_pod(version) -> None:
    """Releases differ in what resources of the pod as a whole mean."""
    made = pod_object("p", cpu=2)
    amounts = {"cpu": "4", "memory": "2Gi"}
    made["spec"] |= {
        "resources": {"requests": amounts, "limits": amounts},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    made["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "gpu-x7"}]
    pod = read(made).pod
    node = Node.from_dict(description(), kubelet_version=str(version))
    assert node.admit(pod)
    (held,) = node.pods
    assert [claim.claim for claim in held.constraints.claims] == ["gpu-x7"]
    assert (held.uid, held.name) == ("uid-p", "p")


@pytest.mark.parametrize(
    ("containers", "said"),
    [
        ([], r"expected at least one container, got \[\] at spec\.containers"),
        ([{"name": "c", "resources": {"requests": {"cpu": "x"}}}], r"'x' at .*containers\[0\]"),
    ],
)
def test_requests_that_an_api_server_refuses_are_an_error(containers, said) -> None:
    pod = pod_object("p")
    pod["spec"]["containers"] = containers
    with pytest.raises(InputError, match=said):
        read(pod)


def test_what_a_pod_demands_of_a_node_is_read_apart_from_its_requests() -> None:
    toleration = {"key": "a", "operator": "Exists"}
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    reader = PodReader()
    demands = reader.demands_of({"zone": "east"}, affinity, [toleration])
    assert demands.node_selector == {"zone": "east"}
    assert demands.node_affinity == tuple(terms)
    assert demands.tolerations == (toleration,)

    # kept, and not taken for what others demand, or for requests of equal fields
    assert reader.demands_of({"zone": "east"}, affinity, [toleration]) is demands
    assert reader.demands_of(None, None, None).node_selector == {}
    assert read(pod_object("p"), reader).pod.exclusive_cpus == 1

    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"nodeAffinity": nested}
    for wrong in (nested, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": "none"}}}):
        with pytest.raises(InputError):
            reader.demands_of(None, wrong, None)


@pytest.mark.parametrize(
    ("selector", "protects"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "x"}}, True),
        ({"matchLabels": {"app": "y"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["y"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        (
            {
                "matchLabels": {"app": "x"},
                "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}],
            },
            False,
        ),
    ],
)
def test_a_budget_protects_the_pods_of_its_namespace_that_its_selector_meets(
    selector, protects
) -> None:
    pod = pod_object("p")
    pod["metadata"]["labels"] = {"app": "x"}
    record = read(pod)
    assert budget("b", selector).protects(record) is protects
    assert not budget("b", selector, namespace="elsewhere").protects(record)


@pytest.mark.parametrize(
    ("kind", "fields", "comes_back"),
    [
        ("ReplicaSet", {}, True),
        ("ReplicaSet", {"nodeSelector": {"disk": "fast"}}, False),
        ("ReplicaSet", {"affinity": {"podAffinity": {REQUIRED: [{}]}}}, False),
        ("DaemonSet", {}, False),
        ("Node", {}, False),
        (None, {}, False),
    ],
)
def test_a_pod_comes_back_where_its_controller_makes_another_anywhere(
    kind, fields, comes_back
) -> None:
    pod = pod_object("p", priority=4)
    pod["spec"] |= fields
    pod["status"]["startTime"] = "1970-01-01T00:01:00Z"
    if kind is not None:
        owner = {"kind": kind, "name": "o", "uid": "o", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]

    budgets = [budget("mine", {}, 2), budget("others", {"matchLabels": {"app": "y"}}, 1)]
    rules = rules_of([read(pod)], budgets)
    standing = rules.standings["uid-p"]
    assert standing.comes_back is comes_back
    assert (standing.priority, standing.since, standing.budgets) == (4, 60.0, ("default/mine",))
    assert rules.budgets == {"default/mine": 2, "default/others": 1}


def test_a_pod_of_which_no_time_is_known_is_the_oldest() -> None:
    assert rules_of([watched("p")], []).standings["uid-p"].since == 0.0


def test_a_memo_forgets_all_for_one_too_many() -> None:
    memo: Memo[str, int] = Memo(2)
    memo["a"], memo["b"] = 1, 2
    assert memo == {"a": 1, "b": 2}

    memo["a"] = 3
    assert memo == {"a": 3, "b": 2}

    memo["c"] = 4
    assert memo == {"c": 4}


def test_long_keys_do_not_fill_the_memory() -> None:
    memo: Memo[str, int] = Memo(100, 1000)
    for number in range(50):
        memo.keep(f"{number}", number, 400)
        assert memo[f"{number}"] == number
        assert len(memo) <= 2

    memo.keep("beyond", 1, 5000)
    memo.keep("after", 2, 10)
    assert memo == {"after": 2}


def test_what_was_read_of_large_pods_is_not_kept_for_ever(monkeypatch) -> None:
    monkeypatch.setattr("alignup.control_plane.api_server.objects._MOST_BYTES", 100_000)
    reader = PodReader()
    for number in range(40):
        pod = pod_object(f"p{number}", "a", cpu=1)
        pod["metadata"]["labels"] = {f"l{number}-{label}": "v" * 60 for label in range(200)}
        limits = {f"example.com/r{number}-{resource}": "1" for resource in range(200)}
        pod["spec"]["containers"][0]["resources"] = {"limits": limits}
        reader.read(decode_pod(json.dumps(pod).encode()))

    assert 0 < sum(map(len, reader._templates)) <= 100_000
    labels = [len(name) + len(value) for key in reader._labels for name, value in key]
    assert 0 < sum(labels) <= 100_000
