"""What a refusal blames is a cause.

Without it the verdict is another one, and by itself it is refused too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from alignup.kubernetes.pod import Container, Pod, QOSClass
from alignup.node import Node
from alignup.topology_manager.refusal_message import blamed
from alignup.topology_manager.scope import TOPOLOGY_AFFINITY_ERROR
from inputs.machines import GIBI, machine_of

if TYPE_CHECKING:
    from collections.abc import Collection

PAGES = "hugepages-1Gi"
GPU, NIC = "example.com/gpu", "example.com/nic"
# How the memory manager itself refuses, with a type and the amounts.
SHORTAGE = r"set of NUMA nodes (?:that includes .*)?has enough (\S+): (.*)"


def pod_of(uid: str, amounts: dict[str, int], names: Collection[str]) -> Pod:
    """Return a pod that asks for those of the wanted amounts that are named, memory in GiB."""
    kept = {name: amount for name, amount in amounts.items() if amount and name in names}
    memory = tuple((name, kept[name] * GIBI) for name in (PAGES, "memory") if name in kept)
    devices = tuple((name, kept[name]) for name in (GPU, NIC) if name in kept)
    asks = {"exclusive_cpus": kept.get("cpu", 0), "memory": memory, "devices": devices}
    return Pod(uid, uid, containers=(Container("c0", **asks),), qos=QOSClass.GUARANTEED, **asks)


def devices_of(name: str, near: list[int | None]) -> list[dict[str, Any]]:
    return [{"id": f"{name}{index}", "numa": node} for index, node in enumerate(near)]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node of up to 3 NUMA nodes that holds some pods."""
    count = draw(st.integers(1, 3))
    machine = machine_of(count, 2)
    for numa_node in machine["numaNodes"]:
        numa_node["hugepages"] = {"1Gi": draw(st.integers(0, 6))}
        numa_node["memory"] = draw(st.integers(8, 16)) * GIBI

    near = st.lists(st.none() | st.integers(0, count - 1), max_size=4)
    node = Node.from_dict(
        {
            "machine": machine,
            "kubelet": {
                "topologyManagerPolicy": draw(st.sampled_from(["restricted", "single-numa-node"])),
                "topologyManagerScope": draw(st.sampled_from(["container", "pod"])),
                "cpuManagerPolicy": "static",
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            },
            "devices": {GPU: devices_of("g", draw(near)), NIC: devices_of("n", draw(near))},
        }
    )
    for number in range(draw(st.integers(0, 3))):
        node.admit(pod_of(f"old{number}", draw(wishes()), (*("cpu", "memory"), PAGES, GPU, NIC)))

    return node


def wishes() -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries(
        {
            "cpu": st.integers(0, 9),
            "memory": st.integers(0, 20),
            PAGES: st.integers(0, 8),
            GPU: st.integers(0, 3),
            NIC: st.integers(0, 3),
        }
    )


def is_refused(node: Node, amounts: dict[str, int], names: Collection[str]) -> bool:
    """Return whether the policy refuses a pod that asks for these only.

    The node stays as it was.
    """
    admission = node.admit(pod_of("probe", amounts, names))
    if admission:
        node.remove("probe")
    return admission.reason == TOPOLOGY_AFFINITY_ERROR


@given(nodes(), wishes())
def test_every_resource_that_is_blamed_is_a_cause(node: Node, amounts: dict[str, int]) -> None:
    """Together they are refused; either each alone is, or none of them could be left out."""
    admission = node.admit(pod_of("p", amounts, amounts))
    if admission.reason != TOPOLOGY_AFFINITY_ERROR:
        return

    assert admission.refusal is not None
    names = [name for offer in blamed(admission.refusal) for name in offer.resources]

    assert names
    assert is_refused(node, amounts, names)
    if not all(is_refused(node, amounts, [name]) for name in names):
        for name in names:
            assert not is_refused(node, amounts, [kept for kept in names if kept != name]), name

    sentence = re.sub(r"\(.*?\)", "", admission.message)
    named_resources = {name for name in ("memory", PAGES, GPU, NIC, "cpu") if name in sentence}
    assert named_resources
    assert named_resources <= set(names), sentence


@given(nodes(), wishes())
def test_a_shortage_names_the_types_that_are_short(node: Node, amounts: dict[str, int]) -> None:
    """Where the memory manager itself refuses, a type that fits is not named.

    Not, that is, beside one that never could.
    """
    memory = {name: amounts[name] for name in ("memory", PAGES)}
    admission = node.admit(pod_of("p", memory, memory))
    shortage = re.search(SHORTAGE, admission.message)
    if shortage is None:
        return

    first_type, account = shortage.groups()
    named_types = [name for name in memory if re.search(rf"(^|; ){name}: \d", account)]
    named_types = named_types or [first_type]

    # the policy may refuse a type alone that some nodes together could supply
    short_types = [
        name
        for name in memory
        if memory[name] and re.search(SHORTAGE, message_for(node, memory, name))
    ]
    assert named_types
    assert set(named_types) <= set(short_types) or not short_types


def message_for(node: Node, amounts: dict[str, int], name: str) -> str:
    """Return what a pod that asks for this only is refused with, empty if it is not.

    The node stays as it was.
    """
    admission = node.admit(pod_of("probe", amounts, [name]))
    if admission:
        node.remove("probe")
    return admission.message


def test_two_types_that_different_nodes_could_supply_are_both_named() -> None:
    """NUMA node 0, the only one with enough pages, may not be combined.

    Memory alone the policy refuses.
    """
    machine = machine_of(3, 2)
    for numa_node, (memory, pages) in zip(
        machine["numaNodes"], ((11, 2), (9, 1), (8, 0)), strict=True
    ):
        numa_node |= {"memory": memory * GIBI, "hugepages": {"1Gi": pages}}

    kubelet = {
        "topologyManagerPolicy": "single-numa-node",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    node = Node.from_dict({"machine": machine, "kubelet": kubelet})
    assert node.admit(pod_of("old", {"memory": 3}, ["memory"]))
    message = node.admit(pod_of("p", {"memory": 9, PAGES: 2}, ["memory", PAGES])).message
    assert re.search(rf"has enough memory: {PAGES}: 2Gi asked, .*; memory: 9Gi asked, ", message)
