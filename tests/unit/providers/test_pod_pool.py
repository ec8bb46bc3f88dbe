"""Pods that hold CPUs and memory as a whole.

What their containers have of it, and which pods are refused.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import explain
from alignup.machine.cpuset import CPUSet
from alignup.node import Node
from alignup.node.holdings import holdings_of

GI = 1 << 30
OWN = {"cpu": "1", "memory": "1Gi"}
MACHINE = {
    "numaNodes": [
        {
            "id": node,
            "memory": 16 * GI,
            "cores": [{"id": core, "socket": 0, "cpus": [8 * node + core]} for core in range(8)],
        }
        for node in range(2)
    ]
}


def node_of(
    policy: str = "best-effort", scope: str = "pod", version: str = "1.37", **fields: Any
) -> Node:
    kubelet = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "featureGates": {"PodLevelResourceManagers": True},
        **fields,
    }
    devices = {"example.com/gpu": [{"id": f"gpu{i}", "numa": i % 2} for i in range(2)]}

    return Node.from_dict(
        {"machine": MACHINE, "kubelet": kubelet, "devices": devices, "kubeletVersion": version}
    )


def pod_of(
    uid: str, cpu: int, memory: str, containers: list[Any], inits: list[Any] | None = None
) -> dict[str, Any]:
    """Return a pod; of a container its limits, and for init containers whether it is a sidecar."""
    total = {"cpu": str(cpu), "memory": memory}

    def container(name: str, limits: dict[str, str]) -> dict[str, Any]:
        if not limits:
            return {"name": name, "resources": {}}
        return {"name": name, "resources": {"requests": limits, "limits": limits}}

    first = []
    for index, (limits, is_sidecar) in enumerate(inits or []):
        first.append(container(f"i{index}", limits))
        if is_sidecar:
            first[-1]["restartPolicy"] = "Always"

    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {
            "resources": {"requests": total, "limits": total},
            "initContainers": first,
            "containers": [
                container(f"c{index}", limits) for index, limits in enumerate(containers)
            ],
        },
    }


def test_containers_with_all_of_their_own_are_served_first_and_the_others_share_the_rest():
    node = node_of()
    pod = pod_of(
        "u",
        5,
        "4Gi",
        [OWN, {}, {"cpu": "500m", "memory": "1Gi"}],
        [({}, False), (OWN, True), ({}, False)],
    )
    admission = node.admit(pod)

    cpus = {name: int(container.cpus or 0) for name, container in admission.containers.items()}
    whole = int(admission.pod_cpus or 0)
    assert whole.bit_count() == 5
    assert cpus["i0"] == whole
    assert cpus["i2"] == whole & ~cpus["i1"]
    assert cpus["c0"].bit_count() == cpus["i1"].bit_count() == 1
    assert not cpus["c0"] & cpus["i1"]
    assert cpus["c1"] == cpus["c2"] == whole & ~cpus["c0"] & ~cpus["i1"]

    sizes = {
        name: sum(block.size for block in container.memory) // GI
        for name, container in admission.containers.items()
    }
    # a fraction of a CPU is shared, and its memory exclusive
    assert sizes == {"i0": 4, "i1": 1, "i2": 3, "c0": 1, "c1": 1, "c2": 1}

    assert admission.to_dict()["podCpus"] == str(admission.pod_cpus)
    assert [block["size"] for block in admission.to_dict()["podMemory"]] == [4 * GI]


@pytest.mark.parametrize(
    ("containers", "inits", "sentence"),
    [
        ([{"cpu": "4", "memory": "1Gi"}, {}], [], "leaving no cpus for shared containers"),
        ([{}, {"cpu": "4", "memory": "1Gi"}], [], "leaving no cpus for shared containers"),
        ([{"cpu": "1", "memory": "2Gi"}, {}], [], "leaving no memory for shared containers"),
        ([{}], [({"cpu": "4", "memory": "1Gi"}, True)], "leaving no cpus for shared containers"),
        (
            [OWN],
            [({"cpu": "4", "memory": "1Gi"}, True), ({}, False)],
            "shared init containers but no cpus available",
        ),
        (
            [OWN],
            [({"cpu": "1", "memory": "2Gi"}, True), ({}, False)],
            "shared init containers but no memory available",
        ),
    ],
)
def test_a_pod_that_leaves_nothing_to_share_is_refused(containers, inits, sentence):
    pod = pod_of("u", 4, "2Gi", containers, inits)
    node = node_of()
    refused = node.admit(pod)
    assert refused.reason == "EmptyPodSharedPoolError"
    assert sentence in refused.message
    assert sentence in explain(node, pod, suggest=False).cause
    assert node.cpu is not None
    assert len(node.cpu.free_cpus) == 15
    # a policy that needs a preferred hint sees that none is offered
    assert node_of("restricted").admit(pod).reason == "TopologyAffinityError"


def test_what_a_pod_holds_comes_back_with_its_last_container():
    node = node_of()
    assert node.admit(pod_of("u", 4, "2Gi", [OWN, {}]))
    assert node.cpu is not None
    assert node.memory is not None
    for name, free in (("c0", 11), ("c1", 15)):
        node.cpu.release("u", name)
        assert len(node.cpu.free_cpus) == free
        node.memory.release("u", name)
    assert sum(node.memory.free["memory"]) == 31 * GI
    assert node.cpu.pod_cpus("u") is None


def test_devices_come_when_a_container_starts():
    gpu = {**OWN, "example.com/gpu": "1"}
    node = node_of()
    assert node.devices is not None
    assert node.admit(pod_of("u", 4, "3Gi", [gpu, gpu, {}]))
    assert node.devices.given["example.com/gpu"] == ()
    node.started("u", "c0")
    node.started("u", "c0")
    assert len(node.devices.given["example.com/gpu"]) == 1
    node.started("u", "c1")
    assert len(node.devices.given["example.com/gpu"]) == 2
    node.remove("u")
    assert node.devices.given["example.com/gpu"] == ()


@pytest.mark.parametrize(
    ("scope", "reason"), [("container", "UnexpectedAdmissionError"), ("pod", "")]
)
def test_older_kubelets_look_for_a_place_for_nothing_container_by_container(scope, reason):
    """1.36 refuses a container without memory where no affinity tells it the nodes.

    1.37 admits it.
    """
    pod = pod_of("u", 3, "3Gi", [{}, OWN])
    assert node_of("single-numa-node", scope, "1.37").admit(pod)
    assert node_of("single-numa-node", scope, "1.36").admit(pod).reason == reason


@given(
    st.lists(
        st.sampled_from([{}, OWN, {"cpu": "500m", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}]),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_given_and_free_add_up_with_what_containers_leave(containers, cpus, memory):
    """Whatever containers have of a pod's resources, the holdings of a node are complete.

    Removal restores the node.
    """
    node = node_of()
    admission = node.admit(pod_of("u", cpus, f"{memory}Gi", containers))
    assert node.cpu is not None
    holdings = holdings_of(node)
    for resource in holdings.resources:
        if resource.resource == "memory":
            for place in resource.places:
                allocated = sum(
                    container.memory.get("memory", {}).get(place.numa_nodes[0], 0)
                    for container in holdings.containers
                )
                assert allocated == place.held

    union = CPUSet.from_int(0)
    for container in holdings.containers:
        union = CPUSet.from_int(int(union) | int(container.cpus or 0))

    assert len(union) == 15 - len(node.cpu.free_cpus) == (cpus if admission else 0)
    if admission:
        node.remove("u")

    assert len(node.cpu.free_cpus) == 15


@pytest.mark.parametrize(("version", "reason"), [("1.36", "SMTAlignmentError"), ("1.37", "")])
def test_cpus_held_from_before_full_pcpus_only_pass_in_newer_kubelets(version, reason):
    machine = {
        "numaNodes": [
            {
                "id": 0,
                "memory": GI,
                "cores": [{"id": c, "socket": 0, "cpus": [2 * c, 2 * c + 1]} for c in range(4)],
            }
        ]
    }
    kubelet = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0-1",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    }
    node = Node.from_dict({"machine": machine, "kubelet": kubelet, "kubeletVersion": version})
    assert node.cpu is not None
    node.cpu.restore({"u": {"c": 0b11100}}, 0b11100011)

    three = {"cpu": "3", "memory": "1Mi"}
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": three, "limits": three}}]},
    }
    assert node.admit(pod).reason == reason
