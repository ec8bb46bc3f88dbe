"""Who is evicted for a pod that waits behind the gate, and what is done with the room."""

from __future__ import annotations

import asyncio
import json
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup.cluster.evictions import admits, without
from alignup.control_plane.gates.decisions import Release
from alignup.control_plane.gates.preemption import Evictor, Preemption
from fakes.api_server import PODS, ApiStub, running, served, until
from inputs.evictions import EMPTY, OWNER, bound, budget, keeper_of
from inputs.waiting_pods import GATED_READER, waiting_pod
from inputs.watched_objects import description, pod_object, report

if TYPE_CHECKING:
    from alignup.control_plane.gates.keeper import Keeper


def waits(keeper: Keeper, name: str = "w", *, since: float = 1, **fields: Any) -> None:
    """Let a pod wait that finds no place."""
    keeper.pod_seen(waiting_pod(name, **fields), since)
    assert not [d for d in keeper.decide(since) if isinstance(d, Release)]


def planned(keeper: Keeper, budgets: Any = (), now: float = 10) -> Any:
    """Return where room is made and who goes for it; None: nobody."""
    eviction = Preemption(keeper).plan(budgets, now)
    if eviction is None:
        return None
    (node,) = eviction.nodes
    return node, [victim.pod.name for victim in eviction.victims]


def test_one_pod_goes_where_one_is_enough() -> None:
    keeper = keeper_of({"a": [bound("x", "a", cpu=3), bound("y", "a", cpu=4)]})
    waits(keeper, cpu=4, priority=1)
    assert planned(keeper) == ("a", ["y"])


def test_the_fewest_and_least_important_ones_go() -> None:
    keeper = keeper_of(
        {
            "a": [bound(f"x{number}", "a", cpu=2) for number in range(3)],
            "b": [bound("y", "b", cpu=4, priority=2), bound("z", "b", cpu=3)],
            "c": [bound("u", "c", cpu=4, priority=3), bound("v", "c", cpu=3)],
        }
    )
    waits(keeper, cpu=4, priority=5)
    assert planned(keeper) == ("b", ["y"])


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 0},
        {"priority": 1, "spec": {"preemptionPolicy": "Never"}},
        {"priority": 1, "spec": {"nodeSelector": {"zone": "none"}}},
        {
            "priority": 1,
            "spec": {
                "topologySpreadConstraints": [
                    {"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone", "maxSkew": 1}
                ]
            },
        },
    ],
)
def test_nobody_goes_for_a_pod_that_may_not_evict_or_would_gain_nothing(fields) -> None:
    keeper = keeper_of({"a": [bound("x", "a", cpu=3), bound("y", "a", cpu=4)]})
    waits(keeper, cpu=4, **fields)
    assert planned(keeper) is None


@pytest.mark.parametrize(
    "node", [{"is_unschedulable": True}, {"taints": [{"key": "a", "effect": "NoSchedule"}]}]
)
def test_nobody_goes_from_a_node_that_the_pod_cannot_go_to(node) -> None:
    keeper = keeper_of({"a": [bound("x", "a", cpu=4)]}, **node)
    waits(keeper, cpu=4, priority=1)
    assert planned(keeper) is None


