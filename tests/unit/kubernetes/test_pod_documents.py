"""Pods are found in whatever kubectl prints and applies, and what is no live pod is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.pod import Pod, QOSClass
from alignup.kubernetes.pod_documents import (
    PodDocument,
    expanded,
    expanded_documents,
    live_pods,
    read_pod_documents,
)
from alignup.kubernetes.versions import PodLevel, PodReading

SPEC = {"containers": [{"name": "c0", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}

JOB = {"parallelism": 2, "completions": 4, "template": {"spec": SPEC}}


def pod(name: str, **more: Any) -> dict[str, Any]:
    """Return a manifest as a cluster has it."""
    spec = dict(SPEC)
    if "node" in more:
        spec["nodeName"] = more.pop("node")

    status = {}
    if "phase" in more:
        status["status"] = {"phase": more.pop("phase")}

    metadata = {"name": name, **more}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, **status}


def maker(kind: str, **spec: Any) -> dict[str, Any]:
    """Return an object that makes pods."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": SPEC}
    made_spec = {"template": template, **spec}
    if kind == "CronJob":
        made_spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": made_spec}}
    return {
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": made_spec,
    }


def read(*documents: Any) -> list[PodDocument]:
    return read_pod_documents("\n---\n".join(map(json.dumps, documents)), "f.yaml")


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (maker("Deployment", replicas=3), ["web-0", "web-1", "web-2"]),
        (maker("Deployment"), ["web"]),
        (maker("ReplicaSet", replicas=0), []),
        (maker("ReplicationController", replicas=2), ["web-0", "web-1"]),
        (maker("StatefulSet"), ["web-0"]),
        (maker("DaemonSet"), ["web"]),
        (maker("Job", parallelism=4, completions=2), ["web-0", "web-1"]),
        (maker("Job", parallelism=2), ["web-0", "web-1"]),
        (maker("Job"), ["web"]),
        (maker("CronJob", parallelism=2), ["web-0", "web-1"]),
    ],
)
def test_as_many_pods_as_an_object_makes(document: dict[str, Any], names: list[str]) -> None:
    """Named after it, in its namespace, each with a uid of its own."""
    pods = expanded(read(document))

    assert [made_pod.name for made_pod in pods] == names
    assert [made_pod.uid for made_pod in pods] == [f"shop/{name}" for name in names]
    assert all(made_pod.exclusive_cpus == 2 for made_pod in pods)


def test_replicas_override_what_an_object_says() -> None:
    """In rounds, one of each."""
    documents = read(maker("Deployment", replicas=3), pod("one"))

    assert [made_pod.name for made_pod in expanded(documents, 2)] == [
        "web-0",
        "one-0",
        "web-1",
        "one-1",
    ]
    assert [made_pod.name for made_pod in expanded(documents, 1)] == ["web", "one"]


def identities(pods: list[Pod]) -> list[tuple[str, str]]:
    return [(made_pod.uid, made_pod.name) for made_pod in pods]


@pytest.mark.parametrize(
    ("metadata", "replicas"), [({"name": "web"}, 2), ({"generateName": "web-"}, 1)]
)
def test_copies_keep_their_names_however_a_kubelet_reads_them(
    metadata: dict[str, Any], replicas: int
) -> None:
    spec = {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "containers": [{"name": "c0"}]}
    document = {"kind": "Pod", "metadata": metadata, "spec": spec}
    pods = expanded(read(document, document), replicas)

    for level in PodLevel:
        readings = [made_pod.read_as(PodReading(level)) for made_pod in pods]
        assert identities(readings) == identities(pods)


def test_generated_names_are_told_apart() -> None:
    generated = {"kind": "Pod", "metadata": {"generateName": "job-"}, "spec": SPEC}

    assert [document.pod.name for document in read(generated, pod("x"), generated)] == [
        "job-0",
        "x",
        "job-1",
    ]
    assert [document.pod.uid for document in read(generated, generated)] == [
        "default/job-0",
        "default/job-1",
    ]


def test_lists_of_any_kind_are_opened() -> None:
    deployments = {"kind": "DeploymentList", "items": [maker("Deployment", replicas=2)]}

    assert len(expanded(read({"kind": "List", "items": [pod("a"), deployments]}))) == 3


