"""Plans that make room.

There are as few evictions as an exhaustive search finds, and every step works on the nodes.
"""

from __future__ import annotations

from itertools import combinations, permutations
from random import Random

import pytest

from alignup import Node, Pod, plan_room
from alignup.cluster import Cluster
from alignup.cluster.evictions import Rules, Standing, admits, fewest_victims
from alignup.errors import InputError
from alignup.records import replace
from inputs.machines import machine_of
from inputs.strategies import seeds
from inputs.watched_objects import description, watched


def pod(name: str, cpu: int, gpu: int = 0) -> Pod:
    limits = {"cpu": cpu}
    if gpu:
        limits["gpu"] = gpu
    return watched(name, **limits).pod


def node(*pods: Pod, has_gpus: bool = True, **kubelet: str) -> Node:
    """Return a node of two NUMA nodes of 3 and 4 CPUs, with these pods as far as it admits them."""
    described = description(**kubelet)
    if not has_gpus:
        described["devices"] = {}

    new_node = Node.from_dict(described)
    for pod in pods:
        new_node.admit(pod)
    return new_node


def test_a_node_takes_no_pod_twice_and_none_whose_policy_it_cannot_have() -> None:
    """A kubelet has no policy for more than eight NUMA nodes."""
    old, new = pod("old", 1), pod("new", 1)
    key = "scheduling.koordinator.sh/numa-topology-spec"
    single = replace(new, annotations={key: '{"numaTopologyPolicy": "SingleNUMANode"}'})
    numa_nodes = Node.from_dict({"machine": machine_of(9, 1), "kubelet": {}})
    assert admits(node(old), new)
    assert not admits(node(old), old)
    assert admits(numa_nodes, new)
    assert not admits(numa_nodes, single)


def test_nodes_that_are_asked_themselves_may_have_the_pods_that_go() -> None:
    """As where a plugin has preferred sets of devices: amounts alone do not tell."""
    described = description()
    described["preferredSets"] = {"example.com/gpu": [["gpu0", "gpu1"]]}
    asking = Node.from_dict(described)
    for running in (pod("first", 3), pod("old", 1)):
        assert asking.admit(running)
    asking.remove(asking.pods[0].uid)

    nodes = {"a": asking}
    plan = plan_room(Cluster.from_nodes(nodes), [pod("new", 4)])
    assert [(step.action, step.pod.name) for step in plan.steps] == [
        ("evict", "old"),
        ("place", "new"),
        ("move", "old"),
    ]
    assert len(replayed(nodes, plan)["a"].pods) == 2


def whole(node: Node) -> Node:
    copy = node.copy()
    copy.whole_verdict = True
    return copy


def width(node: Node, pod: Pod) -> int:
    numa_nodes = node.numa_nodes(pod.uid, "main")
    return numa_nodes.bit_count() or 2


def has_what_is_asked(node: Node, pod: Pod) -> bool:
    """Return whether a scheduler may send a pod to a node.

    A kubelet ignores devices that it does not know.
    """
    return not any(container.devices for container in pod.containers) or bool(node.pools)


def placed(nodes: dict[str, Node], pods_with_widths: list[tuple[Pod, int]]) -> bool:
    """Return whether pods find places one after the other, by trying all."""
    if not pods_with_widths:
        return True

    pod, widest = pods_with_widths[0]
    for name, node in nodes.items():
        if not has_what_is_asked(node, pod):
            continue

        copy = node.copy()
        admission = copy.admit(pod)
        if (
            admission
            and (not widest or width(copy, pod) <= widest)
            and placed({**nodes, name: copy}, pods_with_widths[1:])
        ):
            return True

    return False


def fewest(nodes: dict[str, Node], waiting: list[Pod], most: int) -> int | None:
    """The plain model: try all sets of evictions, the smallest first.

    Return the size of one after which all waiting pods, and the evicted ones, have places.
    """
    running = []
    for name, node in nodes.items():
        running += [(name, pod) for pod in node.pods]

    for size in range(most + 1):
        for victims in combinations(running, size):
            copies = {name: whole(node) for name, node in nodes.items()}
            for name, pod in victims:
                copies[name].remove(pod.uid)

            first = [(pod, 0) for pod in waiting]
            back = [(pod, width(nodes[name], pod)) for name, pod in victims]
            if any(placed(copies, first + list(order)) for order in permutations(back)):
                return size

    return None


def replayed(nodes: dict[str, Node], plan) -> dict[str, Node]:
    """Return the nodes after a plan, each step of which must work."""
    copies = {name: whole(node) for name, node in nodes.items()}
    for step in plan.steps:
        if step.action == "evict":
            copies[step.node].remove(step.pod.uid)
        else:
            assert has_what_is_asked(nodes[step.node], step.pod)
            assert copies[step.node].admit(step.pod)

    return copies


