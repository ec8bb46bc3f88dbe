"""Placeholders by which an autoscaler sees the pods that wait behind the gate."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.placeholders import (
    CLUSTER_AUTOSCALER,
    KARPENTER,
    NAMESPACE,
    PRESENT,
    Placeholders,
    in_turns,
    placeholder_of,
)
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.node_fit import NodeObject, requests_of, selects
from alignup.records import replace
from fakes.api_server import NODES, PODS, ApiStub, running, served, until
from inputs.keepers import ROOM
from inputs.waiting_pods import GATED_READER, member, waiting_pod
from inputs.watched_objects import description, report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOLERATION = {"key": "gpu", "operator": "Exists"}
ZONE = {"key": "zone", "operator": "In", "values": ["x"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, **labels: str) -> NodeObject:
    return NodeObject(name, labels={"kubernetes.io/hostname": name, "zone": "x", **labels})


@pytest.mark.parametrize(
    "affinity",
    [
        None,
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {"matchExpressions": [ZONE]}]}}},
    ],
)
@pytest.mark.parametrize("autoscaler", [KARPENTER, CLUSTER_AUTOSCALER])
def test_a_placeholder_asks_for_the_same_where_no_present_node_is(autoscaler, affinity) -> None:
    spec = {"tolerations": [TOLERATION], "nodeSelector": {"zone": "x"}, "affinity": affinity}
    pod = waiting_pod("p", cpu=3, gpu=2, spec=spec)
    manifest = placeholder_of(pod, autoscaler, ["b", "a"])

    # as the API server takes it
    placeholder = read_pod(manifest)
    assert requests_of(placeholder) == requests_of(pod.watched.pod)
    assert placeholder.constraints.tolerations == (TOLERATION,)
    # nothing exclusive is held where it is bound
    assert placeholder.exclusive_cpus == 0
    assert not placeholder.memory

    present = [node(name, **{PRESENT: "true"}) for name in ("a", "b")]
    assert not any(selects(placeholder, there) for there in present)
    assert selects(placeholder, node("new"))
    assert not selects(placeholder, node("elsewhere", zone="y"))


class Scene:
    """A server, and a keeper of one node for which pods wait in vain."""

    def __init__(self, stub: ApiStub, api: Any, complaints: list[str]) -> None:
        self.stub = stub
        self.api = api
        self.complaints = complaints
        self.keeper = Keeper(ClusterState())
        self.keeper.pods_listed([], 0)
        self.now = 100.0
        self.nodes: list[NodeObject] = []

    async def add_node(self, name: str, *, reports: bool = True) -> None:
        await self.stub.put(NODES, {"kind": "Node", "metadata": {"name": name}})
        self.nodes.append(node(name))
        self.keeper.nodes_listed(self.nodes, 0)
        if reports:
            self.keeper.state.report_seen(report(name, described=description()), 0)

    def placeholders(self, autoscaler: str, patience: float = 30) -> Placeholders:
        return Placeholders(
            self.api, self.keeper, lambda: self.now, autoscaler=autoscaler, patience=patience
        )

    def present(self) -> list[str]:
        """Return the names of the placeholders that there are."""
        return sorted(name for space, name in self.stub.objects.get(PODS, {}) if space == NAMESPACE)

    def has_label(self, name: str) -> bool:
        return PRESENT in (self.stub.get(NODES, name)["metadata"].get("labels") or {})


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    complaints: list[str] = []
    stub = ApiStub()
    async with served(stub, complaints.append) as api:
        here = Scene(stub, api, complaints)
        await here.add_node("a")
        yield here


def run(scenario: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alignup.control_plane.gates.placeholders._LOOK_SECONDS", 0.01)

    async def timed() -> None:
        async with asyncio.timeout(60), scene() as here:
            await scenario(here)

    asyncio.run(timed())


def test_pods_that_have_waited_long_have_one_each(monkeypatch) -> None:
    async def scenario(here: Scene) -> None:
        here.keeper.pod_seen(waiting_pod("large", cpu=5), 60)
        here.keeper.pod_seen(waiting_pod("late", cpu=5), 90)
        here.keeper.decide(90)
        async with running(here.placeholders(KARPENTER).run(lambda: True)):
            await until(here.present)
            assert here.present() == ["placeholder-uid-large"]
            # before the first one was made
            assert here.has_label("a")

            here.now = 125.0
            await until(lambda: len(here.present()) == 2)
            here.keeper.pod_gone("uid-large", 126)
            await until(lambda: here.present() == ["placeholder-uid-late"])

        assert here.complaints == []

    run(scenario, monkeypatch)


def test_one_on_a_new_node_goes_when_that_has_reported(monkeypatch) -> None:
    async def scenario(here: Scene) -> None:
        here.keeper.pod_seen(waiting_pod("large", cpu=5), 60)
        here.keeper.decide(60)
        async with running(here.placeholders(KARPENTER).run(lambda: True)):
            await until(here.present)
            await here.add_node("new", reports=False)
            placeholder = here.stub.get(PODS, "placeholder-uid-large", NAMESPACE)
            bound = {**placeholder, "spec": {**placeholder["spec"], "nodeName": "new"}}
            await here.stub.put(PODS, bound)
            lists = len(here.stub.lists)
            await until(lambda: len(here.stub.lists) > lists + 3)
            assert here.present()
            assert not here.has_label("new")

            here.keeper.state.report_seen(report("new", described=description()), 100)
            await until(lambda: here.has_label("new"))
            # it is made anew for as long as its pod waits, and no more for this node
            await until(
                lambda: (
                    here.present()
                    and "nodeName" not in here.stub.get(PODS, *here.present(), NAMESPACE)["spec"]
                )
            )

    run(scenario, monkeypatch)


def test_nothing_is_made_while_another_one_leads_or_nobody_waits_long(monkeypatch) -> None:
    async def scenario(here: Scene) -> None:
        here.keeper.pod_seen(waiting_pod("large", cpu=5), 60)
        asked: list[int] = []

        def leads() -> bool:
            asked.append(1)
            return False

        async with running(here.placeholders(KARPENTER).run(leads)):
            await until(lambda: len(asked) > 5)

        async with running(here.placeholders(KARPENTER, patience=50).run(lambda: True)):
            await until(lambda: len(here.stub.lists) > 3)

        assert here.present() == []

    run(scenario, monkeypatch)


def test_with_cluster_autoscaler_no_node_is_labelled(monkeypatch) -> None:
    async def scenario(here: Scene) -> None:
        here.keeper.pod_seen(waiting_pod("large", cpu=5), 60)
        async with running(here.placeholders(CLUSTER_AUTOSCALER).run(lambda: True)):
            await until(here.present)

        assert not here.has_label("a")
        assert '"a"' in str(here.stub.get(PODS, *here.present(), NAMESPACE)).replace("'", '"')

    run(scenario, monkeypatch)


def test_one_that_is_refused_does_not_keep_the_others_from_theirs(monkeypatch) -> None:
    """Such as one that is too large, as the pod of it has terms that each name all nodes."""

    async def scenario(here: Scene) -> None:
        for name in ("first", "second", "third"):
            here.keeper.pod_seen(waiting_pod(name, cpu=5), 60)
        here.keeper.decide(90)
        here.stub.refused_writes[PODS] = [413]
        async with running(here.placeholders(CLUSTER_AUTOSCALER).run(lambda: True)):
            await until(lambda: len(here.present()) >= 2)

        (complaint,) = here.complaints
        assert complaint.startswith("no placeholder is made for default/first: ")

    run(scenario, monkeypatch)


def test_a_namespace_that_waits_for_ever_leaves_placeholders_to_others() -> None:
    pods = [waiting_pod(f"hopeless{number}", cpu=5) for number in range(200)]
    pods += [waiting_pod("other", cpu=5, namespace="b"), waiting_pod("low", cpu=5, priority=-1)]
    ordered = [pod.watched.pod.name for pod in in_turns(pods)]
    assert ordered[:3] == ["hopeless0", "other", "hopeless1"]
    assert ordered[-1] == "low"
    assert sorted(ordered) == sorted(pod.watched.pod.name for pod in pods)


def see_members(here: Scene, count: int, size: int, **fields: Any) -> None:
    """Let members of a group come, each of four CPUs, of which the node there takes one."""
    here.keeper.nodes_listed([replace(node, allocatable=ROOM) for node in here.nodes], 0)
    for number in range(count):
        pod = GATED_READER.decode(json.dumps(member(f"m{number}", size, cpu=4, **fields)).encode())
        here.keeper.pod_seen(pod, 60)
    here.keeper.decide(60)


@pytest.mark.parametrize(("count", "size"), [(3, 3), (5, 3), (2, 2)])
def test_members_that_fit_no_node_have_one_each_as_far_as_the_group_needs_them(
    monkeypatch, count, size
) -> None:
    async def scenario(here: Scene) -> None:
        see_members(here, count, size)
        async with running(here.placeholders(KARPENTER).run(lambda: True)):
            await until(lambda: len(here.present()) == size - 1)
            before = here.present()
            lists = len(here.stub.lists)
            await until(lambda: len(here.stub.lists) > lists + 3)
            assert here.present() == before

            # another one is there already, and which member has it makes no difference
            await here.add_node("new")
            here.keeper.nodes_listed([replace(node, allocatable=ROOM) for node in here.nodes], 0)
            await until(lambda: len(here.present()) == size - 2)
            assert set(here.present()) <= set(before)

    run(scenario, monkeypatch)


@pytest.mark.parametrize(("count", "size", "now"), [(2, 3, 100.0), (3, 3, 70.0), (1, 1, 100.0)])
def test_no_member_has_one_of_a_group_that_is_incomplete_new_or_fits(
    monkeypatch, count, size, now
) -> None:
    async def scenario(here: Scene) -> None:
        see_members(here, count, size)
        here.now = now
        async with running(here.placeholders(KARPENTER).run(lambda: True)):
            await until(lambda: len(here.stub.lists) > 3)
        assert here.present() == []

    run(scenario, monkeypatch)