def test_objects_without_pods_are_warned_of() -> None:
    """A Service beside a Deployment is no mistake."""
    with pytest.warns(AlignupWarning, match="f.yaml: ignored objects that make no pods: Service"):
        documents = read({"kind": "Service", "metadata": {"name": "web"}}, pod("a"))
    assert len(documents) == 1


def test_pods_that_have_ended_are_passed_over() -> None:
    documents = read(
        pod("a", phase="Running"),
        pod("b", phase="Succeeded", namespace="ml"),
        pod("c", phase="Failed"),
    )

    with pytest.warns(AlignupWarning) as caught:
        assert [document.pod.name for document in live_pods(documents)] == ["a"]
    assert [str(warning.message) for warning in caught] == [
        "pod ml/b has ended (Succeeded) and is ignored",
        "pod default/c has ended (Failed) and is ignored",
    ]


def test_pods_of_several_nodes_need_a_choice() -> None:
    """Else they would all be put on one machine."""
    documents = read(pod("a", node="n1"), pod("b", node="n2"), pod("c"))

    with pytest.raises(
        InputError, match=r"these are pods of several nodes \(n1, n2\): --node-name chooses one"
    ):
        live_pods(documents)
    with pytest.warns(AlignupWarning, match="1 pod of other nodes than n2 ignored"):
        assert [document.pod.name for document in live_pods(documents, "n2")] == ["b", "c"]
    assert len(live_pods(documents, one_node=False)) == 3
    assert len(live_pods(documents[:1])) == 1


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            maker("Deployment", replicas="2"),
            r"a whole number of at most 10000, got '2' at spec.replicas in f.yaml",
        ),
        (
            {"kind": "Job", "metadata": {"name": "x"}},
            "a Pod template, got None at spec.template of kind Job in f.yaml",
        ),
        ({"kind": "List", "items": 3}, "a list of Pods, got 3 at items in f.yaml"),
        (
            {"kind": "List", "items": [None]},
            r"which is a mapping, got None at items\[0\] in f.yaml",
        ),
        ({"kind": "List", "items": []}, "there is no Pod in f.yaml"),
        (
            maker("Deployment", template={"spec": {}}),
            r"got None at spec.template.spec.containers in f.yaml",
        ),
    ],
)
def test_what_holds_no_pods_says_where(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(document)


def replicas(**roles: int) -> dict[str, Any]:
    return {role: {"replicas": count, "template": {"spec": SPEC}} for role, count in roles.items()}


@pytest.mark.parametrize(
    ("kind", "fields", "names"),
    [
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": replicas(Master=1, Worker=2)},
            ["x-master", "x-worker-0", "x-worker-1"],
        ),
        ("MPIJob", {"mpiReplicaSpecs": replicas(Worker=2)}, ["x-0", "x-1"]),
        ("Rollout", {"replicas": 2, "template": {"spec": SPEC}}, ["x-0", "x-1"]),
        ("Service", {"template": {"spec": SPEC}}, ["x"]),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {"name": "w", "replicas": 2, "template": {"spec": JOB}},
                    {"name": "d", "template": JOB},
                ]
            },
            ["x-w-0", "x-w-1", "x-w-2", "x-w-3", "x-d-0", "x-d-1"],
        ),
        (
            "LeaderWorkerSet",
            {
                "replicas": 2,
                "leaderWorkerTemplate": {
                    "size": 3,
                    "leaderTemplate": {"spec": SPEC},
                    "workerTemplate": {"spec": SPEC},
                },
            },
            ["x-leader-0", "x-leader-1", *(f"x-worker-{number}" for number in range(4))],
        ),
        (
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": SPEC}}},
            ["x-0", "x-1", "x-2"],
        ),
        (
            "Workflow",
            {
                "entrypoint": "main",
                "templates": [
                    {"name": "main", "steps": [[{"name": "train", "template": "train"}]]},
                    {"name": "train", "container": SPEC["containers"][0]},
                    {
                        "name": "test",
                        "container": {
                            "image": "i",
                            "resources": SPEC["containers"][0]["resources"],
                        },
                    },
                ],
            },
            ["x-train", "x-test"],
        ),
        ("CustomResourceDefinition", {"template": {"spec": SPEC}}, None),
        ("VirtualService", {"http": [{"route": []}]}, None),
    ],
)
def test_pods_are_found_in_any_object(
    kind: str, fields: dict[str, Any], names: list[str] | None
) -> None:
    """Whoever defined its kind; what has none is said in one line."""
    document = {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": fields,
    }
    if names is not None:
        pods = expanded(read(document))
        assert [made_pod.name for made_pod in pods] == names
        assert len({made_pod.uid for made_pod in pods}) == len(names)
        assert all(made_pod.exclusive_cpus == 2 for made_pod in pods)
        return

    with pytest.warns(AlignupWarning, match=f"ignored objects that make no pods: {kind} \\(2\\)$"):
        assert len(read(document, document, pod("a"))) == 1


