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
    resources = {"requests": amounts, **({"limits": amounts} if limits else {})}
    ports = spec.pop("ports", [])
    container = {"name": "c", "resources": resources, "ports": ports}
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], **spec}}


def test_too_little_is_left_on_the_node() -> None:
    found = explain(node(), pod(cpu="5"))

    assert (found.admitted, found.reason, found.cause_kind) == (False, "OutOfcpu", "node")
    assert found.cause == "too little is left on the node as a whole: 5 cpu requested, 3 of 15 left"
    assert found.blamed == ("cpu",)
    assert {one.text for one in found.suggestions} == {
        "request 3 cpu instead of 5",
        "remove pod default/a, which requests 4 cpu",
    }


def test_half_of_two_cores_is_worth_a_suggestion() -> None:
    one = node()
    assert one.admit(pod("c", "2"))

    assert "request 1 cpu instead of 2" in {
        found.text for found in explain(one, pod(cpu="2")).suggestions
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
    asked = pod(cpu=str(cpu), memory=f"{memory}Gi", limits=limits, overhead={"cpu": str(overhead)})
    cause = explain(node(topologyManagerPolicy=policy), asked).cause
    assert cause.count("too little is left on the node as a whole") <= 1
    assert len(set(cause.split("; besides, "))) == len(cause.split("; besides, "))


def test_what_is_suggested_helps() -> None:
    one = node(maxPods=3)
    assert one.admit(pod("c", "1"))
    for asked in (pod(cpu="1"), pod(cpu="1500m"), pod(memory="60Gi"), pod(cpu="6", memory="30Gi")):
        found = explain(one, asked)
        assert not found.admitted
        assert found.suggestions
        for suggestion in found.suggestions:
            attempt = suggestion.attempt
            tried = node(maxPods=attempt.get("kubelet", {}).get("maxPods", 3))
            assert tried.admit(pod("c", "1"))
            for uid in attempt.get("remove", ()):
                tried.remove(uid)
            assert tried.admit(attempt.get("pod", asked)).admitted, suggestion.text


def test_a_request_that_is_lowered_keeps_its_limit_where_it_was_another_one() -> None:
    burstable = pod(cpu="5")
    burstable["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "6", "memory": "1Gi"}
    made = next(
        one for one in explain(node(), burstable).suggestions if one.kind == "request"
    ).attempt["pod"]
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "3", "memory": "1Gi"},
        "limits": {"cpu": "6", "memory": "1Gi"},
    }


@pytest.mark.parametrize(
    ("asked", "cause"),
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
def test_a_pod_that_does_not_suit_the_node(asked: dict[str, Any], cause: str) -> None:
    one = Node(
        machine_of(2, 4),
        KUBELET,
        node_object={"metadata": {"name": "n", "labels": {}}},
        whole_verdict=True,
    )
    assert one.admit(pod("w", ports=[{"containerPort": 1, "hostPort": 80}]))
    found = explain(one, asked)
    assert (found.cause_kind, found.cause) == ("node", cause)


def test_a_taint() -> None:
    described = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]},
    }
    found = explain(
        Node(machine_of(2, 4), KUBELET, node_object=described, whole_verdict=True), pod()
    )
    assert (found.reason, found.cause) == (
        "TaintToleration",
        "the pod does not tolerate a NoExecute taint of the node",
    )


def test_a_critical_pod_names_whom_the_kubelet_evicts() -> None:
    one = node()
    found = explain(one, pod(cpu="5", priority=2_000_000_000))

    assert (found.admitted, found.preempted) == (True, ("default/a",))
    assert found.cause.endswith("; the kubelet evicts default/a to make room")
    assert found.to_dict()["preempted"] == ["default/a"]
    assert [there.name for there in one.pods] == ["a", "b"]

    assert one.admit(pod("c", cpu="2", priority=2_000_000_001))
    refused = explain(one, pod(cpu="14", priority=2_000_000_000))
    assert refused.reason == "UnexpectedAdmissionError"
    assert refused.cause.endswith(
        "and evicting every pod that this critical pod may evict frees too little"
    )


def test_manifests_of_suggestions_keep_what_the_pod_demands_of_the_node() -> None:
    asked = pod(
        cpu="5",
        nodeSelector={"kubernetes.io/os": "linux"},
        tolerations=[{"operator": "Exists"}],
        ports=[{"containerPort": 5, "hostPort": 80}],
        priority=7,
        overhead={"cpu": "250m"},
    )
    [made] = [
        one.attempt["pod"] for one in explain(node(), asked).suggestions if one.kind == "request"
    ]
    spec = made["spec"]
    assert spec["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert (spec["priority"], spec["nodeSelector"]) == (7, {"kubernetes.io/os": "linux"})
    assert spec["containers"][0]["ports"][0]["hostPort"] == 80


def test_a_pod_that_the_kubelet_refuses_is_not_among_the_holders() -> None:
    asked = pod(cpu="2", limits=True, nodeSelector={"kubernetes.io/os": "windows"})
    found = explain(node(), asked)
    assert found.reason == "NodeAffinity"
    assert found.after is not None
    assert "p" not in {one.pod_uid for one in found.after.containers}
    assert found.containers[0].got is not None
