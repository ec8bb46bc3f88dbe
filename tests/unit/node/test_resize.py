"""Resizes in place, as kubelets 1.33 to 1.37 answer them; the table is what real kubelets 1.36.3 and 1.37.2 did."""

from __future__ import annotations

from typing import Any

import pytest

from alignup.errors import InputError, UnknownPodError
from alignup.machine.cpuset import CPUSet
from alignup.node import Node
from alignup.replay import replay

CPU_GATE = {"InPlacePodVerticalScalingExclusiveCPUs": True}
BOTH_GATES = {**CPU_GATE, "InPlacePodVerticalScalingExclusiveMemory": True}
CPU_STATIC = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
MEMORY_STATIC = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
OLD_STATIC = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
LOCALITY = "Resources cannot be allocated with Topology locality"
CAPACITY = "Node didn't have enough capacity: cpu, requested: 100000, capacity: 15000"
ALLOCATABLE = "node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: 15000"
BOTH_SHORT = f"{ALLOCATABLE}; memory, requested: {90 << 30}, allocatable: {31 << 30}"
MEMORY_CAPACITY = f"Node didn't have enough capacity: memory, requested: {90 << 30}, capacity: {31 << 30}"
TOO_MUCH = {"requests": {"cpu": "100", "memory": "90Gi"}, "limits": {"cpu": "200", "memory": "90Gi"}}
DISABLED = "InPlacePodVerticalScaling is disabled"
HUNDRED = {"requests": {"cpu": "100"}, "limits": {"cpu": "200"}}
MACHINE = {
    "numaNodes": [
        {
            "id": node,
            "memory": 16 << 30,
            "cores": [
                {"id": core, "socket": node, "cpus": [8 * node + 2 * core, 8 * node + 2 * core + 1]}
                for core in range(4)
            ],
        }
        for node in range(2)
    ]
}


def node_of(
    version: str, policy: str = "single-numa-node", gates: dict[str, bool] | None = None, **fields: Any
) -> Node:
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": policy,
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        **fields,
    }
    if gates:
        kubelet["featureGates"] = gates
    return Node.from_dict({"machine": MACHINE, "kubelet": kubelet, "kubeletVersion": version})


def amounts(cpu: str, memory: str = "1Gi") -> dict[str, Any]:
    both = {"cpu": cpu, "memory": memory}
    return {"requests": both, "limits": both}


def pod_of(resources: dict[str, Any], level: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": resources}]}
    if level:
        spec["resources"] = level
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec}