@pytest.mark.parametrize("seed", seeds(6, 24))
def test_there_are_as_few_evictions_as_an_exhaustive_search_finds(seed) -> None:
    random = Random(seed)
    policies = ["single-numa-node", "restricted", "best-effort"]
    nodes = {}
    for name in ("a", "b", "c")[: random.choice([2, 3])]:
        running = [pod(f"{name}{number}", random.choice([1, 1, 2, 3])) for number in range(5)]
        has_gpus = random.random() < 0.7
        if has_gpus and random.random() < 0.5:
            running.insert(0, pod(f"{name}g", 1, 1))
        nodes[name] = node(
            *running, has_gpus=has_gpus, topologyManagerPolicy=random.choice(policies)
        )

    waiting = [
        pod(f"w{number}", random.choice([2, 3, 4]), random.choice([0, 0, 1]))
        for number in range(random.choice([1, 2]))
    ]
    plan = plan_room(Cluster.from_nodes(nodes), waiting)
    model = fewest(nodes, waiting, 3 if len(nodes) == 2 and len(waiting) == 1 else 2)
    replayed(nodes, plan)
    if model is None:
        assert plan.left_out or len(plan.evictions) > 2
    else:
        assert not plan.left_out
        assert plan.proven
        assert len(plan.evictions) == model

    assert len(plan.moves) == len(plan.evictions)
    assert len(plan.placements) == len(waiting) - len(plan.left_out)


def test_a_look_at_all_sets_finds_fewer_evictions_than_pods_placed_one_by_one() -> None:
    """One by one, everybody goes from a node; the sets of least loss that come first do not do."""
    nodes = {
        "a": node(pod("x", 1), pod("y", 3), pod("z", 1), topologyManagerPolicy="single-numa-node"),
        "b": node(pod("u", 3), pod("v", 2), topologyManagerPolicy="restricted"),
    }
    waiting = [pod("w", 3)]
    plan = plan_room(Cluster.from_nodes(nodes), waiting)

    assert [step.pod.name for step in plan.evictions] == ["x", "z"]
    assert (plan.left_out, plan.proven) == ((), True)
    assert fewest(nodes, waiting, 2) == 2


def test_pods_go_nowhere_where_their_devices_are_missing() -> None:
    """A kubelet would take them there, since it ignores resources that no plugin has reported."""
    nodes = {
        "plain": node(has_gpus=False),
        "gpus": node(pod("x", 2, 2), topologyManagerPolicy="best-effort"),
    }
    assert plan_room(Cluster.from_nodes(nodes), [pod("w", 1, 1)]).left_out

    plan = plan_room(Cluster.from_nodes({**nodes, "more": node()}), [pod("w", 1, 1)])
    assert [(step.action, step.node) for step in plan.steps] == [("place", "more")]

    nodes = {"plain": node(has_gpus=False), "gpus": node(pod("x", 3), pod("y", 3))}
    plan = plan_room(Cluster.from_nodes(nodes), [pod("w", 2, 1)])
    assert [(step.action, step.node) for step in plan.steps] == [
        ("evict", "gpus"),
        ("place", "gpus"),
        ("move", "plain"),
    ]


def test_a_pod_that_only_the_sums_of_requests_keep_out_waits_until_another_has_gone() -> None:
    """The CPUs are nobody's own: each node has 7, of which the pods there ask for half."""

    def shares(name: str, cpu: str) -> Pod:
        return watched(name, cpu=cpu).pod

    nodes = {"a": node(shares("x", "3500m")), "b": node(shares("y", "3500m"))}
    plan = plan_room(Cluster.from_nodes(nodes), [shares("w", "4500m")])
    assert [(step.action, step.pod.name, step.node) for step in plan.steps] == [
        ("evict", "x", "a"),
        ("place", "w", "a"),
        ("move", "x", "b"),
    ]


def test_of_two_pods_that_would_each_do_the_lesser_loss_goes() -> None:
    """By priority, then disruption budgets, then age; the nodes stay as they are."""
    nodes = {"a": node(pod("x", 3), pod("y", 2)), "b": node(pod("z", 3), pod("u", 2))}
    before = {name: [pod.uid for pod in node.pods] for name, node in nodes.items()}
    cluster = Cluster.from_nodes(nodes)
    for standings, gone in (
        ({"uid-y": Standing(1), "uid-u": Standing(0)}, "u"),
        ({"uid-y": Standing(0), "uid-u": Standing(1)}, "y"),
        ({"uid-y": Standing(budgets=("db",)), "uid-u": Standing()}, "u"),
        ({"uid-y": Standing(since=5.0), "uid-u": Standing(since=4.0)}, "y"),
    ):
        most = {
            "uid-w": Standing(9),
            "uid-x": Standing(9),
            "uid-z": Standing(9),
            "uid-v": Standing(9),
        }
        plan = plan_room(cluster, [pod("w", 4)], standings={**most, **standings}, budgets={"db": 1})
        assert [step.pod.name for step in plan.evictions][:1] == [gone], standings
        assert not plan.left_out
        assert plan.proven

    assert before == {name: [pod.uid for pod in node.pods] for name, node in nodes.items()}


