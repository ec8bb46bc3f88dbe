"""A refusal by the kubelet's own checks is explained, and what helps is found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import explain
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES as POLICIES
from alignup.node import Node
from inputs.machines import machine_of

KUBELET = {
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "evictionHard": {},
}


def node(**more: Any) -> Node:
    described = {"machine": machine_of(2, 4), "kubelet": {**KUBELET, **more}, "wholeVerdict": True}
    made = Node.from_dict(described)
    for name, cpu in (("a", "4"), ("b", "8")):
        assert made.admit(pod(name, cpu))
    return made


def pod(
    name: str = "p", cpu: str = "1", memory: str = "1Gi", *, limits: bool = False, **spec: Any
) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    resources = {"requests": amounts}
    if limits:
        resources["limits"] = amounts

    ports = spec.pop("ports", [])
    container = {"name": "c", "resources": resources, "ports": ports}
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], **spec}}


def test_too_little_is_left_on_the_node() -> None:
    explanation = explain(node(), pod(cpu="5"))

    assert (explanation.admitted, explanation.reason, explanation.cause_kind) == (
        False,
        "OutOfcpu",
        "node",
    )
    assert (
        explanation.cause
        == "too little is left on the node as a whole: 5 cpu requested, 3 of 15 left"
    )
    assert explanation.blamed == ("cpu",)
    assert {suggestion.text for suggestion in explanation.suggestions} == {
        "request 3 cpu instead of 5",
        "remove pod default/a, which requests 4 cpu",
    }


def test_half_of_two_cores_is_worth_a_suggestion() -> None:
    full_node = node()
    assert full_node.admit(pod("c", "2"))

    assert "request 1 cpu instead of 2" in {
        suggestion.text for suggestion in explain(full_node, pod(cpu="2")).suggestions
    }


@given(
    cpu=st.integers(1, 30),
    memory=st.integers(1, 200),
    overhead=st.integers(0, 20),
    limits=st.booleans(),
    policy=st.sampled_from(POLICIES),
)
def test_no_cause_is_told_twice(
    cpu: int, memory: int, overhead: int, limits: bool, policy: str
) -> None:
    """What a pod requests of the node as a whole counts whether its managers give it or not."""
    manifest = pod(
        cpu=str(cpu), memory=f"{memory}Gi", limits=limits, overhead={"cpu": str(overhead)}
    )
    cause = explain(node(topologyManagerPolicy=policy), manifest).cause
    assert cause.count("too little is left on the node as a whole") <= 1
    assert len(set(cause.split("; besides, "))) == len(cause.split("; besides, "))


def test_what_is_suggested_helps() -> None:
    full_node = node(maxPods=3)
    assert full_node.admit(pod("c", "1"))

    for manifest in (
        pod(cpu="1"),
        pod(cpu="1500m"),
        pod(memory="60Gi"),
        pod(cpu="6", memory="30Gi"),
    ):
        explanation = explain(full_node, manifest)
        assert not explanation.admitted
        assert explanation.suggestions

        for suggestion in explanation.suggestions:
            attempt = suggestion.attempt
            tried = node(maxPods=attempt.get("kubelet", {}).get("maxPods", 3))
            assert tried.admit(pod("c", "1"))
            for uid in attempt.get("remove", ()):
                tried.remove(uid)

            assert tried.admit(attempt.get("pod", manifest)).admitted, suggestion.text


def test_a_request_that_is_lowered_keeps_its_limit_where_it_was_another_one() -> None:
    burstable = pod(cpu="5")
    burstable["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "6", "memory": "1Gi"}
    made = next(
        suggestion
        for suggestion in explain(node(), burstable).suggestions
        if suggestion.kind == "request"
    ).attempt["pod"]
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "3", "memory": "1Gi"},
        "limits": {"cpu": "6", "memory": "1Gi"},
    }


@pytest.mark.parametrize(
    ("manifest", "cause"),
    [
        (
            pod(nodeSelector={"disk": "ssd"}),
            "the node's labels do not match the pod's node selector or required node affinity",
        ),
        (pod(nodeName="other"), "the pod is bound to node other, and this is node n"),
        (
            pod(ports=[{"containerPort": 1, "hostPort": 80}]),
            "host ports of the pod are taken: 80/TCP (default/w)",
        ),
        (pod(os={"name": "windows"}), "the pod is for windows, and the node runs linux"),
    ],
)
def test_a_pod_that_does_not_suit_the_node(manifest: dict[str, Any], cause: str) -> None:
    windows = Node(
        machine_of(2, 4),
        KUBELET,
        node_object={"metadata": {"name": "n", "labels": {}}},
        whole_verdict=True,
    )
    assert windows.admit(pod("w", ports=[{"containerPort": 1, "hostPort": 80}]))
    explanation = explain(windows, manifest)
    assert (explanation.cause_kind, explanation.cause) == ("node", cause)


def test_a_taint() -> None:
    described = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]},
    }
    explanation = explain(
        Node(machine_of(2, 4), KUBELET, node_object=described, whole_verdict=True), pod()
    )
    assert (explanation.reason, explanation.cause) == (
        "TaintToleration",
        "the pod does not tolerate a NoExecute taint of the node",
    )


def test_a_critical_pod_names_whom_the_kubelet_evicts() -> None:
    full_node = node()
    explanation = explain(full_node, pod(cpu="5", priority=2_000_000_000))

    assert (explanation.admitted, explanation.preempted) == (True, ("default/a",))
    assert explanation.cause.endswith("; the kubelet evicts default/a to make room")
    assert explanation.to_dict()["preempted"] == ["default/a"]
    assert [resident.name for resident in full_node.pods] == ["a", "b"]

    assert full_node.admit(pod("c", cpu="2", priority=2_000_000_001))
    refused = explain(full_node, pod(cpu="14", priority=2_000_000_000))
    assert refused.reason == "UnexpectedAdmissionError"
    assert refused.cause.endswith(
        "and evicting every pod that this critical pod may evict frees too little"
    )


def test_manifests_of_suggestions_keep_what_the_pod_demands_of_the_node() -> None:
    manifest = pod(
        cpu="5",
        nodeSelector={"kubernetes.io/os": "linux"},
        tolerations=[{"operator": "Exists"}],
        ports=[{"containerPort": 5, "hostPort": 80}],
        priority=7,
        overhead={"cpu": "250m"},
    )

    [made] = [
        suggestion.attempt["pod"]
        for suggestion in explain(node(), manifest).suggestions
        if suggestion.kind == "request"
    ]

    spec = made["spec"]
    assert spec["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert (spec["priority"], spec["nodeSelector"]) == (7, {"kubernetes.io/os": "linux"})
    assert spec["containers"][0]["ports"][0]["hostPort"] == 80


def test_a_pod_that_the_kubelet_refuses_is_not_among_the_holders() -> None:
    manifest = pod(cpu="2", limits=True, nodeSelector={"kubernetes.io/os": "windows"})
    explanation = explain(node(), manifest)
    assert explanation.reason == "NodeAffinity"
    assert explanation.after is not None
    assert "p" not in {container.pod_uid for container in explanation.after.containers}
    assert explanation.containers[0].got is not None