def test_a_template_makes_a_number_of_pods_that_can_be_shown() -> None:
    job = {
        "template": {"spec": {"parallelism": 1000, "template": {"spec": SPEC}}},
        "replicas": 1000,
    }
    with pytest.raises(InputError, match="at most 10000 pods of one template, got 1000000"):
        read({"kind": "JobSet", "metadata": {"name": "x"}, "spec": {"replicatedJobs": [job]}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"limit": {"cpu": 4}},
            (
                r"default/a: the key spec.containers\[0\].resources.limit is unknown and ignored; "
                r"did you mean 'limits'\?"
            ),
        ),
        ({"zone": 1}, r"the key spec.containers\[0\].resources.zone is unknown and ignored$"),
    ],
)
def test_misspelt_keys_of_resources_are_warned_of(change: dict[str, Any], message: str) -> None:
    manifest = {**pod("a"), "spec": {"containers": [{"name": "c", "resources": change}]}}
    with pytest.warns(AlignupWarning, match=message):
        read(manifest)


def test_misspelt_keys_of_pods_are_warned_of() -> None:
    """Also in the template of an object."""
    container = {**SPEC["containers"][0], "resource": {}}
    spec = {"containers": [container], "initcontainers": []}
    with pytest.warns(AlignupWarning) as caught:
        read({**maker("Deployment"), "spec": {"template": {"spec": spec, "metdata": {}}}})

    assert [str(warning.message) for warning in caught] == [
        (
            f"Deployment shop/web: the key spec.template.{key} is unknown and ignored; did you "
            f"mean {meant!r}?"
        )
        for key, meant in (
            ("metdata", "metadata"),
            ("spec.initcontainers", "initContainers"),
            ("spec.containers[0].resource", "resources"),
        )
    ]


@pytest.mark.parametrize(
    ("reason", "was_rejected"),
    [
        ("TopologyAffinityError", True),
        ("OutOfcpu", True),
        ("UnexpectedAdmissionError", True),
        ("Evicted", False),
        ("", False),
    ],
)
def test_a_pod_that_its_kubelet_rejected_is_told_from_others(
    reason: str, was_rejected: bool
) -> None:
    status = {
        "phase": "Failed",
        "reason": reason,
        "message": "why",
        "startTime": "2026-01-02T03:04:05Z",
    }
    [rejected] = read({**pod("a"), "status": status})

    assert (rejected.was_rejected, rejected.reason, rejected.message) == (
        was_rejected,
        reason,
        "why",
    )
    if was_rejected:
        assert live_pods([rejected], rejected=True) == [rejected]

    with pytest.warns(AlignupWarning, match="has ended"):
        assert live_pods([rejected]) == []


def test_json_lines_are_read() -> None:
    text = "\n".join(json.dumps(pod(name)) for name in "abc")
    assert [document.pod.name for document in read_pod_documents(text + "\n\n", "f")] == [
        "a",
        "b",
        "c",
    ]


def test_resource_claims_are_warned_of() -> None:
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]}
    with pytest.warns(AlignupWarning, match="the resource claims of pod default/a are ignored"):
        read({**pod("a"), "spec": {**SPEC, **claims}})


def stored(qos: str, uid: str | None = "u") -> dict[str, Any]:
    """A pod with an empty `spec.resources`.

    Kubelets 1.36 and 1.37 derive different classes of it.
    """
    amounts = {"cpu": "2", "memory": "1Gi"}
    metadata = {"name": "p"}
    if uid:
        metadata["uid"] = uid

    return {
        "metadata": metadata,
        "spec": {"resources": {}, "containers": [{"name": "c", "resources": {"limits": amounts}}]},
        "status": {"phase": "Running", "qosClass": qos},
    }


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_the_class_that_an_api_server_has_stored_counts(version: str) -> None:
    """So behind an older API server a newer kubelet decides as the older one would have."""
    profile = KubeletConfig(version=version).profile
    with pytest.warns(
        AlignupWarning,
        match="default/p is BestEffort by its status, and Guaranteed by its resources",
    ):
        (document,) = read_pod_documents(json.dumps(stored("BestEffort")), "pods.json")
    assert document.pod.read_as(profile.pods).qos is QOSClass.BEST_EFFORT
    assert document.pod.read_as(profile.pods).containers[0].exclusive_cpus == 0

    (document,) = read_pod_documents(json.dumps(stored("Guaranteed")), "pods.json")
    assert document.pod.read_as(profile.pods).containers[0].exclusive_cpus == 2

    resized = resized_pod(document.pod, {"c": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}})
    assert resized.read_as(profile.pods).qos is QOSClass.GUARANTEED


