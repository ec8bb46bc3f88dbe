"""A cluster that is asked once.

What it says of its nodes and pods, and plans that are carried out there.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from alignup.cli.explain import Question, answer_question
from alignup.control_plane.api_server.api_client import TOPOLOGIES, Api
from alignup.control_plane.scheduler import ask as asking
from alignup.control_plane.scheduler.ask import read_cluster, read_pod
from alignup.control_plane.scheduler.rebalance import apply_plan, plan_cluster, rebalance_for_ever
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.report import Description
from fakes.api_server import BUDGETS, NODES, PODS, ApiStub, running, served, until
from inputs.watched_objects import description, pod_object, topology, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OWNER = {"kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": True}

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def held(*names_and_cpus: tuple[str, int], node: str) -> Any:
    """Return a node with pods that have so many CPUs."""
    made = Description().template(json.dumps(description()), {}).copy()
    for name, cpus in names_and_cpus:
        assert made.admit(watched(name, node, cpu=cpus).pod)
    return made


@asynccontextmanager
async def cluster(**pods: tuple[tuple[str, int], ...]) -> AsyncIterator[tuple[ApiStub, Api]]:
    """Serve nodes that publish what their pods hold, one that says amounts, and one that says nothing."""
    stub = ApiStub()
    for name, some in pods.items():
        await stub.put(NODES, {"metadata": {"name": name}})
        await stub.put(
            TOPOLOGIES, topology(name, described=description(), holdings=held(*some, node=name))
        )
        for one, cpus in some:
            found = pod_object(one, name, cpu=cpus)
            found["metadata"]["ownerReferences"] = [OWNER]
            found["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
            await stub.put(PODS, found)

    async with served(stub) as api:
        yield stub, api


def test_what_nodes_publish_is_read_and_what_is_not_known_is_said() -> None:
    async def scenario() -> None:
        async with cluster(a=(("x", 3),), b=()) as (stub, api):
            await stub.put(NODES, {"metadata": {"name": "amounts"}})
            await stub.put(TOPOLOGIES, topology("amounts", cpu=[0, 2]))
            await stub.put(NODES, {"metadata": {"name": "silent"}})
            await stub.put(TOPOLOGIES, topology("gone"))
            await stub.put(PODS, pod_object("w", cpu=4, priority=7))
            budget = {"spec": {"selector": {}}, "status": {"disruptionsAllowed": 1}}
            await stub.put(BUDGETS, {"metadata": {"name": "db", "namespace": "default"}, **budget})
            asked = await read_cluster(api)
            assert sorted(asked.nodes) == ["a", "amounts", "b"]
            assert asked.by_amounts == {"amounts"}
            assert asked.unknown == ("silent",)
            assert [one.pod.name for one in asked.waiting] == ["w"]
            assert [pod.name for pod in asked.node("a").pods] == ["x"]
            assert asked.rules.budgets == {"default/db": 1}
            assert asked.rules.standings["uid-x"].budgets == ("default/db",)
            assert asked.rules.standings["uid-x"].comes_back
            assert not asked.rules.standings["uid-w"].comes_back
            free = asked.cluster().free("cpu")[asked.cluster().index("amounts")].tolist()
            assert free == [0, 2]
            with pytest.raises(InputError, match="node silent publishes nothing"):
                asked.node("silent")
            with pytest.raises(InputError, match="node nobody is not there"):
                asked.node("nobody")
            with pytest.raises(InputError, match="there is no pod default/nobody"):
                await read_pod(api, "default", "nobody")
            assert {method for method, _ in stub.requests} == {"GET"}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fields", "goes"),
    [
        ({}, True),
        ({"affinity": {"podAntiAffinity": {"preferred": [{}]}}}, True),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, False),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, True),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, False),
        ({"nodeSelector": {"disk": "fast"}}, False),
    ],
)
def test_a_pod_that_does_not_take_every_node_is_not_evicted(fields, goes) -> None:
    """Nobody knows here whether there would be a place for it."""

    async def scenario() -> None:
        async with cluster(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            for name in "xyzu":
                found = stub.get(PODS, name, "default")
                await stub.put(PODS, {**found, "spec": {**found["spec"], **fields}})
            await stub.put(PODS, pod_object("w", cpu=4))
            assert bool((await plan_cluster(api)).evictions) is goes

    asyncio.run(scenario())


def test_without_the_right_to_list_budgets_there_are_none_which_is_said() -> None:
    async def scenario() -> None:
        async with cluster(a=()) as (stub, api):
            stub.forbidden.add(BUDGETS)
            with pytest.warns(AlignupWarning, match="403"):
                assert (await read_cluster(api)).rules.budgets == {}

    asyncio.run(scenario())


def asked_why(monkeypatch, capsys, question: Question, api: Api) -> tuple[int, dict[str, Any]]:
    """Ask in a thread of its own, as the command does, and return the exit status and the answer."""

    async def connect(*_: object) -> Api:
        return Api(api._configuration)

    monkeypatch.setattr(asking.api_client.Api, "connect", connect)
    question.as_json = True
    status = answer_question(question)
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", ["pending", "in full", "fits", "rejected", "running"])
def test_why_says_what_each_node_would_say(kind, monkeypatch, capsys) -> None:
    async def scenario() -> None:
        async with cluster(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            pod = pod_object("w", cpu=2 if kind == "fits" else 4)
            if kind == "rejected":
                pod["spec"]["nodeName"] = "a"
                reason = {"reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
                pod["status"] = {"phase": "Failed", **reason}

            await stub.put(PODS, pod)
            pod = "default/x" if kind == "running" else "default/w"
            question = Question(pod=pod, node_name="b" if kind == "in full" else None)
            status, told = await asyncio.to_thread(asked_why, monkeypatch, capsys, question, api)
            assert status == (0 if kind in {"fits", "running"} else 1)
            if kind == "running":
                assert told == {"pod": "x", "namespace": "default", "admitted": True, "node": "a"}
            elif kind == "fits":
                assert told["admitting"] == 2
            elif kind == "pending":
                assert told["causes"][0]["nodes"] == ["a", "b"]
                assert told["example"]["cause"]
                assert told["room"]["evictions"] == 1
            else:
                assert told["node"] == ("b" if kind == "in full" else "a")
                assert not told["admitted"]
                assert ("was" in told) is (kind == "rejected")

    asyncio.run(scenario())


async def bind(stub: ApiStub, name: str, node: str) -> None:
    """Bind a pod, as a scheduler would."""
    found = stub.get(PODS, name, "default")
    await stub.put(PODS, {**found, "spec": {**found["spec"], "nodeName": node}})


@pytest.mark.parametrize("end", ["as foretold", "elsewhere", "still waits", "protected"])
def test_a_plan_is_carried_out_until_the_cluster_does_otherwise(end) -> None:
    async def scenario() -> None:
        async with cluster(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            await stub.put(PODS, pod_object("w", cpu=4))
            plan = await plan_cluster(api)
            assert plan.proven
            (gone,), (placed,) = plan.evictions, plan.placements
            stub.protected.update([gone.pod.name] if end == "protected" else [])
            said: list[str] = []
            patience = 0.1 if end == "still waits" else 60.0
            task = asyncio.ensure_future(apply_plan(api, plan, said.append, patience))
            if end in {"as foretold", "elsewhere"}:
                await until(lambda: stub.evicted)
                await bind(stub, "w", placed.node if end == "as foretold" else "elsewhere")

            assert await task is (end == "as foretold")
            assert stub.evicted == ([] if end == "protected" else [gone.pod.name])
            last = {
                "elsewhere": "went to elsewhere",
                "still waits": "still waits",
                "protected": "429",
            }
            assert last.get(end, f"is on {placed.node}") in said[-1]

    asyncio.run(scenario())


def test_room_is_made_again_and_again_within_the_budget_of_an_hour() -> None:
    async def scenario() -> None:
        async with cluster(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            said: list[str] = []
            await stub.put(PODS, pod_object("w", cpu=4))
            work = rebalance_for_ever(
                api, per_hour=1, interval=0.01, patience=0.05, say=said.append
            )
            async with running(work):
                await until(lambda: any("has to wait" in line for line in said))
            assert len(stub.evicted) == 1

    asyncio.run(scenario())
