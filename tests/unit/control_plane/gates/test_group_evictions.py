"""Who is evicted for a group: nobody, unless all members have places then."""

from __future__ import annotations

import json
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates import group_evictions as module
from alignup.control_plane.gates.decisions import Plan
from alignup.control_plane.gates.preemption import Preemption
from inputs.evictions import bound, budget, keeper_of
from inputs.waiting_pods import GATED_READER, gated_object, idle_member, member, waiting_pod
from inputs.watched_objects import description, pod_object, report

if TYPE_CHECKING:
    from alignup.control_plane.gates.keeper import Keeper


def come(keeper: Keeper, *manifests: dict[str, Any]) -> int:
    """Let members come; return how many get places."""
    for manifest in manifests:
        keeper.pod_seen(GATED_READER.decode(json.dumps(manifest).encode()), 1)
    return sum(isinstance(decision, Plan) for decision in keeper.decide(1))


def gang(size: int, **fields: Any) -> list[dict[str, Any]]:
    return [member(f"m{number}", size, **{"priority": 5, **fields}) for number in range(size)]


def planned(keeper: Keeper, budgets: Any = (), now: float = 10) -> list[str] | None:
    """Return who goes for the group; None: nobody, as that would not help."""
    eviction = Preemption(keeper).plan(budgets, now)
    if eviction is None:
        return None
    return sorted(victim.pod.name for victim in eviction.victims)


def end(keeper: Keeper, name: str, now: float = 2) -> None:
    """Let a pod end, as the API server and its node say."""
    uid = f"uid-{name}"
    node = keeper.state.pods[uid].node
    holder = keeper.state.members[node].node.copy()
    holder.remove(uid)
    keeper.pod_gone(uid, now)
    told = report(node, described=description(), holdings=holder)
    keeper.state.report_seen(told, now)
    keeper.reported([node])


def full(*names: str, **fields: Any) -> dict[str, list[Any]]:
    """Return full nodes: on each a pod of three CPUs and one of four."""
    return {
        name: [bound(f"{name}{cpus}", name, cpu=cpus, **fields) for cpus in (3, 4)]
        for name in names
    }


def test_as_many_go_as_members_lack_places() -> None:
    keeper = keeper_of({**full("a", "b"), "c": []})
    assert come(keeper, *gang(3, cpu=4)) == 0
    assert planned(keeper) == ["a4", "b4"]


def test_nobody_goes_where_not_all_members_would_have_places() -> None:
    keeper = keeper_of({**full("a", "b"), "c": []})
    come(keeper, *gang(4, cpu=4))
    assert planned(keeper) is None


def test_who_can_stay_once_another_one_goes_stays() -> None:
    """For the first member x would go, which has all of its NUMA node, for both of them y alone."""
    keeper = keeper_of({"a": [bound("x", "a", cpu=3), bound("y", "a", cpu=3)]})
    come(keeper, *gang(2, cpu=2))
    assert planned(keeper) == ["y"]


@pytest.mark.parametrize(
    "manifests",
    [
        gang(2, cpu=4, priority=0),
        gang(2, cpu=4, spec={"preemptionPolicy": "Never"}),
        [*gang(3, cpu=4)[:2]],
        [member("m0", 2, cpu=4, priority=5), member("m1", 2, cpu=4, priority=0)],
    ],
    ids=["not more important", "never", "incomplete", "one less important"],
)
def test_nobody_goes_for_a_group_that_may_not_evict_or_is_not_ready(manifests) -> None:
    keeper = keeper_of(full("a", "b"))
    come(keeper, *manifests)
    assert planned(keeper) is None


def test_members_of_other_groups_stay() -> None:
    pod = pod_object("x", "a", cpu=4)
    pod["metadata"] |= {
        "labels": {"alignup.dev/group": "other"},
        "annotations": {"alignup.dev/group-size": "2"},
    }
    keeper = keeper_of({"a": [GATED_READER.decode(json.dumps(pod).encode())], "b": []})
    come(keeper, *gang(2, cpu=4))
    assert planned(keeper) is None


def test_budgets_hold_for_all_that_go_together() -> None:
    keeper = keeper_of(full("a", "b"))
    come(keeper, *gang(2, cpu=4))
    assert planned(keeper, [budget("one", "a4", 0)]) is None
    assert planned(keeper, [budget("one", "a4", 1), budget("two", "b4", 1)]) == ["a4", "b4"]


def test_a_member_that_needs_no_place_takes_none() -> None:
    keeper = keeper_of(full("a"))
    come(keeper, idle_member("launcher", 2), member("m0", 2, cpu=4, priority=5))
    assert planned(keeper) == ["a4"]


def test_what_they_free_is_kept_for_the_group_until_it_has_its_places() -> None:
    keeper = keeper_of(full("a", "b"))
    come(keeper, *gang(2, cpu=4))
    preemption = Preemption(keeper)
    assert preemption.has_candidates(10)
    eviction = preemption.plan([], 10)
    assert eviction is not None
    assert set(eviction.nodes) == {"a", "b"}
    assert not preemption.has_candidates(11)

    keeper.pod_seen(waiting_pod("small", cpu=1, priority=4), 11)
    end(keeper, "a4", 12)
    assert keeper.decide(12) == []
    end(keeper, "b4", 13)
    plans = [decision for decision in keeper.decide(13) if isinstance(decision, Plan)]
    assert {plan.node for plan in plans} == {"a", "b"}
    preemption.candidates(14)
    assert preemption.under_way == {}
    keeper.decide(15)
    assert keeper.kept.owners() == []


