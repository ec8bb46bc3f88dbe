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
    [suggestion] = by_kind(node, gpu_pod("x", cpu="4"))["remove"]

    assert suggestion.minimal is True
    assert len(suggestion.attempt["remove"]) == 1
    assert suggestion.attempt["remove"] == smallest(node, gpu_pod("x", cpu="4"))


def smallest(
    node: Node, manifest: dict[str, Any], cpus_by_pod: dict[str, int] | None = None
) -> list[str]:
    """Return the smallest set of up to two pods, by number and CPUs.

    It is found by trying all of them.
    """
    cpus = cpus_by_pod or {pod.uid: pod.exclusive_cpus for pod in node.pods}
    sets = [*combinations(cpus, 1), *combinations(cpus, 2)]
    for uids in sorted(sets, key=lambda uids: (len(uids), sum(map(cpus.__getitem__, uids)))):
        emptier_node = node.copy()
        for uid in uids:
            emptier_node.remove(uid)
        if emptier_node.try_admit(manifest):
            return list(uids)
    return []


def test_pairs_are_found_as_by_trying_all() -> None:
    node = node_of(cores=8)
    for number in range(14):
        assert node.admit(gpu_pod(f"p{number}", cpu=str(1 + number % 3)))
    for cpus in (5, 6, 7):
        manifest = gpu_pod("x", cpu=str(cpus))
        expected = smallest(node, manifest)
        suggestions = by_kind(node, manifest).get("remove")
        if not expected or suggestions is None:
            continue
        assert len(suggestions[0].attempt["remove"]) == len(expected)
        assert suggestions[0].minimal is True


def test_a_pair_may_make_room_on_several_numa_nodes() -> None:
    node = node_of(topologyManagerPolicy="best-effort")
    for uid in "abc":
        assert node.admit(gpu_pod(uid, cpu="5"))
    [suggestion] = by_kind(node, gpu_pod("x", cpu="10"))["remove"]

    assert (suggestion.minimal, len(suggestion.attempt["remove"])) == (True, 2)


def test_many_pods_are_removed_greedily() -> None:
    node = node_of()
    for number in range(16):
        assert node.admit(gpu_pod(f"p{number}", cpu="1"))
    [suggestion] = by_kind(node, gpu_pod("x", cpu="8"))["remove"]

    assert (suggestion.minimal, len(suggestion.attempt["remove"])) == (False, 8)


def test_the_largest_holders_go_first() -> None:
    """On one NUMA node, four pods of two CPUs, and not eight of one."""
    node = node_of(nodes=1, cores=8)
    for number in range(12):
        assert node.admit(gpu_pod(f"p{number}", cpu=str(1 + number % 3 // 2)))
    [suggestion] = by_kind(node, gpu_pod("x", cpu="8"))["remove"]

    cpus = {pod.uid: pod.exclusive_cpus for pod in node.pods}
    assert (suggestion.minimal, [cpus[uid] for uid in suggestion.attempt["remove"]]) == (
        False,
        [2, 2, 2, 2],
    )


@pytest.mark.parametrize("count", counts(30, 600))
def test_no_smaller_set_would_do_and_none_with_fewer_cpus(count: int) -> None:
    """Against all sets of up to two pods, on random nodes."""
    compared = 0
    for story, manifest, explanation in refusals(11, count):
        for suggestion in explanation.suggestions:
            if suggestion.kind != "remove":
                continue
            node = story.now()
            cpus_by_pod = {pod.uid: held_cpus(node, pod.uid) for pod in node.pods}
            expected = smallest(node, manifest, cpus_by_pod)
            removed = suggestion.attempt["remove"]
            if suggestion.minimal:
                assert (len(removed), sum(map(cpus_by_pod.__getitem__, removed))) == (
                    len(expected),
                    sum(map(cpus_by_pod.__getitem__, expected)),
                )
            else:
                assert expected == []

            compared += 1

    assert compared > count // 12


def held_cpus(node: Node, uid: str) -> int:
    """Return how many CPUs a pod holds for itself."""
    pod = node.manager.pod(uid)
    cpus: set[int] = set()
    for container in pod.all_containers:
        cpus |= set(node.allocation(uid, container.name).cpus or ())
    return len(cpus)


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
    holders: list, free: dict, containers: list, on_one_node: bool
) -> None:
    def fits(first: dict, second: dict, container: dict) -> bool:
        nodes = set(NODES)
        for resource, amount in container.items():
            if resource not in free:
                continue
            amounts = {
                node: free[resource][node] + first[resource][node] + second[resource][node]
                for node in NODES
            }
            if sum(amounts.values()) < amount:
                return False
            if not free[resource][NO_NUMA_NODE] and not any(
                pod[resource][NO_NUMA_NODE] for pod in holders
            ):
                nodes &= {node for node in NODES if amounts[node] >= amount}

        return bool(nodes) or not on_one_node

    expected = [
        (i, j)
        for i, j in combinations(range(len(holders)), 2)
        if all(fits(holders[i], holders[j], container) for container in containers)
    ]
    assert sorted(possible_pairs(holders, free, containers, on_one_node=on_one_node)) == expected
