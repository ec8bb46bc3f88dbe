"""A start of the kubelet: its checks of what is reserved, and which pods stay."""

from __future__ import annotations

from typing import Any

import pytest

from alignup.errors import ConfigError
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.versions import PodLevel
from alignup.machine.machine import Machine
from alignup.node import Node
from alignup.node.restart import check_start, readmitted, restarted, successor
from alignup.records import replace
from inputs.machines import machine_of

GPU = "example.com/gpu"
STATIC = {
    "topologyManagerPolicy": "best-effort",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}
MEMORY = {
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "kubeReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "0%"},
}


def node_of(**kubelet: Any) -> Node:
    """Return a node of 2 NUMA nodes with 8 CPUs and a GPU each."""
    devices = {GPU: [{"id": f"g{index}", "numa": [index]} for index in range(2)]}
    return Node.from_dict(
        {"machine": machine_of(2, 4), "kubelet": {**STATIC, **kubelet}, "devices": devices}
    )


def config_of(**kubelet: Any) -> KubeletConfig:
    return KubeletConfig.from_dict({**STATIC, **kubelet})


def pod(uid: str, cpus: int, gpus: int = 0) -> dict[str, Any]:
    limits = {"cpu": str(cpus), "memory": "1Gi"}
    if gpus:
        limits[GPU] = str(gpus)

    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
    }


def start(**kubelet: Any) -> None:
    """Check the start of a kubelet on a machine of 2 NUMA nodes with 8 CPUs and 32 GiB each."""
    check_start(Machine.from_dict(machine_of(2, 4)), config_of(**kubelet))


def test_a_kubelet_starts_with_what_the_machine_has() -> None:
    start()
    start(**MEMORY)
    start(cpuManagerPolicy="none", reservedSystemCPUs="")


@pytest.mark.parametrize(
    ("kubelet", "message"),
    [
        (
            {"reservedSystemCPUs": "15-17"},
            r"^reserved-cpus: 15-17 is not a subset of online-cpus: 0-15$",
        ),
        (
            {"reservedSystemCPUs": ""},
            r"systemreserved\.cpu \+ kubereserved\.cpu to be greater than zero$",
        ),
        (
            {**MEMORY, "kubeReserved": {"memory": "2Gi"}},
            '^the total amount "1Gi" of type "memory" is not equal to the value "2Gi" determined',
        ),
        (
            {**MEMORY, "reservedMemory": [{"numaNode": 2, "limits": {"memory": "1Gi"}}]},
            "references a NUMA node 2 that does not exist on this machine",
        ),
        (
            {"systemReserved": {"memory": "65Gi"}},
            r'"memory" has a reservation of .* but capacity of 64Gi\. Expected capacity >= res',
        ),
    ],
)
def test_reservations_that_do_not_suit_the_machine_keep_it_from_starting(
    kubelet: dict[str, Any], message: str
) -> None:
    """In the kubelet's own words."""
    with pytest.raises(ConfigError, match=message):
        start(**kubelet)


def test_pods_keep_what_they_hold_over_a_restart() -> None:
    """And the node that was restarted stays as it was."""
    node = node_of()
    for manifest in (pod("a", 2, gpus=1), pod("b", 4)):
        assert node.admit(manifest)

    restart = restarted(node, config_of())

    assert restart.refused == {}
    assert [kept.uid for kept in restart.node.pods] == ["a", "b"]
    for uid in "ab":
        before, after = node.allocation(uid, "c"), restart.node.allocation(uid, "c")
        assert (after.cpus, after.devices) == (before.cpus, before.devices)
    assert restart.node.shared_cpus == node.shared_cpus

    restart.node.remove("a")
    assert [kept.uid for kept in node.pods] == ["a", "b"]


def test_a_stricter_policy_refuses_pods_that_run() -> None:
    """A pod over both NUMA nodes is refused under single-numa-node, and gives back what it held."""
    node = node_of()
    for manifest in (pod("wide", 12), pod("narrow", 1)):
        assert node.admit(manifest)

    restart = restarted(node, config_of(topologyManagerPolicy="single-numa-node"))

    assert [kept.uid for kept in restart.node.pods] == ["narrow"]
    assert {uid: refusal.reason for uid, refusal in restart.refused.items()} == {
        "wide": "TopologyAffinityError"
    }
    assert len(restart.node.cpu.free_cpus) == 14


