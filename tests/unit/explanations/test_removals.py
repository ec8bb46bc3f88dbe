"""The pods whose removal makes room: the smallest set up to two, then greedily."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import Node, explain
from alignup.explanations import removals
from alignup.explanations.removals import NO_NUMA_NODE, possible_pairs
from inputs.refusals import GPU, by_kind, gpu_pod, node_of, refusals, wish
from inputs.strategies import counts

if TYPE_CHECKING:
    from collections.abc import Iterable

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


@pytest.mark.parametrize(
    ("bound", "value", "is_minimal"),
    [
        ("MOST_PAIRED", 3, True),
        ("MOST_PAIRED", 2, False),
        ("MOST_PAIRS_TRIED", 1, True),
        ("MOST_PAIRS_TRIED", 0, False),
    ],
)
def test_pairs_are_tried_up_to_a_number_of_pods_and_of_pairs(
    bound: str, value: int, is_minimal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, bound, value)
    node = node_of(topologyManagerPolicy="best-effort")
    for uid in "abc":
        assert node.admit(gpu_pod(uid, cpu="5"))
    [suggestion] = by_kind(node, gpu_pod("x", cpu="10"))["remove"]
    assert suggestion.minimal is is_minimal


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


@pytest.mark.parametrize("seed", [595, 669, 756, 870, 1547, 1579])
def test_of_many_pods_none_can_stay(seed: int) -> None:
    """Nodes on which pods stand in an order by size that need not go."""
    random = Random(seed)
    policies = ["single-numa-node", "restricted", "best-effort", "none"]
    node = node_of(
        nodes=random.choice([1, 2, 4]), cores=8, topologyManagerPolicy=random.choice(policies)
    )
    for number in range(random.randint(4, 14)):
        cpus = str(random.randint(1, 3))
        node.admit(gpu_pod(f"p{number}", cpu=cpus, gpus=random.choice([0, 0, 1])))

    new = gpu_pod("x", cpu=str(random.randint(6, 30)), gpus=random.choice([0, 1, 2, 3]))
    greedy = [suggestion for suggestion in by_kind(node, new)["remove"] if not suggestion.minimal]
    assert greedy
    for suggestion in greedy:
        removed = suggestion.attempt["remove"]
        assert admits_without(node, new, removed)
        assert not any(
            admits_without(node, new, fewer) for fewer in combinations(removed, len(removed) - 1)
        )


def admits_without(node: Node, manifest: dict[str, Any], uids: Iterable[str]) -> bool:
    """Return whether a node admits a pod once these are gone."""
    copy = node.copy()
    for uid in uids:
        copy.remove(uid)
    return copy.try_admit(manifest).admitted


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


def with_init(uid: str, init: dict[str, str], app: dict[str, str], **more: str) -> dict[str, Any]:
    """Return a Guaranteed pod of an init container and one after it."""
    containers = [
        {"name": name, "image": "i", "resources": {"limits": {"memory": "100Mi", **amounts}}}
        for name, amounts in (("setup", init), ("app", app))
    ]
    containers[0].update(more)
    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"initContainers": containers[:1], "containers": containers[1:]},
    }


def small_node() -> Node:
    """Return a node of 8 CPUs, of which one is reserved, and 4 GPUs."""
    cores = [{"cpus": [cpu], "socket": 0} for cpu in range(8)]
    kubelet = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    return Node.from_dict(
        {
            "machine": {"numaNodes": [{"id": 0, "memory": 1 << 34, "cores": cores}]},
            "kubelet": {"topologyManagerPolicy": "single-numa-node", **kubelet},
            "devices": {GPU: [{"id": f"g{number}", "numa": 0} for number in range(4)]},
        }
    )


def test_cpus_that_an_ended_init_container_keeps_are_told_with_its_pod() -> None:
    node = small_node()
    for number in range(3):
        assert node.admit(with_init(f"web-{number}", {"cpu": "2"}, {"cpu": "1"}))

    explanation = explain(node, wish("x", cpu="2"))
    assert explanation.cause.startswith("not enough cpu is free: 2 asked, 1 free; init containers ")
    assert "keep 3 CPUs, also once they have ended" in explanation.cause
    assert "setup of default/web-0, setup of default/web-1, setup" in explanation.cause
    [suggestion] = [made for made in explanation.suggestions if made.kind == "remove"]
    assert suggestion.text == (
        "remove pod default/web-0, which holds 2 CPUs (init container setup 2 CPUs, container "
        "app 1 CPU of these)"
    )


def test_devices_that_an_init_container_keeps_are_told_too() -> None:
    node = small_node()
    for uid in ("a", "b"):
        assert node.admit(with_init(uid, {"cpu": "1", GPU: "2"}, {"cpu": "1", GPU: "1"}))
    assert f"keep 2 {GPU}, also once" in explain(node, wish("x", cpu="1", **{GPU: "1"})).cause


def test_a_sidecar_and_one_that_hands_all_on_keep_nothing() -> None:
    node = small_node()
    assert node.admit(with_init("a", {"cpu": "3"}, {"cpu": "3"}))
    assert node.admit(with_init("b", {"cpu": "2"}, {"cpu": "1"}, restartPolicy="Always"))
    explanation = explain(node, wish("x", cpu="5"))
    assert "init containers keep" not in explanation.cause
    texts = [made.text for made in explanation.suggestions if made.kind == "remove"]
    assert texts
    assert all("init container setup 2" not in text for text in texts)
    # what never fits is not told so
    assert "init containers keep" not in explain(node, wish("y", cpu="9")).cause


def test_the_container_is_named_where_a_pod_has_several() -> None:
    node = small_node()
    manifest = with_init("a", {"cpu": "1"}, {"cpu": "4"})
    manifest["spec"]["containers"] += manifest["spec"].pop("initContainers")
    assert node.admit(manifest)
    [suggestion] = by_kind(node, wish("x", cpu="4"))["remove"]
    assert suggestion.text.endswith("holds 5 CPUs (container app 4 CPUs, container setup 1 CPU)")
