"""A cluster that is asked once: what it says of its nodes and pods."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from alignup.cli.explain import Question, answer_question
from alignup.control_plane.api_server.api_client import TOPOLOGIES, Api
from alignup.control_plane.api_server.objects import PodObject
from alignup.control_plane.scheduler import ask as asking
from alignup.control_plane.scheduler.ask import read_cluster, read_pod, why_rejected
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.report import HOLDINGS, NODE
from fakes.api_server import BUDGETS, NODES, PODS
from fakes.published_nodes import published_nodes
from inputs.watched_objects import pod_object, topology


def test_what_nodes_publish_is_read_and_what_is_not_known_is_said() -> None:
    async def scenario() -> None:
        async with published_nodes(a=(("x", 3),), b=()) as (stub, api):
            await stub.put(NODES, {"metadata": {"name": "amounts"}})
            await stub.put(TOPOLOGIES, topology("amounts", cpu=[0, 2]))
            await stub.put(NODES, {"metadata": {"name": "silent"}})
            await stub.put(TOPOLOGIES, topology("gone"))
            await stub.put(PODS, pod_object("w", cpu=4, priority=7))
            budget = {"spec": {"selector": {}}, "status": {"disruptionsAllowed": 1}}
            await stub.put(BUDGETS, {"metadata": {"name": "db", "namespace": "default"}, **budget})
            snapshot = await read_cluster(api)
            assert sorted(snapshot.nodes) == ["a", "amounts", "b"]
            assert snapshot.by_amounts == {"amounts"}
            assert snapshot.unknown == ("silent",)
            assert [waiting_pod.pod.name for waiting_pod in snapshot.waiting] == ["w"]
            assert [pod.name for pod in snapshot.node("a").pods] == ["x"]
            assert snapshot.rules.budgets == {"default/db": 1}
            assert snapshot.rules.standings["uid-x"].budgets == ("default/db",)
            assert snapshot.rules.standings["uid-x"].comes_back
            assert not snapshot.rules.standings["uid-w"].comes_back

            free = snapshot.cluster().free("cpu")[snapshot.cluster().index("amounts")].tolist()
            assert free == [0, 2]
            with pytest.raises(InputError, match="node silent publishes nothing"):
                snapshot.node("silent")
            with pytest.raises(InputError, match="node nobody is not there"):
                snapshot.node("nobody")
            with pytest.raises(InputError, match="there is no pod default/nobody"):
                await read_pod(api, "default", "nobody")
            assert {method for method, _ in stub.requests} == {"GET"}

    asyncio.run(scenario())


@pytest.mark.parametrize("lacking", [(NODE,), (HOLDINGS,), (NODE, HOLDINGS)])
def test_why_a_pod_was_rejected_is_unknown_where_its_node_does_not_publish_all(lacking) -> None:
    async def scenario() -> None:
        async with published_nodes(a=()) as (stub, api):
            report = stub.get(TOPOLOGIES, "a")
            for key in lacking:
                del report["metadata"]["annotations"][key]
            await stub.put(TOPOLOGIES, report)
            rejected = msgspec.convert(pod_object("p", "a", cpu=9), PodObject)
            with pytest.raises(InputError, match="node a publishes no holdings"):
                await why_rejected(api, rejected)

    asyncio.run(scenario())


def test_without_the_right_to_list_budgets_there_are_none_which_is_said() -> None:
    async def scenario() -> None:
        async with published_nodes(a=()) as (stub, api):
            stub.forbidden.add(BUDGETS)
            with pytest.warns(AlignupWarning, match="403"):
                assert (await read_cluster(api)).rules.budgets == {}

    asyncio.run(scenario())


def asked_why(monkeypatch, capsys, question: Question, api: Api) -> tuple[int, dict[str, Any]]:
    """Ask in a thread of its own, as the command does.

    Return the exit status and the answer.
    """

    async def connect(*_: object) -> Api:
        return Api(api._configuration)

    monkeypatch.setattr(asking.api_client.Api, "connect", connect)
    question.as_json = True
    status = answer_question(question)
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("kind", "cpus", "expected"),
    [
        ("pending", 4, 1),
        ("in full", 4, 1),
        ("fits", 2, 0),
        ("rejected", 4, 1),
        ("running", 4, 0),
    ],
)
def test_why_says_what_each_node_would_say(kind, cpus, expected, monkeypatch, capsys) -> None:
    async def scenario() -> None:
        async with published_nodes(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            pod = pod_object("w", cpu=cpus)
            if kind == "rejected":
                pod["spec"]["nodeName"] = "a"
                reason = {"reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
                pod["status"] = {"phase": "Failed", **reason}

            await stub.put(PODS, pod)
            question = Question(pod="default/w")
            if kind == "running":
                question.pod = "default/x"
            elif kind == "in full":
                question.node_name = "b"

            status, answer = await asyncio.to_thread(asked_why, monkeypatch, capsys, question, api)
            assert status == expected
            if kind == "running":
                assert answer == {"pod": "x", "namespace": "default", "admitted": True, "node": "a"}
            elif kind == "fits":
                assert answer["admitting"] == 2
            elif kind == "pending":
                assert answer["causes"][0]["nodes"] == ["a", "b"]
                assert answer["example"]["cause"]
                assert answer["room"]["evictions"] == 1
            else:
                assert answer["node"] == {"in full": "b", "rejected": "a"}[kind]
                assert not answer["admitted"]
                assert ("was" in answer) is (kind == "rejected")

    asyncio.run(scenario())


def test_why_says_how_far_a_gated_pod_is(monkeypatch, capsys) -> None:
    async def scenario() -> None:
        async with published_nodes(a=(("x", 3), ("y", 2))) as (stub, api):
            pod = pod_object("w", cpu=4)
            pod["spec"]["schedulingGates"] = [{"name": "alignup.dev/room"}]
            await stub.put(PODS, pod)
            question = Question(pod="default/w")
            status, answer = await asyncio.to_thread(asked_why, monkeypatch, capsys, question, api)
            assert status == 1
            assert answer["standing"].startswith("default/w waits behind the gate alignup.dev/room")

    asyncio.run(scenario())