def test_a_plan_that_failed_is_made_again_later_and_its_nodes_are_free() -> None:
    keeper = keeper_of(full("a", "b"))
    come(keeper, *gang(2, cpu=4))
    preemption = Preemption(keeper)
    eviction = preemption.plan([], 10)
    assert eviction is not None
    preemption.failed(eviction, 11)
    assert keeper.kept.owners() == []
    assert not preemption.has_candidates(12)
    assert preemption.plan([], 17) == eviction


def test_who_is_more_important_comes_first() -> None:
    keeper = keeper_of(full("a", "b"))
    come(keeper, *gang(2, cpu=4), gated_object("single", cpu=4, priority=6))
    preemption = Preemption(keeper)
    first = preemption.plan([], 10)
    assert first is not None
    assert first.pod.watched.pod.name == "single"
    assert preemption.plan([], 10) is None  # one node is kept for that one


def drawn(seed: int) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """Return nodes with pods of which some may go, and a group."""
    random = Random(seed)
    nodes: dict[str, list[Any]] = {}
    for name in "abc"[: random.randint(1, 3)]:
        rest = [3, 4]
        sizes = []
        for _ in range(random.randint(0, 3)):
            cpus = random.randint(1, 3)
            if cpus <= max(rest):
                rest[rest.index(min(left for left in rest if left >= cpus))] -= cpus
                sizes.append(cpus)
        # the largest ones first, as they are all admitted then
        nodes[name] = [
            bound(f"{name}{number}", name, cpu=cpus, priority=random.choice((0, 0, 1, 9)))
            for number, cpus in enumerate(sorted(sizes, reverse=True))
        ]
    return nodes, gang(random.randint(2, 3), cpu=random.randint(1, 4))


def drawn_of_two_kinds(seed: int) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """Return nodes with pods of which some may go, and a group whose members differ."""
    random = Random(seed)
    nodes, group = drawn(seed)
    sizes = [random.randint(1, 4) for _ in group]
    sizes[0] = 5 - sizes[1]  # differs from that
    members = [
        member(f"m{number}", len(sizes), cpu=cpus, priority=5) for number, cpus in enumerate(sizes)
    ]
    return nodes, members


def fits_without(nodes: dict[str, list[Any]], group: list[dict[str, Any]], names: Any) -> bool:
    """Return whether a group gets its places once some pods are gone."""
    keeper = keeper_of(nodes)
    for name in names:
        end(keeper, name)
    return come(keeper, *group) == len(group)


@pytest.mark.parametrize("seed", range(60))
def test_plans_are_those_of_brute_force(seed) -> None:
    """Somebody goes exactly where that lets all members in, and no more than one too many."""
    nodes, group = drawn(seed)
    keeper = keeper_of(nodes)
    if come(keeper, *group):
        assert planned(keeper) is None
        return

    victims = planned(keeper)
    may_go = [pod.pod.name for pods in nodes.values() for pod in pods if pod.priority < 5]
    sizes = [
        size
        for size in range(len(may_go) + 1)
        if any(fits_without(nodes, group, names) for names in combinations(may_go, size))
    ]
    assert (victims is None) is (not sizes)
    if victims is not None:
        assert set(victims) <= set(may_go)
        assert fits_without(nodes, group, victims)
        assert len(victims) <= sizes[0] + 1


def test_for_members_that_differ_pods_go_where_all_of_them_get_places() -> None:
    keeper = keeper_of(full("a", "b"))
    come(keeper, member("m0", 2, cpu=4, priority=5), member("m1", 2, cpu=3, priority=5))
    eviction = Preemption(keeper).plan([], 10)
    assert eviction is not None
    assert len(eviction.victims) == 2
    for victim in eviction.victims:
        end(keeper, victim.pod.name, 12)
    plans = [decision for decision in keeper.decide(13) if isinstance(decision, Plan)]
    assert {plan.node for plan in plans} == set(eviction.nodes)


@pytest.mark.parametrize("seed", range(80))
def test_for_members_that_differ_who_goes_goes_for_all_of_them(seed) -> None:
    """Nobody goes in vain, and no more than one too many.

    Where pods could go some do: here always, and in all but 11 of the first 1,500 seeds.
    """
    nodes, group = drawn_of_two_kinds(seed)
    keeper = keeper_of(nodes)
    if come(keeper, *group):
        return

    may_go = [pod.pod.name for pods in nodes.values() for pod in pods if pod.priority < 5]
    sizes = [
        size
        for size in range(1, len(may_go) + 1)
        if any(fits_without(nodes, group, names) for names in combinations(may_go, size))
    ]
    eviction = Preemption(keeper).plan([], 10)
    assert (eviction is None) is (not sizes)
    if eviction is None:
        return

    names = sorted(victim.pod.name for victim in eviction.victims)
    assert set(names) <= set(may_go)
    assert len(names) <= sizes[0] + 1
    for name in names:
        end(keeper, name, 12)
    assert sum(isinstance(decision, Plan) for decision in keeper.decide(13)) == len(group)


def test_a_node_is_looked_through_again_only_after_a_member_came_there(monkeypatch) -> None:
    looks = []
    fewest = module.fewest_victims
    monkeypatch.setattr(module, "fewest_victims", lambda *about: looks.append(1) or fewest(*about))
    names = [f"n{number}" for number in range(8)]
    keeper = keeper_of(full(*names))
    come(keeper, *gang(8, cpu=4))
    assert planned(keeper) == sorted(f"{name}4" for name in names)
    assert len(looks) <= 2 * len(names)
