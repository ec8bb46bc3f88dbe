"""The pods whose removal makes room: the smallest set up to two, then greedily."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.explanations.removals import NO_NUMA_NODE, possible_pairs
from inputs.refusals import by_kind, gpu_pod, node_of, refusals
from inputs.strategies import counts

if TYPE_CHECKING:
    from alignup.node import Node

NODES = (0, 3, NO_NUMA_NODE)


def test_the_smallest_set_of_pods_to_remove() -> None:
    """By number, then by CPUs."""
    node = node_of()
    for uid, cpus in (("a", 3), ("b", 5), ("c", 4), ("d", 2)):
        assert node.admit(gpu_pod(uid, cpu=str(cpus)))
    [one] = by_kind(node, gpu_pod("x", cpu="4"))["remove"]

    assert one.minimal is True
    assert len(one.attempt["remove"]) == 1
    assert one.attempt["remove"] == smallest(node, gpu_pod("x", cpu="4"))


def smallest(node: Node, wanted: dict[str, Any], held: dict[str, int] | None = None) -> list[str]:
    """Return the smallest set of up to two pods, by number and CPUs, found by trying all of them."""
    cpus = held or {pod.uid: pod.exclusive_cpus for pod in node.pods}
    sets = [*combinations(cpus, 1), *combinations(cpus, 2)]
    for some in sorted(sets, key=lambda one: (len(one), sum(map(cpus.__getitem__, one)))):
        other = node.copy()
        for uid in some:
            other.remove(uid)
        if other.try_admit(wanted):
            return list(some)
    return []


def test_pairs_are_found_as_by_trying_all() -> None:
    node = node_of(cores=8)
    for number in range(14):
        assert node.admit(gpu_pod(f"p{number}", cpu=str(1 + number % 3)))
    for cpus in (5, 6, 7):
        wanted = gpu_pod("x", cpu=str(cpus))
        expected = smallest(node, wanted)
        found = by_kind(node, wanted).get("remove")
        if not expected or found is None:
            continue
        assert len(found[0].attempt["remove"]) == len(expected)
        assert found[0].minimal is True


def test_many_pods_are_removed_greedily() -> None:
    node = node_of()
    for number in range(16):
        assert node.admit(gpu_pod(f"p{number}", cpu="1"))
    [one] = by_kind(node, gpu_pod("x", cpu="8"))["remove"]

    assert (one.minimal, len(one.attempt["remove"])) == (False, 8)


def test_the_largest_holders_go_first() -> None:
    """On one NUMA node, four pods of two CPUs, and not eight of one."""
    node = node_of(nodes=1, cores=8)
    for number in range(12):
        assert node.admit(gpu_pod(f"p{number}", cpu=str(1 + number % 3 // 2)))
    [one] = by_kind(node, gpu_pod("x", cpu="8"))["remove"]

    cpus = {pod.uid: pod.exclusive_cpus for pod in node.pods}
    assert (one.minimal, [cpus[uid] for uid in one.attempt["remove"]]) == (False, [2, 2, 2, 2])


@pytest.mark.parametrize("count", counts(30, 600))
def test_no_smaller_set_would_do_and_none_with_fewer_cpus(count: int) -> None:
    """Against all sets of up to two pods, on random nodes."""
    compared = 0
    for story, wanted, explanation in refusals(11, count):
        for one in explanation.suggestions:
            if one.kind != "remove":
                continue
            node = story.now()
            held = {pod.uid: held_cpus(node, pod.uid) for pod in node.pods}
            expected = smallest(node, wanted, held)
            removed = one.attempt["remove"]
            if one.minimal:
                assert (len(removed), sum(map(held.__getitem__, removed))) == (
                    len(expected),
                    sum(map(held.__getitem__, expected)),
                )
            else:
                assert expected == []

            compared += 1

    assert compared > count // 12


def held_cpus(node: Node, uid: str) -> int:
    """Return how many CPUs a pod holds for itself."""
    pod = node.manager.pod(uid)
    found: set[int] = set()
    for one in pod.all_containers:
        found |= set(node.allocation(uid, one.name).cpus or ())
    return len(found)


AMOUNTS = st.fixed_dictionaries({node: st.integers(0, 4) for node in NODES})
POD = st.fixed_dictionaries({"cpu": AMOUNTS, "gpu": AMOUNTS})


@given(
    st.lists(POD, max_size=5),
    POD,
    st.lists(
        st.dictionaries(st.sampled_from(["cpu", "gpu", "other"]), st.integers(0, 9), max_size=3),
        min_size=1,
        max_size=2,
    ),
    st.booleans(),
)
def test_pairs_are_those_that_a_walk_finds(
    held: list, free: dict, asked: list, on_one_node: bool
) -> None:
    def fits(one: dict, other: dict, container: dict) -> bool:
        nodes = set(NODES)
        for resource, amount in container.items():
            if resource not in free:
                continue
            there = {
                node: free[resource][node] + one[resource][node] + other[resource][node]
                for node in NODES
            }
            if sum(there.values()) < amount:
                return False
            if not free[resource][NO_NUMA_NODE] and not any(
                pod[resource][NO_NUMA_NODE] for pod in held
            ):
                nodes &= {node for node in NODES if there[node] >= amount}

        return bool(nodes) or not on_one_node

    expected = [
        (i, j)
        for i, j in combinations(range(len(held)), 2)
        if all(fits(held[i], held[j], container) for container in asked)
    ]
    assert sorted(possible_pairs(held, free, asked, on_one_node=on_one_node)) == expected