BURSTABLE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("version", "gates", "policy", "before", "after", "status", "message", "cpus"),
    [
        ("1.33", {}, "none", amounts("2"), amounts("4"), "Infeasible", OLD_STATIC, 2),
        ("1.33", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", OLD_STATIC, 2),
        ("1.34", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.34", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", MEMORY_STATIC, 2),
        ("1.34", {}, "none", BURSTABLE, TOO_MUCH, "Infeasible", MEMORY_CAPACITY, 0),
        ("1.35", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.36", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.37", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.36", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", MEMORY_STATIC, 2),
        ("1.37", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", MEMORY_STATIC, 2),
        ("1.36", {}, "none", amounts("1500m"), amounts("2500m"), "Infeasible", CPU_STATIC, 0),
        ("1.36", {}, "none", BURSTABLE, {"requests": {"cpu": "2"}}, "allocated", "", 0),
        ("1.37", {}, "none", BURSTABLE, {"requests": {"cpu": "2"}}, "allocated", "", 0),
        ("1.36", CPU_GATE, "single-numa-node", amounts("2"), amounts("4"), "Deferred", LOCALITY, 2),
        ("1.36", CPU_GATE, "single-numa-node", amounts("4"), amounts("2"), "Deferred", LOCALITY, 4),
        ("1.37", CPU_GATE, "single-numa-node", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.37", CPU_GATE, "single-numa-node", amounts("4"), amounts("2"), "allocated", "", 4),
        ("1.36", CPU_GATE, "best-effort", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.36", CPU_GATE, "none", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.37", CPU_GATE, "none", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.36", CPU_GATE, "single-numa-node", amounts("1500m"), amounts("2"), "allocated", "", 2),
        ("1.37", CPU_GATE, "single-numa-node", amounts("1500m"), amounts("2"), "allocated", "", 0),
        ("1.36", CPU_GATE, "single-numa-node", amounts("2"), amounts("2500m"), "allocated", "", 2),
        ("1.36", BOTH_GATES, "single-numa-node", amounts("2"), amounts("2", "2Gi"), "allocated", "", 2),
        ("1.37", BOTH_GATES, "single-numa-node", amounts("2"), amounts("2", "2Gi"), "allocated", "", 2),
        ("1.35", {}, "none", BURSTABLE, HUNDRED, "Infeasible", CAPACITY, 0),
        ("1.36", {}, "none", BURSTABLE, HUNDRED, "Infeasible", ALLOCATABLE, 0),
        ("1.35", {}, "none", amounts("2"), amounts("100"), "Infeasible", CPU_STATIC, 2),
        ("1.36", {}, "none", amounts("2"), amounts("100"), "Infeasible", ALLOCATABLE, 2),
        ("1.36", {}, "none", amounts("2"), amounts("100", "90Gi"), "Infeasible", BOTH_SHORT, 2),
        ("1.35", {}, "none", BURSTABLE, TOO_MUCH, "Infeasible", MEMORY_CAPACITY, 0),
        ("1.32", {}, "none", BURSTABLE, {"requests": {"cpu": "2"}}, "Infeasible", DISABLED, 0),
    ],
)  # fmt: skip
def test_what_a_kubelet_says_and_what_then_holds_cpus(version, gates, policy, before, after, status, message, cpus):
    node = node_of(version, policy, gates)
    assert node.admit(pod_of(before))
    free = node.cpu.free_cpus
    answer = node.resize("u", {"c": after})
    assert (answer.status, answer.message, bool(answer)) == (status, message, status == "allocated")
    held = node.cpu.cpus("u", "c") or CPUSet()
    assert len(held) == cpus
    assert len(free) - len(node.cpu.free_cpus) == (cpus if before == amounts("1500m") else 0)
    node.remove("u")
    assert len(node.cpu.free_cpus) == 15


@pytest.mark.parametrize("gates", [{}, {"PodLevelResourceManagers": True}])
def test_resources_of_the_pod_as_a_whole_grow_alone(gates):
    node = node_of("1.37", "best-effort", gates, topologyManagerScope="pod")
    assert node.admit(pod_of(amounts("2"), amounts("4", "2Gi")))
    before = node.shared_cpus
    assert node.resize("u", {}, amounts("6", "2Gi"))
    assert node.shared_cpus == before
    assert node.pods[0].constraints.requests["cpu"] == 6000
    assert node.resize("u", {"c": amounts("3")}).message == CPU_STATIC


def test_a_resize_of_nothing_is_allocated():
    node = node_of("1.37")
    node.admit(pod_of(amounts("2")))
    assert node.resize("u", {"c": amounts("2")})
    assert node.resize("u", {})


def test_a_resize_counts_for_the_next_one():
    node = node_of("1.37", gates=CPU_GATE)
    node.admit(pod_of(amounts("2")))
    assert node.resize("u", {"c": amounts("4")})
    assert node.pods[0].containers[0].requests["cpu"] == 4000
    assert node.resize("u", {"c": amounts("2")})


@pytest.mark.parametrize(
    ("containers", "pod", "words"),
    [
        ({"d": amounts("2")}, None, r"expected containers of the pod \(c\), got 'd'"),
        ({"c": {"requests": {"cpu": "1"}}}, None, "the QoS class to stay Guaranteed, got 'Burstable'"),
        ({"c": {"limits": {"cpu": "1"}}}, None, "at most the limit"),
        ({"c": {"requests": {"example.com/gpu": "1"}}}, None, "changes of cpu and memory only, got 'example.com/gpu'"),
        ({"c": {"cpu": "1"}}, None, 'an object with "requests" and "limits"'),
        ({}, amounts("2"), "a pod that has resources as a whole"),
    ],
)
def test_what_the_api_server_refuses_is_an_error(containers, pod, words):
    node = node_of("1.37")
    node.admit(pod_of(amounts("2")))
    before = node.pods
    with pytest.raises(InputError, match=words):
        node.resize("u", containers, pod)
    assert node.pods == before


def test_a_pod_that_is_not_there_is_not_resized():
    with pytest.raises(UnknownPodError):
        node_of("1.37").resize("u", {})


def test_a_step_of_a_scenario_is_answered_like_any_step():
    def answers(version: str) -> list[tuple[bool, str, str]]:
        scenario = {
            "machine": MACHINE,
            "kubelet": {
                "topologyManagerPolicy": "single-numa-node",
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0",
                "featureGates": CPU_GATE,
            },
            "kubeletVersion": version,
            "steps": [
                {"admit": pod_of(amounts("2"))},
                {"resize": "u", "containers": {"c": amounts("4")}},
                {"admit": {**pod_of(amounts("40")), "metadata": {"name": "q", "uid": "q"}}},
                {"resize": "q", "containers": {"c": amounts("4")}},
            ],
        }
        steps = replay(scenario)["steps"]
        assert steps[1]["containers"]["c"]["cpus"] == steps[0]["containers"]["c"]["cpus"]
        return [(step["admitted"], step["reason"], step["message"]) for step in (steps[1], steps[3])]

    assert answers("1.36") == [(False, "Deferred", LOCALITY), (True, "", "")]
    assert answers("1.37") == [(True, "allocated", ""), (True, "", "")]