def test_pods_of_a_node_stay() -> None:
    daemon = [{"kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}]
    keeper = keeper_of({"a": [bound("x", "a", cpu=4, owners=daemon)]})
    waits(keeper, cpu=4, priority=1)
    assert planned(keeper) is None


def test_members_of_a_group_stay() -> None:
    member = pod_object("x", "a", cpu=4)
    member["metadata"] |= {
        "labels": {"alignup.dev/group": "g"},
        "annotations": {"alignup.dev/group-size": "2"},
    }
    keeper = keeper_of({"a": [GATED_READER.decode(json.dumps(member).encode())]})
    waits(keeper, cpu=4, priority=1)
    assert planned(keeper) is None


def test_budgets_are_kept() -> None:
    nodes = {"a": [bound("x", "a", cpu=4)], "b": [bound("y", "b", cpu=4, priority=1)]}
    keeper = keeper_of(nodes)
    waits(keeper, cpu=4, priority=2)
    spent = budget("p", "x", 0)
    assert planned(keeper, [spent]) == ("b", ["y"])

    keeper = keeper_of(nodes)
    waits(keeper, cpu=4, priority=2)
    assert planned(keeper, [spent, budget("q", "y", 0)]) is None

    keeper = keeper_of(nodes)
    waits(keeper, cpu=4, priority=2)
    assert planned(keeper, [budget("p", "x", 1)]) == ("a", ["x"])


def test_it_is_waited_for_what_leaves_already() -> None:
    keeper = keeper_of({"a": [bound("x", "a", cpu=4)], "b": [bound("y", "b", cpu=4, leaving=True)]})
    waits(keeper, cpu=4, priority=1)
    assert planned(keeper) == ("b", [])


def test_of_equal_pods_one_goes_that_finds_another_place() -> None:
    def nodes(priority: int) -> dict[str, list[Any]]:
        """Return two nodes of which either could do without one pod."""
        second = bound("second", "a", cpu=3, priority=priority)
        return {
            "a": [bound("first", "a", cpu=3, priority=priority), second],
            # the youngest, which goes where nothing else counts
            "b": [bound("young", "b", cpu=4, since="2026-01-02T00:00:00Z")],
        }

    keeper = keeper_of(nodes(0))
    waits(keeper, cpu=4, priority=2)
    assert planned(keeper) == ("a", ["second"])

    # but not where it is more important than the other one
    keeper = keeper_of(nodes(1))
    waits(keeper, cpu=4, priority=2)
    assert planned(keeper) == ("b", ["young"])


def test_what_is_freed_is_kept_for_the_pod() -> None:
    keeper = keeper_of({"a": [bound("x", "a", cpu=4)]})
    preemption = Preemption(keeper)
    waits(keeper, cpu=4, priority=1)
    eviction = preemption.plan((), 10)
    assert eviction is not None
    assert preemption.plan((), 11) is None

    # one that is less important, and would fit as soon as the other one has ended
    keeper.pod_seen(waiting_pod("less", cpu=3, created="2020-01-01T00:00:00Z"), 12)
    for moment in (12, 13, 14):
        assert not [d for d in keeper.decide(moment) if isinstance(d, Release)]

    keeper.pod_gone("uid-x", 15)
    keeper.state.report_seen(report("a", described=description(), holdings=EMPTY), 15)
    releases = [d for d in keeper.decide(16) if isinstance(d, Release)]
    assert [(release.pod.uid, release.nodes) for release in releases] == [("uid-w", ("a",))]
    assert preemption.candidates(17) == []
    assert preemption.under_way == {}


def test_a_node_is_given_back_when_its_pod_does_not_come_or_nothing_came_of_it() -> None:
    keeper = keeper_of({"a": [bound("x", "a", cpu=4)]})
    preemption = Preemption(keeper)
    waits(keeper, cpu=4, priority=1)
    eviction = preemption.plan((), 10)
    preemption.failed(eviction, 11)
    keeper.pod_seen(waiting_pod("less", cpu=3), 12)
    assert [d.pod.uid for d in keeper.decide(13) if isinstance(d, Release)] == ["uid-less"]
    assert preemption.plan((), 12) is None

    keeper = keeper_of({"a": [bound("x", "a", cpu=4)]})
    preemption = Preemption(keeper)
    waits(keeper, cpu=4, priority=1)
    assert preemption.plan((), 10)
    keeper.pod_gone("uid-w", 11)
    keeper.pod_seen(waiting_pod("less", cpu=3), 12)
    assert [d.pod.uid for d in keeper.decide(13) if isinstance(d, Release)] == ["uid-less"]


def test_a_plan_whose_node_does_not_report_is_given_up_and_made_anew() -> None:
    keeper = keeper_of({"a": [bound("x", "a", cpu=4)], "b": [bound("y", "b", cpu=4, priority=1)]})
    preemption = Preemption(keeper)
    waits(keeper, cpu=4, priority=2)
    first = preemption.plan((), 10)
    assert first.nodes == ("a",)
    keeper.pod_gone("uid-x", 11)
    # the report still has it
    for moment in range(12, 40):
        keeper.decide(moment)
        preemption.candidates(moment)
    assert preemption.under_way == {}


def test_no_more_go_than_a_plain_search_finds() -> None:
    for seed in range(60):
        random = Random(seed)
        nodes: dict[str, list[Any]] = {}
        for name in "abc"[: random.randint(1, 3)]:
            holder = EMPTY.copy()
            nodes[name] = []
            for number in range(random.randint(1, 5)):
                pod = bound(
                    f"{name}{number}", name, cpu=random.randint(1, 4), priority=random.randint(0, 2)
                )
                if holder.admit(pod.pod):
                    nodes[name].append(pod)

        keeper = keeper_of(nodes)
        pod = waiting_pod("w", cpu=random.randint(1, 4), priority=random.randint(0, 3))
        keeper.pod_seen(pod, 1)
        if [d for d in keeper.decide(1) if isinstance(d, Release)]:
            continue

        fewest = fewest_of_all(keeper, nodes, pod)
        plan = Preemption(keeper).plan((), 10)
        assert (None if plan is None else len(plan.victims)) == fewest, seed
        if plan is not None:
            assert all(victim.priority < pod.watched.priority for victim in plan.victims)
            node = keeper.state.members[plan.nodes[0]].node
            assert admits(without(node, [v.pod for v in plan.victims]), pod.watched.pod)


def fewest_of_all(keeper: Keeper, nodes: dict[str, list[Any]], pod: Any) -> int | None:
    """Return how many less important pods of one node have to go, by trying all sets."""
    numbers = [
        size
        for name, there in nodes.items()
        for size in range(1, len(there) + 1)
        for victims in combinations(there, size)
        if all(victim.priority < pod.watched.priority for victim in victims)
        and admits(
            without(keeper.state.members[name].node, [victim.pod for victim in victims]),
            pod.watched.pod,
        )
    ]
    return min(numbers, default=None)


@pytest.mark.parametrize("outcome", ["evicted", "protected", "does not lead"])
def test_a_plan_is_carried_out_while_this_process_leads(outcome, monkeypatch) -> None:
    monkeypatch.setattr("alignup.control_plane.gates.preemption._LOOK_SECONDS", 0.01)

    async def scenario() -> None:
        stub = ApiStub()
        complaints: list[str] = []
        async with served(stub, complaints.append) as api:
            pod = pod_object("x", "a", cpu=4)
            pod["metadata"] |= {"ownerReferences": OWNER}
            await stub.put(PODS, pod)
            if outcome == "protected":
                stub.protected.add("x")

            keeper = keeper_of({"a": [bound("x", "a", cpu=4)]})
            waits(keeper, cpu=4, priority=1, since=0)
            evictor = Evictor(api, keeper, lambda: 10.0)
            asked: list[int] = []

            def leads() -> bool:
                asked.append(1)
                return outcome != "does not lead"

            async with running(evictor.run(leads)):
                await until(lambda: stub.evicted or complaints or len(asked) > 5)
                await until(lambda: evictor.evicted == len(stub.evicted))

            gone = not stub.objects[PODS].get(("default", "x"))
            assert gone is (outcome == "evicted")
            assert evictor.evicted == int(gone)
            assert bool(evictor.preemption.under_way) is gone
            assert bool(complaints) is (outcome == "protected")

    asyncio.run(scenario())
