"""Every refusal has its sentence, whatever is asked for, on machines of 1 to 64 NUMA nodes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from alignup import Cluster, Node
from alignup.topology_manager.refusal_message import refusal_dict
from inputs.machines import GIBI, machine_of
from inputs.strategies import examples

AMOUNTS = ("0", "1", "3", "64", "4Gi", "40Gi", "200Gi", "1Ti", "3Ei", "500m")
PAGES = ("0", "2Mi", "1Gi", "40Gi", "3Ei")


def machine(numa_nodes: int, pages: list[int]) -> dict[str, Any]:
    description = machine_of(numa_nodes, 1)
    for node, count in zip(description["numaNodes"], pages * numa_nodes, strict=False):
        node["hugepages"] = {"2Mi": count}
    return description


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    numa_nodes = draw(st.sampled_from([1, 2, 3, 8, 9, 16, 17, 24, 40, 64]))

    return Node.from_dict(
        {
            "machine": machine(
                numa_nodes, draw(st.lists(st.sampled_from([0, 1, 600]), min_size=1, max_size=3))
            ),
            "kubelet": {
                "topologyManagerPolicy": draw(
                    st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])
                ),
                "topologyManagerScope": draw(st.sampled_from(["container", "pod"])),
                "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"},
                "cpuManagerPolicy": draw(st.sampled_from(["none", "static"])),
                "reservedSystemCPUs": "0",
                "memoryManagerPolicy": draw(st.sampled_from(["None", "Static", "Static"])),
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            },
            "kubeletVersion": draw(st.sampled_from(["1.31", "1.36"])),
            "devices": {
                "example.com/nic": [
                    {"id": f"nic{index}", "numa": draw(st.sampled_from([[index % numa_nodes], []]))}
                    for index in range(draw(st.integers(0, 3)))
                ]
            },
        }
    )


@st.composite
def manifests(draw: st.DrawFn, uid: str) -> dict[str, Any]:
    def container(name: str) -> dict[str, Any]:
        limits = {
            "cpu": draw(st.sampled_from(AMOUNTS)),
            "memory": draw(st.sampled_from(AMOUNTS[:-1])),
        }
        if draw(st.booleans()):
            limits["hugepages-2Mi"] = draw(st.sampled_from(PAGES))
        if draw(st.booleans()):
            limits["example.com/nic"] = draw(st.sampled_from(["0", "1", "3", "3Ei"]))
        return {"name": name, "image": "i", "resources": {"limits": limits}}

    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {
            "initContainers": [
                container(f"i{number}") for number in range(draw(st.integers(0, 1)))
            ],
            "containers": [container(f"c{number}") for number in range(draw(st.integers(1, 2)))],
        },
    }


@examples(60)
@given(nodes(), manifests("first"), manifests("second"))
def test_every_refusal_is_put_into_words(
    node: Node, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """And a cluster of such nodes answers as the node does."""
    node.admit(first)
    tried = node.try_admit(second)
    assert bool(Cluster.from_nodes([node]).evaluate(second).admitted[0]) == tried.admitted
    admission = node.admit(second)
    assert admission.message == tried.message
    assert bool(admission.message) != admission.admitted
    if admission.refusal is not None:
        assert refusal_dict(admission.refusal, admission.numa_node_ids)

    for pod in node.pods:
        node.remove(pod.uid)

    # kubelets up to 1.31 can give memory back to another NUMA node, and lose it there: see
    # docs/versions.md
    if node.memory is not None and node.config.profile.memory_groups_checked:
        assert node.memory.free == node.memory.allocatable


def test_types_of_memory_that_fit_alone_are_blamed_together() -> None:
    """On 17 NUMA nodes the hints for one of them are too many to count."""
    node = Node.from_dict(
        {
            "machine": machine_of(17, 1),
            "kubelet": {
                "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"},
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            },
        }
    )
    limits = {"cpu": "1", "memory": str(GIBI), "hugepages-2Mi": "2Mi"}
    pod = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
    }

    assert "hugepages-2Mi: 2Mi asked, the machine has none" in node.admit(pod).message


def test_memory_of_older_releases_comes_back_in_the_order_of_the_pod() -> None:
    """Bytes go back to the lowest NUMA nodes of a mask.

    The container that lies on one of them has to come first.
    """
    for version in ("1.29", "1.31", "1.36"):
        node = Node.from_dict(
            {
                "machine": machine_of(2, 1),
                "kubelet": {
                    "topologyManagerPolicy": "best-effort",
                    "memoryManagerPolicy": "Static",
                    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
                },
                "kubeletVersion": version,
            }
        )
        assert node.memory is not None
        before = node.memory.free

        limits = [{"cpu": "1", "memory": "4Gi"}, {"cpu": "1", "memory": "40Gi"}]
        node.admit(
            {
                "metadata": {"name": "p", "uid": "p"},
                "spec": {
                    "containers": [
                        {"name": f"c{number}", "image": "i", "resources": {"limits": amounts}}
                        for number, amounts in enumerate(limits)
                    ]
                },
            }
        )

        for pod in node.pods:
            node.remove(pod.uid)
        assert node.memory.free == before, version
