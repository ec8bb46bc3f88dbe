"""Tables of an explanation: what is equal is told once, sums add up, and amounts have one unit."""

from __future__ import annotations

from typing import Any

import pytest

from alignup import explain
from alignup.explanations.explanation import Holder, PlacePart, ResourcePart
from alignup.explanations.words import (
    group_in_words,
    nodes_in_short,
    offered_in_words,
    resource_rows,
    shared_pool_notes,
)
from alignup.machine.cpuset import CPUSet
from alignup.node import Node
from alignup.node.holdings import MemoryGroup
from alignup.topology_manager.refusal_message import ResourceView
from inputs.machines import machine_of

GIBI = 1 << 30


def rows(
    resource: str, places: list[PlacePart], amount: int = 1, first: frozenset[str] = frozenset()
) -> list[tuple[str, ...]]:
    return list(resource_rows([ResourcePart(resource, "c", "p", amount, tuple(places))], first))


def test_equal_places_are_told_once_and_empty_ones_not_at_all() -> None:
    places = [
        PlacePart((0,), 1, 0, 1),
        PlacePart((2,), 1, 0, 1),
        PlacePart((), 1, 0, 1),
        PlacePart((3,), 0, 0, 0),
        PlacePart((0, 1), 1, 0, 0),
        PlacePart((4,), 2, 0, 0),
    ]
    assert [row[3] for row in rows("a/b", places)] == ["each of 0, 2", "none", "0+1", "4"]