def test_what_no_api_server_has_stored_does_not_count() -> None:
    """A manifest without a uid is about to be created.

    And a static pod's status is only a copy's.
    """
    static = stored("BestEffort")
    static["metadata"]["annotations"] = {
        "kubernetes.io/config.hash": "h",
        "kubernetes.io/config.source": "file",
    }
    for manifest in (stored("BestEffort", None), static, stored("Nonsense")):
        (document,) = read_pod_documents(json.dumps(manifest), "pods.json")
        assert document.pod.qos is QOSClass.GUARANTEED


def test_a_warning_names_a_pod_that_has_no_name_yet():
    document = {
        "kind": "Pod",
        "metadata": {"generateName": "web-"},
        "spec": {"containers": [{"name": "c", "imagee": "i"}]},
    }
    with pytest.warns(AlignupWarning, match=r"default/web-: the key spec.containers\[0\].imagee"):
        read_pod_documents(json.dumps(document), "p.yaml")


def test_a_virtual_machine_is_no_pod_and_kubevirts_pod_is_named():
    machine = json.dumps(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": "v"},
        }
    )

    with (
        pytest.warns(AlignupWarning, match="VirtualMachineInstance"),
        pytest.raises(
            InputError,
            match=r"no Pod in vmi\.yaml; .*`kubectl get pods -l kubevirt\.io=virt-launcher",
        ),
    ):
        read_pod_documents(machine, "vmi.yaml")


def test_many_unknown_keys_are_told_as_a_number() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    text = json.dumps(pod | {f"k{number}": 1 for number in range(300)})
    with pytest.warns(AlignupWarning) as warned:
        read_pod_documents(text, "x")
    sentences = [str(warning.message) for warning in warned]
    assert len(sentences) == 101
    assert "200 more keys of the document are unknown and ignored" in sentences[-1]


def test_the_groups_of_pods_are_told_with_what_objects_say() -> None:
    """A PodGroup is no object that makes no pods; one that others have of their own is."""
    job_set = {
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": JOB}}]},
    }
    annotated = {"metadata": {"annotations": {"alignup.dev/group-size": "2"}}, "spec": SPEC}
    job = {"kind": "Job", "metadata": {"name": "job"}, "spec": {**JOB, "template": annotated}}
    in_gang = pod("p")
    in_gang["spec"] = {**SPEC, "schedulingGroup": {"podGroupName": "gang"}}
    gang = {
        "kind": "PodGroup",
        "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 7}}},
    }
    documents = read_pod_documents(
        "\n---\n".join(map(json.dumps, [in_gang, job, job_set, pod("alone"), gang])), "here"
    )
    memberships = [document.membership for document in documents]
    assert [each and (each.kind, each.name, each.size) for each in memberships] == [
        ("podgroup", "gang", 7),
        ("job", "job", 2),
        ("jobset", "set", 4),
        None,
    ]

    foreign = {**gang, "apiVersion": "scheduling.x-k8s.io/v1alpha1"}
    with pytest.warns(AlignupWarning, match="ignored objects that make no pods: PodGroup"):
        read_pod_documents("\n---\n".join(map(json.dumps, [pod("p"), foreign])), "here")


def test_each_of_several_pods_has_the_group_of_its_object() -> None:
    template = {"metadata": {"annotations": {"alignup.dev/group-size": "2"}}, "spec": SPEC}
    job = {"kind": "Job", "metadata": {"name": "job"}, "spec": {**JOB, "template": template}}
    documents = expanded_documents(read_pod_documents(json.dumps(job), "here"))
    assert [document.pod.name for document in documents] == ["job-0", "job-1"]
    assert len({document.membership for document in documents}) == 1