@pytest.mark.parametrize(
    "standing", [Standing(priority=2), Standing(comes_back=False), Standing(budgets=("db",))]
)
def test_pods_that_matter_more_or_would_be_lost_or_are_protected_stay(standing) -> None:
    nodes = {"a": node(pod("x", 3), pod("y", 2)), "b": node(pod("z", 3), pod("u", 2))}
    waiting = [pod("w", 4)]
    everybody = dict.fromkeys(["uid-x", "uid-y", "uid-z", "uid-u"], standing)
    plan = plan_room(
        Cluster.from_nodes(nodes),
        waiting,
        standings={**everybody, "uid-w": Standing(1)},
        budgets={"db": 0},
    )
    assert [pod.name for pod in plan.left_out] == ["w"]
    assert not plan.steps
    assert plan_room(Cluster.from_nodes(nodes), waiting).evictions


def test_a_plan_says_in_order_what_to_do() -> None:
    nodes = {"a": node(pod("x", 3), pod("y", 2)), "b": node(pod("z", 1))}
    plan = plan_room(Cluster.from_nodes(nodes), [pod("w", 4), pod("v", 4)])
    assert plan.proven

    done = [(step.action, step.pod.name) for step in plan.steps]
    assert done.index(("evict", "y")) < done.index(("move", "y"))

    document = plan.to_dict()
    assert document["placed"] == 2
    assert document["leftOut"] == []
    assert {key for step in document["steps"] for key in step} == {
        "action",
        "pod",
        "namespace",
        "uid",
        "node",
        "numaNodes",
    }


def test_a_pod_that_is_there_or_a_cluster_of_amounts_is_refused() -> None:
    running = pod("x", 1)
    with pytest.raises(InputError, match="a pod that is on no node"):
        plan_room(Cluster.from_nodes({"a": node(running)}), [running])
    with pytest.raises(InputError, match="amounts only: make it from nodes"):
        plan_room(Cluster.from_nodes({}), [running])


@pytest.mark.parametrize("holds_one", [False, True])
def test_a_pod_beyond_all_judgement_is_left_out_and_the_others_find_their_places(holds_one) -> None:
    sizes = {f"hugepages-{1 << size}Mi": "0" for size in range(10)}
    unjudged = watched("unjudged", cpu=1, **sizes).pod
    staying = watched("staying", cpu=3, **sizes).pod if holds_one else pod("staying", 3)
    nodes = {"a": node(staying, pod("large", 2)), "b": node(pod("other", 3))}
    plan = plan_room(Cluster.from_nodes(nodes), [unjudged, pod("new", 4)])
    assert plan.left_out == (unjudged,)
    assert [step.pod.name for step in plan.placements] == ["new"]
    assert not plan.proven


def test_one_node_loses_the_fewest_and_least_important_and_within_budgets() -> None:
    full = node(pod("x", 3), pod("y", 2), pod("z", 2))
    running = list(full.pods)
    waiting = pod("w", 4)

    victims = fewest_victims(full, waiting, running, Rules({}, {"db": 0}))
    assert sorted(pod.name for pod in victims) == ["y", "z"]
    assert fewest_victims(full, waiting, running[:2], Rules()) is None
    assert fewest_victims(full, pod("small", 1), [], Rules()) is None

    roomy = node(pod("x", 1), pod("y", 4), topologyManagerPolicy="restricted")
    victims = fewest_victims(roomy, pod("w", 4), list(roomy.pods), Rules())
    assert [pod.name for pod in victims] == ["y"]

    tied = node(pod("x", 3), pod("y", 3))
    for standings in (
        {"x": Standing(1)},
        {"x": Standing(budgets=("db",))},
        {"y": Standing(since=9.0)},
    ):
        by_uid = {f"uid-{name}": standing for name, standing in standings.items()}
        victims = fewest_victims(tied, pod("w", 3), list(tied.pods), Rules(by_uid, {"db": 0}))
        assert [pod.name for pod in victims] == ["y"]


def test_of_more_than_three_victims_none_can_be_spared() -> None:
    """The least important are tried first, and those whose end does not help stay."""
    full = node(*(pod(name, 1) for name in "abcdefg"))
    near = {running.name for running in full.pods if full.numa_nodes(running.uid, "main") == 2}
    assert near == {"d", "e", "f", "g"}

    standings = {f"uid-{name}": Standing(priority=1) for name in near}
    victims = fewest_victims(full, pod("w", 4), list(full.pods), Rules(standings))
    assert {victim.name for victim in victims} == near
