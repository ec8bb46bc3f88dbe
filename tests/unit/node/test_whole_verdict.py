"""With `whole_verdict` a node adds the kubelet's own checks after those of its managers."""

from __future__ import annotations

import pytest

from alignup.node import Node
from alignup.replay import replay
from inputs.machines import GIBI, machine_of

STATIC = {
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "evictionHard": {},
}


def node(*, whole=True, **more):
    return Node.from_dict(
        {"machine": machine_of(2, 4), "kubelet": {**STATIC, **more}, "wholeVerdict": whole}
    )


def pod(name="p", cpu="1", memory="1Gi", *, guaranteed=False, priority=None):
    amounts = {"cpu": cpu, "memory": memory}
    resources = {"requests": amounts}
    if guaranteed:
        resources["limits"] = amounts

    spec = {"containers": [{"name": "c", "resources": resources}], "priority": priority}
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


def test_by_default_the_managers_alone_decide() -> None:
    assert node(whole=False).admit(pod(cpu="5000"))
    assert Node(machine_of(2, 4), STATIC).admit(pod(cpu="5000"))


@pytest.mark.parametrize("ask", ["admit", "try_admit"])
def test_what_the_managers_admit_the_kubelet_may_reject(ask) -> None:
    admission = getattr(node(), ask)(pod(cpu="5000"))
    assert (admission.admitted, admission.reason) == (False, "OutOfcpu")
    assert (
        admission.message
        == "Node didn't have enough resource: cpu, requested: 5000000, used: 0, capacity: 15000"
    )


def test_the_managers_come_first() -> None:
    assert node().admit(pod(cpu="14", guaranteed=True)).reason == "TopologyAffinityError"


def test_a_rejected_pod_holds_nothing() -> None:
    full_node = node(maxPods=1)
    assert full_node.admit(pod("a"))
    before = full_node.shared_cpus
    assert full_node.admit(pod("b", "2", guaranteed=True)).reason == "OutOfpods"
    assert (full_node.shared_cpus, [admitted.name for admitted in full_node.pods]) == (
        before,
        ["a"],
    )


def test_a_critical_pod_evicts() -> None:
    busy_node = node()
    assert busy_node.admit(pod("a", "10"))
    assert busy_node.admit(pod("b", "4"))
    critical = pod("c", "3", priority=2_000_000_000)

    tried = busy_node.try_admit(critical)
    assert (tried.admitted, tried.preempted) == (True, ("default/b",))
    assert [admitted.name for admitted in busy_node.pods] == ["a", "b"]

    assert busy_node.copy().try_admit(critical).to_dict()["preempted"] == ["default/b"]
    assert busy_node.admit(critical).preempted == ("default/b",)
    assert [admitted.name for admitted in busy_node.pods] == ["a", "c"]


def test_a_replay_goes_on_without_those_that_were_evicted() -> None:
    steps = [
        {"admit": pod("a", "10")},
        {"admit": pod("b", "10", priority=2_000_000_000)},
        {"remove": "a"},
        {"admit": pod("a", "4")},
    ]
    scenario = {
        "machine": machine_of(2, 4),
        "kubelet": STATIC,
        "wholeVerdict": True,
        "steps": steps,
    }

    answers = replay(scenario)["steps"]
    assert [answer["admitted"] for answer in answers] == [True, True, True, True]
    assert answers[1]["preempted"] == ["default/a"]


def test_the_node_object_says_what_is_allocatable() -> None:
    described = {
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "2", "memory": str(GIBI), "pods": "9"}},
    }
    small_node = Node(machine_of(2, 4), STATIC, node_object=described, whole_verdict=True)
    assert small_node.admit(pod("a", "1", "1Gi"))
    assert small_node.admit(pod("b", "1", "1Mi")).reason == "OutOfmemory"
    assert small_node.admit(pod("c", "2", "0")).reason == "OutOfcpu"


def test_a_held_device_that_turned_unhealthy_counts_for_the_pod_that_holds_it() -> None:
    devices = {"a/b": [{"id": "x", "numa": 0}, {"id": "y", "numa": 0, "healthy": False}]}
    device_node = Node.from_dict(
        {"machine": machine_of(2, 4), "devices": devices, "wholeVerdict": True}
    )
    manifest = pod("a")
    manifest["spec"]["containers"][0]["resources"]["limits"] = {"a/b": "1"}
    assert device_node.admit(manifest)