def test_amounts_of_a_resource_have_one_unit() -> None:
    [row] = rows("memory", [PlacePart((0,), 4 * GIBI, 0, GIBI // 2)], GIBI)
    assert (row[1], row[4], row[6]) == ("1Gi", "4Gi", "0.5Gi")
    [row] = rows("cpu", [PlacePart((0,), 4, 0, 0)], 2)
    assert (row[1], row[4], row[6]) == ("2", "4", "0")


def test_holders_in_words() -> None:
    holders = (Holder("d/p", "i", 4), Holder("d/p", "c", 6, 4), Holder("d/p", "e", 2, 2))
    [row] = rows("cpu", [PlacePart((0,), 8, 0, 2, holders)])
    assert row[7] == "d/p/i 4, d/p/c 6 (4 of them reused), d/p/e 2 (reused)"
    [row] = rows("cpu", [PlacePart((0,), 8, 0, 2, holders * 2)])
    assert row[7].endswith("d/p/i 4, 2 more")


def test_pods_to_remove_are_named_before_others_and_never_counted() -> None:
    holders = tuple(Holder(f"d/p{number}", "c", 1) for number in range(8))
    [row] = rows("cpu", [PlacePart((0,), 8, 0, 0, holders)], first=frozenset({"d/p6"}))
    assert row[7] == "d/p6/c 1, d/p0/c 1, d/p1/c 1, d/p2/c 1, 4 more"
    [row] = rows(
        "cpu",
        [PlacePart((0,), 8, 0, 0, holders)],
        first=frozenset(f"d/p{number}" for number in range(2, 8)),
    )
    assert row[7] == ", ".join([*(f"d/p{number}/c 1" for number in range(2, 8)), "2 more"])


def test_offers_in_words() -> None:
    def words(
        preferred: Any = (), worse: Any = (), *, anywhere: bool = False, is_whole: bool = True
    ) -> str:
        view = ResourceView(
            "x", preferred, worse, anywhere, len(preferred), len(worse), "", is_whole
        )
        return offered_in_words(ResourcePart("x", "c", "p", 1, (), view))

    assert words(((0,), (1,)), ((0, 1),)) == "0 or 1; 0+1 (not preferred)"
    assert words(anywhere=True) == "any"
    assert words() == "none"
    sets = tuple((number,) for number in range(7))
    assert words(sets[:4]) == "0 or 1 or 2 or 3"
    assert words(sets) == "0 or 1 or 2 or 3 or 3 more"
    assert words(sets, is_whole=False) == "0 or 1 or 2 or 3 or others"
    assert offered_in_words(ResourcePart("memory", "c", "", 1)) == "not pinned to NUMA nodes here"


def test_nodes_and_memory_groups_in_words() -> None:
    assert [nodes_in_short(numa_nodes) for numa_nodes in (None, (1,), (0, 2))] == [
        "any NUMA node",
        "NUMA node 1",
        "NUMA nodes 0+2",
    ]

    assert group_in_words(MemoryGroup((0,), ("a", "b"))) == (
        "NUMA node 0 is not combined with others for memory, because of the memory of a, b"
    )
    assert group_in_words(MemoryGroup((0, 1), ("a",))) == (
        "NUMA nodes 0+1 supply memory only together, because of the memory of a"
    )

    assert group_in_words(MemoryGroup((0, 1), (), usable=False)) == (
        "NUMA nodes 0+1 can no longer supply memory together, although they are still "
        "tied by a binding that a removed pod left behind"
    )


def test_reserved_free_and_held_add_up_though_init_containers_hand_over() -> None:
    devices = {"a/b": [{"id": f"d{number}", "numa": number % 2} for number in range(4)]}
    kubelet = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    node = Node.from_dict({"machine": machine_of(2, 8), "kubelet": kubelet, "devices": devices})

    def container(name: str, cpus: int, count: int) -> dict[str, Any]:
        return {
            "name": name,
            "resources": {"limits": {"cpu": str(cpus), "memory": "1Gi", "a/b": str(count)}},
        }

    spec = {
        "initContainers": [container("i", 6, 2)],
        "containers": [container("c", 3, 1), container("e", 5, 1)],
    }
    assert node.admit({"metadata": {"name": "p"}, "spec": spec})

    explanation = explain(
        node, {"metadata": {"name": "q"}, "spec": {"containers": [container("c", 1, 1)]}}
    )

    reused = 0
    for part in explanation.resources:
        for place in part.places:
            held_amount = sum(holder.amount - holder.reused for holder in place.holders)
            reused += sum(holder.reused for holder in place.holders)
            assert place.capacity == place.reserved + place.free + held_amount, part.resource

    assert reused
    assert "reused" in str(explanation.to_dict()["resources"])


STRICT = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}


def pool_node(version: str = "1.37", **fields: Any) -> Node:
    """Return a node of 8 CPUs of which 0 is reserved."""
    kubelet = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", **fields}
    machine = machine_of(2, 2)
    return Node.from_dict({"machine": machine, "kubelet": kubelet, "kubeletVersion": version})


def pod_of(name: str, cpu: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    limits = amounts if cpu.isdigit() else {}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": limits}}
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.31", "leaves them out, from 1.32 on"),
        ("1.32", "(alpha in 1.32, feature gate CPUManagerPolicyAlphaOptions)"),
        ("1.34", "(beta in 1.34, feature gate CPUManagerPolicyBetaOptions)"),
        ("1.37", "the option strict-cpu-reservation of the CPU manager leaves them out"),
    ],
)
def test_a_pod_of_the_shared_pool_is_told_that_it_runs_on_reserved_cpus(version, words) -> None:
    (note,) = explain(pool_node(version), pod_of("a", "500m")).notes
    assert "run on CPUs 0-7, the reserved 0 included" in note
    assert note.endswith(words)
    assert explain(pool_node(version), pod_of("a", "2")).notes == ()


def test_reserved_cpus_that_are_counted_are_named_too() -> None:
    node = pool_node(reservedSystemCPUs="", systemReserved={"cpu": "2"})
    (note,) = explain(node, pod_of("a", "500m")).notes
    assert "the reserved 0,4 included" in note


def test_with_the_option_reserved_cpus_are_not_in_the_pool() -> None:
    (note,) = explain(pool_node(**STRICT), pod_of("a", "500m")).notes
    assert note.endswith("run on CPUs 1-7, without the reserved 0 (strict-cpu-reservation)")


def test_that_the_pool_is_empty_is_said_of_whoever_comes() -> None:
    node = pool_node(**STRICT)
    explanation = explain(node, pod_of("big", "7"))
    assert "the shared pool is empty" in explanation.notes[0]
    assert "default cpuset cannot be empty" in explanation.notes[0]
    assert "reserve them without strict-cpu-reservation" in explanation.notes[1]
    assert explanation.to_dict()["notes"] == list(explanation.notes)

    assert node.admit(pod_of("big", "7"))
    assert explain(node, pod_of("small", "500m")).notes == explanation.notes
    assert explain(node, pod_of("next", "1")).notes == ()  # it is refused

    # what is said to help does
    plain = pool_node()
    assert plain.admit(pod_of("big", "7"))
    assert plain.shared_cpus == CPUSet([0])


def test_without_a_static_policy_there_is_no_pool() -> None:
    node = pool_node(cpuManagerPolicy="none")
    assert shared_pool_notes(node, node.shared_cpus, is_used=True) == ()
    assert explain(node, pod_of("a", "500m")).notes == ()