@pytest.mark.parametrize(
    ("kubelet", "message"),
    [
        (
            {"cpuManagerPolicy": "none"},
            '"none" differs from state checkpoint policy "static"$',
        ),
        (
            {**MEMORY, "topologyManagerPolicy": "restricted"},
            '"Static" differs from state checkpoint policy "None"$',
        ),
    ],
)
def test_a_state_file_of_another_policy_keeps_it_from_starting(
    kubelet: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        restarted(node_of(), config_of(**kubelet))


def test_with_a_whole_verdict_the_kubelet_looks_at_the_node_as_well() -> None:
    """More is reserved than before, so that the second pod is too much for what is allocatable."""
    node = Node.from_dict(
        {"machine": machine_of(2, 4), "kubelet": {"evictionHard": {}}, "wholeVerdict": True}
    )
    for uid in "ab":
        assert node.admit(pod(uid, 7))

    config = KubeletConfig.from_dict({"evictionHard": {}, "kubeReserved": {"cpu": "4"}})
    restart = restarted(node, config)

    assert [kept.uid for kept in restart.node.pods] == ["a"]
    assert restart.refused["b"].reason == "OutOfcpu"


WHOLE = {
    **MEMORY,
    "topologyManagerScope": "pod",
    "topologyManagerPolicy": "restricted",
    "featureGates": {"PodLevelResourceManagers": True},
}


def whole_pod(uid: str, cpus: int) -> dict[str, Any]:
    """Return a pod with resources of its own, all of which its one container has."""
    made = pod(uid, cpus)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"] = resources["limits"]
    made["spec"]["resources"] = resources
    return made


def whole_node(version: str) -> Node:
    return Node.from_dict(
        {
            "machine": machine_of(2, 4),
            "kubelet": {**STATIC, **WHOLE},
            "kubeletVersion": version,
        }
    )


@pytest.mark.parametrize(("version", "cpus"), [("1.36", "2,10"), ("1.37", "2,10"), ("1.38", "1,9")])
def test_pods_with_resources_of_their_own_are_restored_from_1_38_on(
    version: str, cpus: str
) -> None:
    """Earlier kubelets give them others, and do not start on their state a second time."""
    node = whole_node(version)
    assert node.admit(whole_pod("a", 2))
    assert str(node.allocation("a", "c").cpus) == "1,9"

    restart = restarted(node, node.config)
    assert restart.refused == {}
    assert str(restart.node.allocation("a", "c").cpus) == cpus
    if version == "1.38":
        assert str(restarted(restart.node, node.config).node.allocation("a", "c").cpus) == cpus
        return

    lost = 'current set of available CPUs "0-15" doesn\'t match with CPUs in state "0,2-8,10-15"'
    with pytest.raises(ConfigError, match=f"^{lost}$"):
        restarted(restart.node, node.config)


def test_a_kubelet_of_another_release_reads_the_pods_in_its_own_way() -> None:
    node = whole_node("1.37")
    assert node.admit(whole_pod("a", 2))

    upgraded = restarted(node, replace(node.config, version="1.38"))
    assert str(upgraded.node.allocation("a", "c").cpus) == "1,9"

    config = replace(node.config, feature_gates={"PodLevelResourceManagers": False})
    shared = restarted(node, config)
    assert [kept.pod_level for kept in shared.node.pods] == [PodLevel.SHARES]


def test_what_a_refused_pod_holds_is_given_back_after_the_last_pod() -> None:
    """Until then nobody can have it, as a kubelet waits for its sources."""
    node = node_of()
    for manifest in (pod("wide", 12), pod("narrow", 1)):
        assert node.admit(manifest)

    after = successor(node, config_of(topologyManagerPolicy="single-numa-node"))
    free_cpus = []
    for readmission in readmitted(after, after.pods):
        free_cpus.append((readmission.pod.uid, len(after.cpu.free_cpus)))
        assert (readmission.refusal is None) == (readmission.pod.uid == "narrow")

    assert free_cpus == [("wide", 2), ("narrow", 2)]
    assert len(after.cpu.free_cpus) == 14


def test_claims_stay_with_their_pods() -> None:
    node = node_of()
    node.know_claims([], name="n")
    assert node.admit(pod("a", 1))

    after = restarted(node, node.config).node
    assert after.claims is not None
    assert after.claims is not node.claims
    assert after.claims in after.manager.providers


@pytest.mark.parametrize(
    ("old", "new", "is_on", "message"),
    [
        ("1.36", "1.37", True, ""),
        ("1.36", "1.35", True, "could not restore state from checkpoint: checkpoint is corrupted"),
        ("1.37", "1.37", False, 'CPUs in state "0,3-8,11-15"'),
        ("1.38", "1.36", True, 'CPUs in state "0,3-8,11-15"'),
    ],
)
def test_a_kubelet_that_cannot_read_what_pods_have_as_a_whole(
    old: str, new: str, is_on: bool, message: str
) -> None:
    """Two of the pod's CPUs are in the entry of the pod only: its container had ended."""
    node = whole_node(old)
    manifest = whole_pod("a", 4)
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "4", "memory": "1Gi"}}
    assert node.admit(manifest)
    node.cpu.held["a"] = {}

    gates = {"PodLevelResourceManagers": is_on} if new != "1.35" else {}
    config = replace(node.config, version=new, feature_gates=gates)
    if message:
        with pytest.raises(ConfigError, match=message):
            restarted(node, config)
    else:
        assert restarted(node, config).node.config.version == (37,)


@pytest.mark.parametrize("count", [1, 2])
def test_without_the_gate_a_kubelet_adds_up_what_containers_have(count: int) -> None:
    """Those that share have all that is shared each, which is more than the pod has."""
    node = whole_node("1.38")
    manifest = whole_pod("a", 2)
    container = manifest["spec"]["containers"][0]
    manifest["spec"]["containers"] = [{"name": f"c{i}", "image": "i"} for i in range(count)]
    assert container["resources"] == manifest["spec"]["resources"]
    assert node.admit(manifest)

    config = replace(node.config, feature_gates={"PodLevelResourceManagers": False})
    if count == 1:
        after = restarted(node, config).node
        assert after.memory.blocks("a", "c0") == node.memory.blocks("a", "c0")
        assert after.memory.has_exact_books
        return

    with pytest.raises(ConfigError, match="the expected machine state is different"):
        restarted(node, config)
