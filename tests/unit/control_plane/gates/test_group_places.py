"""Groups get places together: all of a group, or none."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from alignup.control_plane.gates.decisions import Plan, Release, patch_of
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.keeper_service import KeeperService
from alignup.control_plane.gates.waiting_pods import PLACE, GatedPodReader
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.groups import PodGroup
from alignup.kubernetes.node_fit import NodeObject
from fakes.api_server import NODES, PODS, ApiStub, merge, running, served, until
from inputs.waiting_pods import gated_object, idle_member, member
from inputs.watched_objects import description, pod_object, report, topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

EMPTY = Description().template(json.dumps(description()), {})
ROOM = {"cpu": 7000, "memory": 15 << 30, "pods": 110, "example.com/gpu": 2}
WIRE_ROOM = {"cpu": "7", "memory": "15Gi", "pods": "110", "example.com/gpu": "2"}
POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"


class Pods:
    """A keeper, and the pods as an API server has them."""

    def __init__(self, *names: str) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.nodes = {name: NodeObject(name, allocatable=ROOM) for name in names}
        self.version = 1
        self.reader = GatedPodReader()
        self.now = 0.0
        self.start()

    def start(self) -> None:
        """Start a keeper anew, that knows what the objects say."""
        self.keeper = Keeper(ClusterState())
        self.keeper.pods_listed([self.read(name) for name in self.objects], self.now)
        self.keeper.nodes_listed(list(self.nodes.values()), self.now)
        for name in self.nodes:
            pods = [pod for pod in self.keeper.state.pods.values() if pod.node == name]
            holder = EMPTY.copy()
            for pod in pods:
                if pod.pod.uid not in self.keeper.state.assumed:
                    assert holder.admit(pod.pod).admitted
            told = report(name, described=description(), holdings=holder)
            self.keeper.state.report_seen(told, self.now)
        self.keeper.begin_term(self.now)

    def read(self, name: str) -> Any:
        return self.reader.decode(json.dumps(self.objects[name]).encode())

    def put(self, *pods: dict[str, Any], seen: bool = True) -> None:
        for pod in pods:
            self.version += 1
            pod["metadata"]["resourceVersion"] = str(self.version)
            name = pod["metadata"]["name"]
            self.objects[name] = pod
            if seen:
                self.keeper.pod_seen(self.read(name), self.now)

    def bind(self, name: str) -> None:
        pod = self.objects[name]
        node = pod["metadata"]["annotations"][PLACE]
        self.put(merge(pod, {"spec": {"nodeName": node}}))

    def decide(self) -> list[Any]:
        self.now += 1
        return self.keeper.decide(self.now)

    def apply(self, decision: Any) -> None:
        """Take a patch in as an API server would, and let the keeper see what came of it."""
        name = decision.pod.watched.pod.name
        stored = self.objects[name]
        patch = patch_of(decision)
        if patch["metadata"].pop("resourceVersion") != stored["metadata"]["resourceVersion"]:
            self.keeper.pod_seen(self.read(name), self.now)
            self.keeper.refused(decision.pod, self.now)
            return
        self.put(merge(stored, patch))

    def settle(self) -> list[Any]:
        """Decide and carry out until nothing is left to do."""
        all_decisions = []
        while decisions := self.decide():
            all_decisions += decisions
            for decision in decisions:
                self.apply(decision)
        return all_decisions

    def ungated(self) -> dict[str, str]:
        """Return where the pods without a gate go."""
        return {
            name: pod["metadata"].get("annotations", {}).get(PLACE, "")
            for name, pod in self.objects.items()
            if not pod["spec"].get("schedulingGates")
        }


def names_of(decisions: list[Any], kind: type) -> list[str]:
    return [each.pod.watched.pod.name for each in decisions if isinstance(each, kind)]


def test_a_group_waits_until_all_have_come_and_gets_places_together() -> None:
    pods = Pods("a", "b", "c", "d")
    for name in ("m0", "m1", "m2"):
        pods.put(member(name, cpu=4))
        assert pods.decide() == []
    group = pods.keeper.groups.of("uid-m0")
    assert group.words() == "3 of 4 members are there"

    pods.put(member("m3", cpu=4))
    plans = pods.decide()
    assert names_of(plans, Plan) == ["m0", "m1", "m2", "m3"]
    assert {plan.node for plan in plans} == {"a", "b", "c", "d"}

    # no gate goes before the plan is seen in all members
    for plan in plans[:3]:
        pods.apply(plan)
        assert pods.decide() == []
    pods.apply(plans[3])
    releases = pods.decide()
    assert names_of(releases, Release) == ["m0", "m1", "m2", "m3"]
    assert {each.pod.watched.pod.name: each.nodes[0] for each in releases} == {
        plan.pod.watched.pod.name: plan.node for plan in plans
    }


def test_a_group_of_which_one_member_has_no_place_waits_and_takes_nothing() -> None:
    pods = Pods("a", "b", "c")
    pods.put(*[member(f"m{number}", cpu=4) for number in range(4)])
    assert pods.settle() == []
    group = pods.keeper.groups.of("uid-m0")
    assert group.words() == "3 of 4 members fit"
    assert group.left_out is not None

    # what the group does not get others may have
    pods.put(gated_object("single", cpu=4))
    (release,) = pods.settle()
    assert release.pod.watched.pod.name == "single"

    # two nodes more
    for name in ("d", "e"):
        pods.nodes[name] = NodeObject(name, allocatable=ROOM)
        pods.keeper.node_seen(pods.nodes[name], pods.now)
        pods.keeper.state.report_seen(report(name, described=description(), holdings=EMPTY), 1)
    pods.settle()
    assert pods.ungated().keys() == {"single", "m0", "m1", "m2", "m3"}


def test_members_come_to_few_nodes_and_to_nodes_of_their_own_where_there_are_any() -> None:
    pods = Pods("a", "b", "c", "d")
    pods.put(*[member(f"m{number}", cpu=cpus) for number, cpus in enumerate([1, 1, 2, 2])])
    pods.settle()
    places = pods.ungated()
    assert places["m0"] == places["m1"]
    assert places["m2"] == places["m3"]
    assert places["m0"] != places["m2"]


def test_what_is_over_the_minimum_goes_alone_later() -> None:
    pods = Pods("a", "b")
    pods.put(*[member(f"m{number}", size=2, cpu=4) for number in range(3)])
    pods.settle()
    assert len(pods.ungated()) == 2
    (left,) = [name for name in pods.objects if name not in pods.ungated()]
    for name in pods.ungated():
        pods.bind(name)
    assert pods.settle() == []

    ended, *_ = pods.ungated()
    del pods.objects[ended]
    pods.keeper.pod_gone(f"uid-{ended}", pods.now)
    pods.settle()
    assert left in pods.ungated()


def test_of_a_pod_group_all_that_exist_get_places_or_none() -> None:
    pods = Pods("a", "b")
    pods.put(*[member(f"m{number}", group="", cpu=4) for number in range(3)])
    assert pods.settle() == []
    assert "was not seen yet" in pods.keeper.groups.of("uid-m0").words()

    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    found = {"metadata": {"name": "gang"}, "spec": spec}
    pods.keeper.groups.seen(msgspec.convert(found, PodGroup))
    assert pods.settle() == []
    assert pods.keeper.groups.of("uid-m0").words() == "2 of 3 members fit"

    pods.keeper.pod_gone("uid-m2", pods.now)
    del pods.objects["m2"]
    pods.settle()
    assert pods.ungated().keys() == {"m0", "m1"}


def test_a_member_that_asks_for_nothing_exclusive_goes_with_its_group() -> None:
    pods = Pods("a", "b")
    pods.put(idle_member("launcher", 3), member("m0", 3, cpu=4))
    assert pods.settle() == []
    pods.put(member("m1", 3, cpu=4))
    assert names_of(pods.settle(), Release) == ["launcher", "m0", "m1"] or pods.ungated()
    assert pods.ungated().keys() == {"launcher", "m0", "m1"}


def test_a_group_whose_number_cannot_be_read_says_so_and_waits() -> None:
    pods = Pods("a")
    broken = member("m0", cpu=1)
    broken["metadata"]["annotations"]["alignup.dev/group-size"] = "many"
    pods.put(broken)
    assert pods.settle() == []
    assert "alignup.dev/group-size" in pods.keeper.groups.of("uid-m0").words()


def test_more_important_pods_come_before_a_group_and_equal_ones_after() -> None:
    pods = Pods("a", "b")
    pods.put(gated_object("equal", cpu=4), *[member(f"m{n}", 2, cpu=4) for n in range(2)])
    pods.settle()
    assert pods.ungated().keys() == {"m0", "m1"}

    pods = Pods("a", "b")
    pods.put(
        gated_object("important", cpu=4, priority=5), *[member(f"m{n}", 2, cpu=4) for n in range(2)]
    )
    pods.settle()
    assert pods.ungated().keys() == {"important"}


def test_a_plan_is_taken_back_while_all_gates_are_on() -> None:
    pods = Pods("a", "b", "c")
    pods.put(*[member(f"m{number}", 2, cpu=4) for number in range(2)])
    plans = pods.decide()
    pods.apply(plans[0])
    gone = plans[0].node
    del pods.nodes[gone]
    pods.keeper.node_gone(gone)
    pods.apply(plans[1])
    pods.settle()
    assert gone not in pods.ungated().values()
    assert len(pods.ungated()) == 2

    # without another node nothing stays written
    pods = Pods("a", "b")
    pods.put(*[member(f"m{number}", 2, cpu=4) for number in range(2)])
    plans = pods.decide()
    for plan in plans:
        pods.apply(plan)
    pods.keeper.node_gone("a")
    pods.settle()
    assert pods.ungated() == {}
    assert all(PLACE not in pod["metadata"]["annotations"] for pod in pods.objects.values())


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_group_whose_plan_a_member_does_not_take_waits_again(has_changed: bool) -> None:
    """With the member, if that has changed since; else it cannot be changed, and is left out."""
    pods = Pods("a", "b", "c", "d")
    pods.put(*[member(f"m{number}", cpu=4) for number in range(4)])
    plans = pods.decide()
    assert len(pods.keeper.places) == 4
    if has_changed:
        pods.put(member("m0", cpu=3))
    pods.keeper.refused(plans[0].pod, pods.now)
    group = pods.keeper.groups.of("uid-m1")
    assert group.plan == {}
    assert not pods.keeper.places
    assert ("uid-m0" in group.waiting) is has_changed
    pods.settle()
    assert len(pods.ungated()) == (4 if has_changed else 0)


def test_a_member_that_changes_while_the_gates_go_keeps_its_place() -> None:
    pods = Pods("a", "b")
    pods.put(*[member(f"m{number}", 2, cpu=4) for number in range(2)])
    for plan in pods.decide():
        pods.apply(plan)
    releases = pods.decide()
    place = {each.pod.watched.pod.name: each.nodes for each in releases}
    for name in ("m0", "m1"):  # somebody writes an annotation into both
        pods.put(merge(pods.objects[name], {"metadata": {"annotations": {"x": "y"}}}), seen=False)
    pods.put(gated_object("other", cpu=4))
    for each in releases:
        pods.apply(each)
    pods.settle()
    assert {name: (node,) for name, node in pods.ungated().items()} == place


@pytest.mark.parametrize("written", range(9))
@pytest.mark.parametrize("loses_a_node", [False, True])
def test_a_keeper_that_is_killed_after_any_patch_is_followed_by_one_that_finishes(
    written, loses_a_node
) -> None:
    pods = Pods("a", "b", "c", "d")
    pods.put(*[member(f"m{number}", cpu=4) for number in range(4)])
    patches: list[Any] = []
    for _ in range(written):
        patches = patches or pods.decide()
        pods.apply(patches.pop(0))
    before = pods.ungated()
    assert len(before) == max(0, written - 4)

    if loses_a_node:
        used = before.values()
        lost = next(name for name in reversed(pods.nodes) if name not in used or written == 8)
        del pods.nodes[lost]
    pods.start()
    pods.put(gated_object("other", cpu=4))
    pods.settle()
    if not loses_a_node:
        assert pods.ungated().keys() == {"m0", "m1", "m2", "m3"}
        assert len(set(pods.ungated().values())) == 4
        assert before.items() <= pods.ungated().items()
    elif written <= 4:
        assert pods.ungated().keys() == {"other"}
        members = [pod for name, pod in pods.objects.items() if name != "other"]
        assert all(PLACE not in pod["metadata"]["annotations"] for pod in members)


def disturb(pods: Pods, random: Random, arriving: list[dict[str, Any]]) -> Iterator[None]:
    """Let pods arrive and change, kill keepers, and carry some of what they decide out."""
    patches: list[Any] = []
    for _ in range(150):
        action = random.random()
        if arriving and action < 0.2:
            pods.put(arriving.pop())
        elif action < 0.3:
            patches = []
            pods.start()
        elif action < 0.4 and pods.objects:
            name = random.choice(list(pods.objects))
            change = {"metadata": {"annotations": {"x": str(random.random())}}}
            pods.put(merge(pods.objects[name], change), seen=random.random() < 0.7)
        elif action < 0.5:
            for name in pods.ungated():
                if not pods.objects[name]["spec"].get("nodeName") and random.random() < 0.5:
                    pods.bind(name)
        elif patches:
            pods.apply(patches.pop(random.randrange(len(patches))))
        else:
            patches = pods.decide()

        yield


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_events_lets_a_part_of_a_group_go(seed) -> None:
    random = Random(seed)
    pods = Pods(*"abcdef")
    sizes = {f"g{number}": random.randint(2, 4) for number in range(random.randint(2, 4))}
    arriving = [
        member(f"{group}-{number}", size, group, cpu=random.choice((1, 2, 4)))
        for group, size in sizes.items()
        for number in range(size)
    ]
    arriving += [gated_object(f"s{number}", cpu=4) for number in range(4)]
    random.shuffle(arriving)
    for _ in disturb(pods, random, arriving):
        for group, size in sizes.items():
            members = [name for name in pods.objects if name.startswith(group)]
            if any(name in pods.ungated() for name in members):
                planned = [
                    name for name in members if pods.objects[name]["metadata"]["annotations"][PLACE]
                ]
                assert len(planned) == size

    pods.start()
    pods.settle()
    for group, size in sizes.items():
        count = sum(name.startswith(group) for name in pods.ungated())
        assert count in {0, size}


class Counting(ApiStub):
    """A server that takes so many patches, and answers none of those that come later."""

    left = 0

    async def one(
        self, method: str, kind: str, key: tuple[str, str], sub: list[str], body: Any
    ) -> web.StreamResponse:
        if method == "PATCH":
            if not self.left:
                await asyncio.Event().wait()
            self.left -= 1
        return await super().one(method, kind, key, sub, body)


@pytest.mark.parametrize("taken", range(9))
def test_a_killed_keeper_is_followed_by_one_that_finishes_on_a_server(taken) -> None:
    async def scenario() -> None:
        stub = Counting()
        stub.left = taken
        for name in ("a", "b", "c", "d"):
            node = {"kind": "Node", "metadata": {"name": name}}
            await stub.put(NODES, node | {"status": {"allocatable": WIRE_ROOM}})
            kind = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
            await stub.put(kind, topology(name, described=description()))
        for number in range(4):
            await stub.put(PODS, member(f"m{number}", cpu=4))

        def ungated() -> list[str]:
            pods = [stub.get(PODS, f"m{number}", "default") for number in range(4)]
            free = [pod for pod in pods if not pod["spec"].get("schedulingGates")]
            return [pod["metadata"]["annotations"][PLACE] for pod in free]

        async with asyncio.timeout(60), served(stub) as api:
            service = KeeperService(api, Keeper(ClusterState()), GatedPodReader())
            async with running(service.run()):
                await until(lambda: not stub.left)
                await asyncio.sleep(0.05)
            assert len(ungated()) == max(0, taken - 4)

            stub.left = 100
            service = KeeperService(api, Keeper(ClusterState()), GatedPodReader())
            async with running(service.run()):
                await until(lambda: len(ungated()) == 4)
            assert len(set(ungated())) == 4

    asyncio.run(scenario())


def test_the_size_of_a_pod_group_comes_from_the_server() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        await stub.put(NODES, {"metadata": {"name": "a"}, "status": {"allocatable": WIRE_ROOM}})
        kind = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
        await stub.put(kind, topology("a", described=description()))
        complaints: list[str] = []
        async with asyncio.timeout(60), served(stub, complaints.append) as api:
            service = KeeperService(api, Keeper(ClusterState()), GatedPodReader())
            async with running(service.run()):
                await service.watch.synced()
                await asyncio.sleep(0.05)
                assert not any("podgroups" in path for _, path in stub.requests)
                await stub.put(PODS, member("m0", group="", cpu=1))
                await until(lambda: any("podgroups" in path for _, path in stub.requests))
                group = {"metadata": {"name": "gang", "namespace": "default"}}
                spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
                await stub.put(POD_GROUPS, group | {"spec": spec})
                await until(lambda: service.keeper.groups.of("uid-m0").size == 2)
                await stub.put(PODS, member("m1", group="", cpu=1))
                pods = stub.objects[PODS].values()
                await until(lambda: not any(pod["spec"].get("schedulingGates") for pod in pods))

    asyncio.run(scenario())


def test_a_bound_member_counts_as_begun() -> None:
    pods = Pods("a", "b")
    bound = pod_object("m0", "a", cpu=4)
    bound["metadata"] |= {k: v for k, v in member("m0")["metadata"].items() if k != "uid"}
    pods.put(bound, member("m1", cpu=1))
    pods.now += 20
    assert names_of(pods.settle(), Release) == ["m1"]


def test_members_that_leave_before_they_are_bound_have_not_begun() -> None:
    """Those that come in their stead wait for each other."""
    pods = Pods("a", "b")
    pods.put(*[member(f"m{number}", size=2, cpu=4) for number in range(2)])
    pods.settle()
    assert len(pods.ungated()) == 2

    leaving = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    pods.put(*[merge(pod, leaving) for pod in list(pods.objects.values())])
    pods.put(member("m2", size=2, cpu=1))
    assert pods.settle() == []
    pods.put(member("m3", size=2, cpu=1))
    pods.settle()
    assert {"m2", "m3"} <= pods.ungated().keys()


def test_a_group_that_has_waited_long_is_not_starved_by_small_pods() -> None:
    """Whenever a pod ends, a smaller one would take what it leaves."""
    pods = Pods("a", "b", "c")
    for name in pods.nodes:
        pods.put(gated_object(f"first-{name}", cpu=4))
    pods.settle()
    for name in pods.ungated():
        pods.bind(name)

    pods.put(*[member(f"m{number}", 2, cpu=4) for number in range(2)])
    pods.put(*[gated_object(f"small-{number}", cpu=1) for number in range(12)])
    pods.settle()
    pods.now += 40
    pods.settle()

    for name in ("first-a", "first-b", "first-c"):
        node = pods.objects[name]["spec"]["nodeName"]
        for other in [each for each, place in pods.ungated().items() if place == node]:
            del pods.objects[other]
            pods.keeper.pod_gone(f"uid-{other}", pods.now)
        pods.keeper.state.report_seen(report(node, described=description(), holdings=EMPTY), 1)
        pods.keeper.reported([node])
        pods.put(*[gated_object(f"late-{name}-{number}", cpu=1) for number in range(6)])
        pods.now += 70
        pods.settle()
    assert {"m0", "m1"} <= pods.ungated().keys()


def test_a_number_that_is_changed_counts_and_of_different_ones_the_largest() -> None:
    pods = Pods("a", "b", "c")
    pods.put(member("m0", 4, cpu=4), member("m1", 2, cpu=4))
    assert pods.settle() == []
    assert pods.keeper.groups.of("uid-m0").words() == "2 of 4 members are there"

    change = {"metadata": {"annotations": {"alignup.dev/group-size": "2"}}}
    pods.put(merge(pods.objects["m0"], change))
    pods.settle()
    assert pods.ungated().keys() == {"m0", "m1"}

    # the other way round
    pods = Pods("a", "b", "c")
    pods.put(member("m0", 2, cpu=4))
    pods.put(member("m1", 4, cpu=4))
    assert pods.settle() == []
    assert pods.keeper.groups.of("uid-m0").words() == "2 of 4 members are there"


def admits_each_order(names: list[str], sizes: dict[str, int]) -> bool:
    """Return whether an empty node admits members, each of some CPUs, in each order."""
    for order in set(permutations(sizes[name] for name in names)):
        node = EMPTY.copy()
        for number, cpus in enumerate(order):
            pod = GatedPodReader().decode(json.dumps(pod_object(f"x{number}", "a", cpu=cpus)))
            if not node.admit(pod.pod).admitted:
                return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_different_members_share_a_node_where_each_order_of_them_is_admitted(seed) -> None:
    """On one node: exactly where a kubelet admits them in whatever order it gets them."""
    random = Random(seed)
    sizes = {f"m{number}": random.choice((1, 1, 2, 3)) for number in range(random.randint(2, 4))}
    pods = Pods("a")
    pods.put(*[member(name, len(sizes), cpu=cpus) for name, cpus in sizes.items()])
    pods.settle()
    assert pods.ungated().keys() == (sizes if admits_each_order([*sizes], sizes) else {}).keys()


@pytest.mark.parametrize("seed", range(40))
def test_no_kubelet_rejects_a_member_whatever_comes_first(seed) -> None:
    """On several nodes, of which some hold other pods."""
    random = Random(seed)
    pods = Pods("a", "b", "c")
    for number in range(random.randint(0, 3)):
        pods.put(gated_object(f"old{number}", cpu=random.choice((1, 2))))
    pods.settle()
    for name in pods.ungated():
        pods.bind(name)
    pods.start()

    sizes = {f"m{number}": random.choice((1, 2, 3, 4)) for number in range(random.randint(2, 5))}
    pods.put(*[member(name, len(sizes), cpu=cpus) for name, cpus in sizes.items()])
    pods.settle()
    places = {name: node for name, node in pods.ungated().items() if name in sizes}
    assert len(places) in {0, len(sizes)}
    for node in pods.nodes:
        names = [name for name, place in places.items() if place == node]
        assert admits_each_order(names, sizes)
        for order in permutations(names):
            kubelet = EMPTY.copy()
            for name in [name for name in pods.objects if name.startswith("old")] + list(order):
                if pods.ungated()[name] == node:
                    assert kubelet.admit(
                        pods.read(name).watched.pod if name in names else pods.read(name).pod
                    )


@pytest.mark.parametrize("written", range(5))
@pytest.mark.parametrize("binds", [True, False])
def test_a_keeper_that_is_killed_is_followed_by_one_that_finishes_what_shares_a_node(
    written, binds
) -> None:
    pods = Pods("a")
    pods.put(member("m0", 2, cpu=2), member("m1", 2, cpu=3))
    patches: list[Any] = []
    for _ in range(written):
        patches = patches or pods.decide()
        if patches:
            pods.apply(patches.pop(0))
    if binds:
        for name in pods.ungated():
            pods.bind(name)

    pods.start()
    pods.put(gated_object("other", cpu=1))
    pods.settle()
    assert {"m0", "m1"} <= pods.ungated().keys()


def test_members_that_choose_their_nodes_otherwise_are_copies_there() -> None:
    """Their kubelet sees no difference: no order has to be tried, however many there are."""
    pods = Pods("a")
    pods.nodes["a"] = NodeObject("a", allocatable=ROOM, labels={"zone": "east"})
    pods.keeper.node_seen(pods.nodes["a"], 0)
    selector = {"nodeSelector": {"zone": "east"}}
    pods.put(*[member(f"m{n}", 6, cpu=1, spec=selector if n % 2 else {}) for n in range(6)])
    pods.settle()
    assert len(pods.ungated()) == 6


@pytest.mark.parametrize("resource", ["pods", "cpu"])
def test_members_share_a_node_only_within_its_sums(resource) -> None:
    pods = Pods("a")
    room = {**ROOM, resource: {"pods": 1, "cpu": 4500}[resource]}
    pods.nodes["a"] = NodeObject("a", allocatable=room)
    pods.keeper.node_seen(pods.nodes["a"], 0)
    pods.put(member("m0", 2, cpu=2), member("m1", 2, cpu=3))
    assert pods.settle() == []


def test_members_with_ports_of_the_host_share_no_node() -> None:
    pods = Pods("a")
    m1 = member("m1", 2, cpu=3)
    m1["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    pods.put(member("m0", 2, cpu=2), m1)
    assert pods.settle() == []


@pytest.mark.parametrize("olds", [(1, 3), ()])
def test_members_share_a_node_only_if_each_order_is_admitted_beside_the_pods_there(olds) -> None:
    """Of one CPU and two left on the NUMA nodes a pod of one CPU may take the wrong one."""
    pods = Pods("a")
    for number, cpus in enumerate(olds):
        old = pod_object(f"old{number}", "a", cpu=cpus)
        old["metadata"]["annotations"] = {}
        pods.put(old)
    pods.start()
    pods.put(member("m0", 2, cpu=1), member("m1", 2, cpu=2))
    pods.settle()
    assert ({"m0", "m1"} <= pods.ungated().keys()) is (not olds)


@pytest.mark.parametrize(
    "change",
    [None, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"labels": None, "annotations": None}],
    ids=["is deleted", "leaves", "is no member"],
)
def test_a_plan_is_taken_back_where_a_member_without_a_place_goes_meanwhile(change) -> None:
    pods = Pods("a", "b", "c")
    pods.put(member("m0", 3, cpu=4), member("m1", 3, cpu=4), idle_member("launcher", 3))
    plans = pods.decide()
    assert names_of(plans, Plan) == ["m0", "m1"]
    launcher = pods.objects.pop("launcher")
    if change is None:
        pods.keeper.pod_gone("uid-launcher", pods.now)
    else:
        pods.put(merge(launcher, {"metadata": change}))

    for plan in plans:
        pods.apply(plan)
    pods.settle()
    assert not pods.keeper.places
    assert pods.keeper.groups.of("uid-m0").words() == "2 of 3 members are there"
    pods.put(idle_member("another", 3))
    pods.settle()
    assert {"m0", "m1", "another"} <= pods.ungated().keys()


def test_a_pod_that_is_a_member_no_more_waits_for_itself_only() -> None:
    pods = Pods("a")
    m0 = member("m0", 2, cpu=4)
    pods.put(m0, member("m1", 2, cpu=1), seen=False)
    pods.keeper.pod_seen(pods.read("m0"), 0)
    pods.put(merge(m0, {"metadata": {"labels": None, "annotations": None}}))
    assert pods.keeper.groups.of("uid-m0") is None
    pods.settle()
    assert pods.ungated() == {"m0": "a"}

    pods.keeper.pod_seen(pods.read("m1"), 0)
    assert pods.keeper.groups.of("uid-m1").words() == "1 of 2 members are there"


def test_members_that_need_no_place_and_leave_before_their_group_goes_are_let_go_once() -> None:
    pods = Pods("a")
    members = [idle_member(name, 2) for name in ("m0", "m1")]
    pods.put(*members)
    assert pods.decide() == []
    for pod in members:
        pods.put(merge(pod, {"metadata": {"labels": None, "annotations": None}}))
    assert names_of(pods.settle(), Release) == ["m0", "m1"]
    assert pods.ungated() == {"m0": "", "m1": ""}


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_pod_that_is_bound_and_a_member_no_more_waits_nowhere(is_listed) -> None:
    """Nobody has seen it in between: it would get a second place."""
    pods = Pods("a", "b")
    pods.put(member("m0", 2, cpu=4))
    stranger = pod_object("m0", "a", cpu=4)
    stranger["metadata"] |= {"labels": {}, "annotations": {}}
    pods.put(stranger, seen=not is_listed)
    if is_listed:
        pods.keeper.pods_listed([pods.read("m0")], pods.now)
    assert pods.keeper.groups.of("uid-m0") is None

    pods.put(member("m1", 2, cpu=4))
    pods.settle()
    assert not pods.keeper.places
    assert pods.keeper.state.pods["uid-m0"].node == "a"


def test_a_plan_is_taken_back_where_it_is_taken_away_from_a_member_that_had_it() -> None:
    """An earlier plan is taken away from it while it gets the same place anew."""
    pods = Pods("a")
    m0 = member("m0", 2, cpu=4)
    m0["metadata"]["annotations"][PLACE] = "a"
    pods.put(m0)
    (plan,) = pods.decide()
    assert (plan.pod.watched.pod.name, plan.node) == ("m0", "")

    pods.put(member("m1", 2, cpu=1))
    plans = pods.decide()
    assert names_of(plans, Plan) == ["m1"]
    for late in (plan, *plans):
        pods.apply(late)
    pods.settle()
    assert pods.ungated() == {"m0": "a", "m1": "a"}
