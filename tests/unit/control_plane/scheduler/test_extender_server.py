"""The extender over HTTP, beside an API server of our own: it watches, answers, binds and wakes."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import shutil
import ssl
import sys
import time
from operator import methodcaller
from typing import Any
from urllib.parse import unquote

import aiohttp
import msgspec
import pytest
from aiohttp import web

from alignup.control_plane import serving
from alignup.control_plane.api_server.api_client import CLAIMS, TOPOLOGIES
from alignup.control_plane.api_server.objects import Container, decode_pod
from alignup.control_plane.scheduler import extender_server, extender_service
from alignup.control_plane.scheduler.cluster_state import (
    LONGEST_BINDING,
    REPORT_DELAY,
    ClusterState,
)
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.extender_server import make_app
from alignup.control_plane.scheduler.extender_service import WOKEN, Extender
from alignup.control_plane.scheduler.extender_wire import (
    LARGEST_POD,
    LARGEST_REQUESTS,
    MOST_NAMES,
    MOST_PODS,
    decode_args,
    decode_preemption,
)
from alignup.control_plane.serving import serve, tls_context, trace, trace_with
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.report import HOLDINGS, NODE
from alignup.text.json_text import DEPTH_LIMIT
from fakes.api_server import EVENTS, NODES, PODS, ApiStub, running, served, until
from inputs.small_claims import claim_named, class_of, slice_of
from inputs.watched_objects import description, pod_object, topology
from running.certificates import certificate
from running.served_extender import EMPTY, Asked, extender

DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
VERBS = ("filter", "prioritize", "preempt", "bind")


def test_a_pod_is_filtered_scored_and_bound_and_then_counts() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as asked:
            pod = pod_object("p", cpu=3, gpu=1)
            await asked.stub.put(PODS, pod)
            assert (await asked.filter(pod, "a", "b"))["NodeNames"] == ["a", "b"]
            scores = await asked.ask("prioritize", Pod=pod, NodeNames=["a", "b"])
            assert scores == [{"Host": "a", "Score": 8}, {"Host": "b", "Score": 8}]
            assert await asked.bind("p", "a") == ""
            assert asked.stub.get(PODS, "p", "default")["spec"]["nodeName"] == "a"
            other = pod_object("q", cpu=3, gpu=2)
            assert (await asked.filter(other, "a"))["FailedNodes"] == {}
            full = await asked.filter(pod_object("q", cpu=4, gpu=1), "a", "b")
            assert full["NodeNames"] == ["a", "b"]
            assert await asked.bind("p", "a") == ""  # it is done already
            assert "already assigned" in await asked.bind("p", "b")
            assert asked.extender.state.pods.get("uid-p").node == "a"

    asyncio.run(scenario())


def test_a_choice_that_another_binding_spoilt_is_refused_and_nothing_is_bound(caplog) -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            pods = [pod_object(name, cpu=4) for name in ("p", "q")]
            for pod in pods:
                await asked.stub.put(PODS, pod)
                assert (await asked.filter(pod, "a"))["NodeNames"] == ["a"]

            assert await asked.bind("p", "a") == ""
            assert await asked.bind("q", "a") == "NUMA: node a can no longer take the pod"
            assert "nodeName" not in asked.stub.get(PODS, "q", "default")["spec"]

    with caplog.at_level("DEBUG", "alignup"):
        asyncio.run(scenario())

    assert {
        "pod default/p: 1 nodes of 1",
        "pod 'p' is bound to 'a'",
        "pod 'q' is not bound: node 'a' can no longer take it",
    } <= set(caplog.messages)


def test_a_binding_that_the_server_refuses_holds_nothing() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.filter(pod_object("ghost", cpu=4), "a")
            assert "404" in await asked.bind("ghost", "a")
            assert (await asked.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_binding_asks_for_no_other_object_than_a_pod_of_the_name() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.stub.put(PODS, pod_object("p"))
            for name in ("../../../nodes/a?x=", "p/status", "p#", "p%2Fbinding", "p;x"):
                assert "404" in await asked.bind(name, "a")
                paths = [path for _, path in asked.stub.requests if "/pods/" in path]
                assert {unquote(path.split("/")[6]) for path in paths} == {name}
                assert {path.rpartition("/pods/")[0] for path in paths} == {
                    "/api/v1/namespaces/default"
                }
                asked.stub.requests.clear()

            for name in ("", ".", ".."):
                assert f"'{name}' cannot be the name of an object" in await asked.bind(name, "a")
            assert not [
                path for method, path in asked.stub.requests if method == "POST" or "/pods/" in path
            ]

    asyncio.run(scenario())


def test_a_binding_whose_answer_got_lost_is_done() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            asked.stub.binds_then_fails = True
            await asked.stub.put(PODS, pod_object("p", cpu=4))
            assert await asked.bind("p", "a") == ""
            assert (await asked.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == []

    asyncio.run(scenario())


def test_a_pod_whose_binding_is_under_way_keeps_its_place_though_its_scheduler_has_given_up() -> (
    None
):
    """It asks again after its own time limit; the server binds the pod all the same."""

    async def scenario() -> None:
        async with extender("a", "b") as asked:
            for name in ("p", "q"):
                await asked.stub.put(PODS, pod_object(name, cpu=4))
            asked.stub.held["p"] = asyncio.Event()
            first = asyncio.create_task(asked.bind("p", "a"))
            await until(lambda: asked.extender.state.pods.get("uid-p"))
            assert (await asked.filter(pod_object("p", cpu=4), "a", "b"))["NodeNames"] == ["a"]
            assert (await asked.filter(pod_object("q", cpu=4), "a", "b"))["NodeNames"] == ["b"]
            assert await asked.bind("p", "b") == "NUMA: the pod may be bound to node a"
            again = asyncio.create_task(asked.bind("p", "a"))
            asked.stub.held["p"].set()
            assert (await first, await again) == ("", "")
            assert await asked.bind("q", "a") == "NUMA: node a can no longer take the pod"

    asyncio.run(scenario())


@pytest.mark.parametrize("lands", [True, False])
def test_a_binding_without_an_answer_keeps_its_place_until_there_is_one(lands) -> None:
    """The server may still be at it.

    Etcd takes what is on its way though nobody waits for the answer any more.
    """

    async def scenario() -> None:
        async with extender("a") as asked:
            for name in ("p", "q"):
                await asked.stub.put(PODS, pod_object(name, cpu=4))
            asked.stub.refused_writes[PODS] = [504, 403]
            assert "504" in await asked.bind("p", "a")
            assert (await asked.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == []
            assert "403" in await asked.bind("p", "a")  # which says nothing about the first request
            assert await asked.bind("q", "a") == "NUMA: node a can no longer take the pod"
            if lands:
                await asked.stub.put(PODS, pod_object("p", "a", cpu=4), silently=True)
            assert (await asked.filter(pod_object("p", cpu=4), "a"))["NodeNames"] == ["a"]
            assert await asked.bind("p", "a") == ""
            assert asked.stub.get(PODS, "p", "default")["spec"]["nodeName"] == "a"

    asyncio.run(scenario())


def test_a_binding_that_is_never_answered_is_looked_up_in_a_list(monkeypatch) -> None:
    monkeypatch.setattr(extender_service, "_TICK_SECONDS", 0.01)

    async def scenario() -> None:
        async with extender("a") as asked:
            ahead = [0.0]
            asked.extender.clock = lambda: time.monotonic() + ahead[0]
            await asked.stub.put(PODS, pod_object("p", cpu=4))
            asked.stub.refused_writes[PODS] = [504]
            assert "504" in await asked.bind("p", "a")
            ahead[0] = LONGEST_BINDING + REPORT_DELAY + 1
            await until(lambda: asked.extender.pods.lists > 1)
            # this list began, by the clock of the follower, too early
            assert asked.extender.state.pods
            asked.extender.state.assumed["uid-p"] = time.monotonic() - 1
            ahead[0] = REPORT_DELAY + 1
            await until(lambda: not asked.extender.state.pods)
            assert (await asked.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_binding_that_the_server_refuses_for_good_holds_nothing() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.stub.put(PODS, pod_object("p", cpu=4))
            asked.stub.refused_writes[PODS] = [403]
            assert "403" in await asked.bind("p", "a")
            assert (await asked.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_binding_of_a_pod_that_another_one_of_its_name_replaced_is_an_error() -> None:
    """The other one is bound to the very node, yet the pod that was asked for is not, and holds nothing."""

    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.filter(pod_object("p", cpu=4), "a")
            other = pod_object("p", "a", cpu=1)
            other["metadata"]["uid"] = "uid-other"
            await asked.stub.put(PODS, other)
            await until(lambda: asked.extender.state.pods.get("uid-other"))
            assert "409" in await asked.bind("p", "a")
            assert asked.extender.state.pods.get("uid-p") is None
            assert [one.uid for one in asked.extender.state.members["a"].node.pods] == ["uid-other"]

    asyncio.run(scenario())


def test_pods_are_bound_to_one_node_one_after_another() -> None:
    """Two that are on their way at once can arrive in the other order, in which the kubelet then admits them."""

    async def scenario() -> None:
        async with extender("a", "b") as asked:
            for name in ("first", "second", "elsewhere"):
                await asked.stub.put(PODS, pod_object(name, cpu=3))
            asked.stub.held["first"] = asyncio.Event()
            first = asyncio.create_task(asked.bind("first", "a"))
            await until(lambda: asked.extender.state.pods.get("uid-first"))
            second = asyncio.create_task(asked.bind("second", "a"))
            assert await asked.bind("elsewhere", "b") == ""
            assert not any(path.endswith("second/binding") for _, path in asked.stub.requests)
            asked.stub.held["first"].set()
            assert (await first, await second) == ("", "")

    asyncio.run(scenario())


def test_a_refused_pod_is_woken_by_its_node_when_another_ends() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.stub.put(PODS, pod_object("p", "a", cpu=4))
            await until(lambda: asked.extender.state.pods)
            refused = await asked.filter(pod_object("q", cpu=4), "a")
            assert refused["FailedNodes"] == {"a": "NUMA: not enough cpu is free on the node"}
            assert WOKEN not in asked.stub.get(NODES, "a")["metadata"].get("annotations", {})
            await asked.stub.delete(PODS, "p", "default")
            await until(
                lambda: WOKEN in asked.stub.get(NODES, "a")["metadata"].get("annotations", {})
            )

    asyncio.run(scenario())


def test_what_an_ended_pod_held_stays_taken_until_its_node_says_otherwise() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            old, held = pod_object("old", "a", cpu=4), EMPTY.copy()
            held.admit(old)
            await asked.stub.put(PODS, old)
            await asked.stub.put(TOPOLOGIES, topology("a", described=description(), holdings=held))
            await until(
                lambda: (
                    not asked.extender.state.members["a"].unsettled and asked.extender.state.pods
                )
            )
            assert (await asked.filter(pod_object("p", cpu=4), "a"))["NodeNames"] == []
            await asked.stub.put(PODS, {**old, "status": {"phase": "Succeeded"}})
            await until(lambda: not asked.extender.state.pods)
            assert (await asked.filter(pod_object("p", cpu=4), "a"))["NodeNames"] == []

    asyncio.run(scenario())


def test_an_extender_that_starts_again_knows_what_is_bound() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.stub.put(PODS, pod_object("p", "a", cpu=4))
            async with served(asked.stub) as api:
                second = Extender(api, Answers(ClusterState()))
                async with running(second.run()):
                    await until(lambda: second.is_synced)
                    assert second.state.pods.get("uid-p") is not None
                    assert not second.answers.state.members["a"].node.try_admit(
                        pod_object("q", cpu=4)
                    )

    asyncio.run(scenario())


def test_health_and_metrics_are_served() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.filter(pod_object("q", cpu=5), "a")
            async with asked.session.get(f"{asked.url}/healthz") as response:
                assert (response.status, await response.text()) == (200, "ok")
            text = await asked.metrics()
            assert 'alignup_extender_nodes{known_by="holdings"} 1.0' in text
            assert 'alignup_extender_refused_nodes_total{resolvable="no"} 1.0' in text
            assert 'alignup_extender_request_seconds_count{verb="filter"} 1.0' in text

    asyncio.run(scenario())


def test_counters_are_shown_before_the_first_question() -> None:
    """One that appears with its first count is no increase for Prometheus."""

    async def scenario() -> None:
        async with extender("a") as asked:
            text = await asked.metrics()
            for verb in ("filter", "prioritize", "preempt", "bind", "evaluate"):
                assert f'alignup_extender_request_seconds_count{{verb="{verb}"}} 0.0' in text
                assert f'alignup_extender_errors_total{{verb="{verb}"}} 0.0' in text

            for resolvable in ("yes", "no"):
                assert (
                    f'alignup_extender_refused_nodes_total{{resolvable="{resolvable}"}} 0.0' in text
                )

    asyncio.run(scenario())


@pytest.mark.parametrize("fails_open", [True, False])
def test_before_the_cluster_is_listed_every_question_gets_an_error(fails_open) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api, aiohttp.ClientSession() as session:
            made = Extender(api, Answers(ClusterState(), fails_open=fails_open))
            runner, port = await serve(make_app(made), ("127.0.0.1", 0))
            asked = Asked(stub, made, f"http://127.0.0.1:{port}", session)
            waits = {"Error": "alignup has not listed the whole cluster yet"}
            pod = pod_object("p")
            assert await asked.filter(pod, "a") == waits
            assert await asked.bind("p", "a") == waits["Error"]
            for verb in ("prioritize", "preempt"):
                async with session.post(
                    f"{asked.url}/{verb}", json={"Pod": pod, "NodeNames": ["a"]}
                ) as response:
                    assert (response.status, await response.text()) == (503, waits["Error"])

            async with session.get(f"{asked.url}/healthz") as response:
                assert response.status == 503
            for verb in VERBS:  # what cannot be read is told first
                async with session.post(f"{asked.url}/{verb}", data=b"{") as response:
                    assert response.status == 400

            assert not stub.requests
            await runner.cleanup()

    asyncio.run(scenario())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"3", b"[]", b"{}", b'{"Pod": 3}', b'{"pod": 3, "podname": 1}', b"\xff", DEEP],
)
def test_what_is_no_question_gets_400(verb, body) -> None:
    async def scenario() -> None:
        async with (
            extender("a") as asked,
            asked.session.post(f"{asked.url}/{verb}", data=body) as response,
        ):
            assert response.status == 400
            assert "expected the JSON of Extender" in await response.text()

    asyncio.run(scenario())


def test_other_schedulers_evaluate_pods_on_all_nodes() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as asked:
            await asked.stub.put(PODS, pod_object("there", "a", cpu=4))
            await until(lambda: asked.extender.state.pods)
            found = await asked.ask(
                "evaluate", pods=[pod_object("p", cpu=4), pod_object("q", cpu=3, gpu=1)]
            )
            assert found["nodes"] == ["a", "b"]
            assert found["exact"] == [True, True]
            assert [one["admitted"] for one in found["pods"]] == [[False, True], [True, True]]
            assert [one["numaNodes"] for one in found["pods"]] == [[[], [1]], [[0], [0]]]
            assert [one["score"] for one in found["pods"]] == [[0.0, 88.0], [88.0, 88.0]]
            for wrong in ({}, {"pods": 3}, {"pods": [pod_object("p")] * (MOST_PODS + 1)}):
                async with asked.session.post(f"{asked.url}/evaluate", json=wrong) as response:
                    assert response.status == 400

    asyncio.run(scenario())


def test_a_pod_gets_an_event_when_the_causes_of_its_refusal_change() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as asked:

            def told() -> list[str]:
                return [one["message"] for one in asked.stub.objects.get(EVENTS, {}).values()]

            for _ in range(3):
                await asked.ask("filter", Pod=pod_object("p", cpu=5), NodeNames=["a", "b"])
                await asked.ask("filter", Pod=pod_object("fits", cpu=1), NodeNames=["a", "b"])

            await until(told)
            await asked.ask("filter", Pod=pod_object("p", cpu=1, gpu=3), NodeNames=["a", "b"])
            await until(lambda: len(told()) > 1)
            assert told() == [
                "none of 2 nodes can take the pod: 2 no NUMA node has enough cpu",
                "none of 2 nodes can take the pod: 2 not enough gpu is free on the node",
            ]
            (first, _) = asked.stub.objects[EVENTS].values()
            assert first["involvedObject"]["uid"] == "uid-p"

    asyncio.run(scenario())


def test_an_event_that_the_server_refuses_keeps_no_later_one_back() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            asked.stub.refused_writes = {EVENTS: [403]}
            for name in ("refused", "later"):
                await asked.ask("filter", Pod=pod_object(name, cpu=5), NodeNames=["a"])
            await until(lambda: asked.stub.objects.get(EVENTS))
            (told,) = asked.stub.objects[EVENTS].values()
            assert told["involvedObject"]["uid"] == "uid-later"

    asyncio.run(scenario())


def test_keys_in_lower_case_are_read_at_every_level() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as asked:
            pod = pod_object("p", cpu=3)
            assert (await asked.ask("filter", pod=pod, nodenames=["a"]))["NodeNames"] == ["a"]
            assert (await asked.ask("filter", Pod=pod, nodenames=["a"]))["NodeNames"] == ["a"]
            assert [
                one["Host"] for one in await asked.ask("prioritize", Pod=pod, nodeNames=["b"])
            ] == ["b"]
            victims = {"a": {"pods": [{"uid": "x"}], "numPDBViolations": 1}}
            found = await asked.ask("preempt", Pod=pod, nodeNameToMetaVictims=victims)
            assert found["NodeNameToMetaVictims"] == {
                "a": {"Pods": [{"UID": "x"}], "NumPDBViolations": 1}
            }

    asyncio.run(scenario())


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 400)])
def test_the_number_of_names_is_bounded(more, status) -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            names = [f"n{number}" for number in range(MOST_NAMES + more)]
            for verb, fields in (
                ("filter", {"NodeNames": names}),
                ("prioritize", {"NodeNames": names}),
                (
                    "preempt",
                    {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": name} for name in names]}}},
                ),
            ):
                question = {"Pod": pod_object("p"), **fields}
                async with asked.session.post(f"{asked.url}/{verb}", json=question) as response:
                    assert response.status == status, verb
                    assert status == 200 or f"the {MOST_NAMES} allowed" in await response.text()

    asyncio.run(scenario())


def filled(size: int) -> dict[str, Any]:
    """Return a pod whose containers are of so many bytes, as far as they are read."""
    pod = pod_object("p", cpu=1)
    containers = pod["spec"]["containers"]
    read = msgspec.json.decode(json.dumps(containers), type=list[Container])
    containers[0]["resources"]["x"] = ""
    rest = size - len(msgspec.json.encode((read, None, None))) - len('"x":"",')
    containers[0]["resources"]["x"] = "x" * rest
    return pod


@pytest.mark.parametrize("more", [0, 1])
def test_the_parts_of_a_question_are_bounded(more) -> None:
    """Levels, bytes of a pod, and bytes of what is read of its containers."""

    async def scenario() -> None:
        async with extender("a") as asked:
            victims = {"a": {"Pods": [{"UID": "x"}]}}
            deep = json.loads("[" * (DEPTH_LIMIT + more - 1) + "]" * (DEPTH_LIMIT + more - 1))
            long = pod_object("p")
            long["metadata"]["annotations"] = {"x": ""}
            long["metadata"]["annotations"]["x"] = "x" * (
                LARGEST_POD + more - len(json.dumps(long))
            )
            for fields, words in (
                ({"Pod": pod_object("p"), "Deep": deep}, f"more than {DEPTH_LIMIT} levels"),
                (
                    {"Pod": long},
                    f"{LARGEST_POD + 1} bytes of a pod are more than the {LARGEST_POD} allowed",
                ),
                ({"Pod": filled(LARGEST_REQUESTS + more)}, f"{LARGEST_REQUESTS + 1} bytes"),
            ):
                for verb, asks in (
                    ("filter", {"NodeNames": ["a"]}),
                    ("preempt", {"NodeNameToMetaVictims": victims}),
                ):
                    body = io.BytesIO(json.dumps({**fields, **asks}).encode())
                    async with asked.session.post(f"{asked.url}/{verb}", data=body) as response:
                        assert response.status == (400 if more else 200), (
                            verb,
                            await response.text(),
                        )
                        assert not more or words in await response.text()

    asyncio.run(scenario())


def test_the_number_of_victims_is_bounded() -> None:
    pods = {"Pods": [{"UID": "x"}] * MOST_NAMES}
    question = {
        "Pod": pod_object("p"),
        "NodeNameToMetaVictims": {str(number): pods for number in range(5)},
    }
    assert len(decode_preemption(json.dumps(question).encode()).by_node) == 5
    question["NodeNameToMetaVictims"]["more"] = {"Pods": [{"UID": "y"}]}
    with pytest.raises(
        InputError, match=f"{5 * MOST_NAMES + 1} victims are more than the {5 * MOST_NAMES} allowed"
    ):
        decode_preemption(json.dumps(question).encode())


def test_large_questions_are_read_by_a_process_that_may_end(monkeypatch) -> None:
    """It is made anew; what it has no memory for is too large."""
    monkeypatch.setattr(extender_server, "_LARGE", 1)
    question = json.dumps(
        {"Pod": pod_object("p"), "Nodes": {"items": [{"metadata": {"name": "a"}}]}}
    ).encode()

    async def scenario() -> None:
        reader = extender_server._Reader()
        assert (await reader.read(decode_args, question)).names == ["a"]
        (process,) = reader._process._processes.values()
        process.kill()
        with pytest.raises(web.HTTPServiceUnavailable):
            await reader.read(decode_args, question)

        args = await reader.read(decode_args, question)
        assert {name: bytes(item) for name, item in args.objects.items()} == {
            "a": b'{"metadata": {"name": "a"}}'
        }
        with pytest.raises(web.HTTPRequestEntityTooLarge):
            await reader.read(methodcaller("ljust", 1 << 60), question)

        with pytest.raises(web.HTTPBadRequest):
            await reader.read(decode_args, b"[]")

        reader.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_told", [True, False])
def test_the_length_of_a_question_is_bounded(is_told, monkeypatch) -> None:
    """Whether the length is told beforehand or the body comes in chunks."""
    monkeypatch.setattr(extender_server, "LARGEST_QUESTION", 10_000)

    async def scenario() -> None:
        async with extender("a") as asked:
            question = json.dumps({"Pod": pod_object("p"), "NodeNames": ["a"]}).encode()

            async def chunks(body: bytes):
                yield body

            for length, status in ((10_000, 200), (10_001, 413)):
                body = question.ljust(length)
                async with asked.session.post(
                    f"{asked.url}/filter", data=body if is_told else chunks(body)
                ) as response:
                    assert response.status == status

            assert (await asked.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_unfinished_questions_end_and_leave_room_for_others(monkeypatch) -> None:
    monkeypatch.setattr(extender_server, "_BODY_SECONDS", 0.3)
    monkeypatch.setattr(extender_server, "_LARGEST_IN_SUM", 50_000)

    async def scenario() -> None:
        async with extender("a") as asked:
            port = int(asked.url.rpartition(":")[2])
            head = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"

            async def begun() -> bytes:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head + b" " * 20_000)
                await writer.drain()
                line = await reader.readline()
                writer.close()
                return line

            lines = await asyncio.gather(*[begun() for _ in range(4)])
            assert {line.split()[1] for line in lines} == {b"408", b"503"}
            assert (await asked.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


@pytest.mark.parametrize("of", ["a number", "descriptors"])
def test_so_many_connections_are_open_at_once_and_the_one_that_is_idle_for_the_longest_makes_room(
    monkeypatch, of
) -> None:
    """One that asks now and then stays, whenever it was opened.

    One below the bound, and one above.
    """
    if of == "a number":
        monkeypatch.setattr(serving, "MOST_CONNECTIONS", 6)
    else:
        monkeypatch.setattr(serving.resource, "getrlimit", lambda _: (24, 24))

    async def scenario() -> None:
        async with extender("a") as asked:
            port = int(asked.url.rpartition(":")[2])
            all_opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

            async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                all_opened.append(await asyncio.open_connection("127.0.0.1", port))
                return all_opened[-1]

            async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                return head.split()[1] + await reader.readexactly(2)

            first = await opened()
            assert await tell(*first) == b"200ok"
            silent = [await opened()]
            silent[0][1].write(b"GET /healthz HTTP/1.1\r\n")  # and no more
            silent += [await opened() for _ in range(3)]
            assert await tell(*first) == b"200ok"
            last = await opened()
            assert await tell(*last) == b"200ok"
            assert not any(reader.at_eof() for reader, _ in silent)
            for number in range(3):
                more = await opened()
                assert await tell(*more) == b"200ok"
                assert await silent[number][0].read() == b""

            assert await tell(*first) == b"200ok"
            for _, writer in all_opened:
                writer.close()

    asyncio.run(scenario())


def test_health_is_told_while_whole_nodes_are_read() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            node = json.dumps(
                {"metadata": {"name": "n0"}, "status": {"images": "x" * 8_000}}
            ).encode()
            items = b",".join(node.replace(b"n0", b"n%d" % number) for number in range(1_000))
            body = (
                b'{"Pod": '
                + json.dumps(pod_object("p")).encode()
                + b', "Nodes": {"items": ['
                + items
                + b"]}}"
            )
            asking = asyncio.ensure_future(
                asked.session.post(f"{asked.url}/filter", data=io.BytesIO(body))
            )
            while not asking.done():
                async with asked.session.get(f"{asked.url}/healthz") as response:
                    assert response.status == 200

            async with asking.result() as response:
                assert len((await response.json())["Nodes"]["items"]) == 1_000

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("verb", "most"), [("evaluate", 1), ("preempt", extender_server._NODES_AT_ONCE)]
)
def test_long_questions_let_others_be_answered_in_between(verb, most, monkeypatch) -> None:
    """So many pods, or nodes, are judged in one turn of the loop, and no more."""
    names = [f"n{number}" for number in range(25)]
    turns, judged = 0, []

    async def scenario() -> None:
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with extender(*names) as asked:
            answers = asked.extender.answers
            answer = getattr(answers, verb)

            def noted(pod: Any, *rest: Any) -> Any:
                judged.extend([turns] * (len(rest[0]) if verb == "preempt" else 1))
                return answer(pod, *rest)

            monkeypatch.setattr(answers, verb, noted)
            counting = asyncio.create_task(count())
            if verb == "evaluate":
                found = await asked.ask(verb, pods=[pod_object(name, cpu=1) for name in names])
                assert [one["uid"] for one in found["pods"]] == [f"uid-{name}" for name in names]
                assert all(
                    one["admitted"] == [True] * 25 and len(one["numaNodes"]) == 25
                    for one in found["pods"]
                )
            else:
                victims = {name: {"Pods": [{"UID": "x"}]} for name in names}
                found = await asked.ask(
                    verb, Pod=pod_object("p", cpu=1), NodeNameToMetaVictims=victims
                )
                assert set(found["NodeNameToMetaVictims"]) == set(names)

            counting.cancel()

    asyncio.run(scenario())
    assert len(judged) == 25
    assert max(map(judged.count, judged)) <= most


def test_a_large_answer_is_written_in_turns() -> None:
    """A client that reads as fast as it comes does not keep the process."""

    async def written() -> list[bytes]:
        turns = [0]

        async def count() -> None:
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        answer = bytes(5 * extender_server._LARGE + 1)
        pieces = [(turns[0], piece) async for piece in extender_server._in_pieces(answer)]
        counting.cancel()
        assert len({turn for turn, _ in pieces}) == len(pieces) == 6
        return [piece for _, piece in pieces]

    assert b"".join(asyncio.run(written())) == bytes(5 * extender_server._LARGE + 1)


def test_a_node_that_goes_while_pods_are_evaluated_refuses_them() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as asked:
            pod = asked.extender.read(decode_pod(json.dumps(pod_object("p", cpu=1)).encode())).pod
            found = asked.extender.answers.evaluate(pod, ["gone", "b"])
            assert (found["admitted"], found["score"][0], found["numaNodes"][0]) == (
                [False, True],
                0.0,
                [],
            )

    asyncio.run(scenario())


@pytest.mark.parametrize("binds", [True, False])
def test_pods_are_bound_only_where_that_is_allowed(binds) -> None:
    async def scenario() -> None:
        async with extender("a", binds=binds) as asked:
            await asked.stub.put(PODS, pod_object("p"))
            assert (await asked.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]
            question = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
            async with asked.session.post(f"{asked.url}/bind", json=question) as response:
                assert response.status == (200 if binds else 403)
            assert ("nodeName" in asked.stub.get(PODS, "p", "default")["spec"]) is binds

    asyncio.run(scenario())


@pytest.mark.parametrize("annotation", [NODE, HOLDINGS])
def test_a_hostile_report_hides_its_own_node_only(annotation) -> None:
    async def scenario() -> None:
        async with extender("a", "b") as asked:
            hostile = topology("a", described=description(), holdings=EMPTY)
            hostile["metadata"]["annotations"][annotation] = '{"a":' * 5000 + "1" + "}" * 5000
            await asked.stub.put(TOPOLOGIES, hostile)
            await until(lambda: "a" not in asked.extender.state.members)
            await asked.stub.put(PODS, pod_object("p", "b", cpu=4))
            await until(lambda: asked.extender.state.pods)
            async with served(asked.stub) as api:
                second = Extender(api, Answers(ClusterState()))
                async with running(second.run()):
                    await until(lambda: second.is_synced)
                    assert set(second.state.members) == {"b"}

    with pytest.warns(AlignupWarning, match=f"what node a reports is ignored: .*{annotation}"):
        asyncio.run(scenario())


@pytest.mark.parametrize("item", [b"5", b"{}", b'{"metadata": {"name": 7}}', DEEP])
def test_nodes_that_are_none_are_answered_with_an_error(item) -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            body = (
                b'{"Pod": '
                + json.dumps(pod_object("p")).encode()
                + b', "Nodes": {"items": ['
                + item
                + b"]}}"
            )
            async with asked.session.post(f"{asked.url}/filter", data=body) as response:
                assert response.status == 400
                assert "expected" in await response.text()

            async with asked.session.post(f"{asked.url}/prioritize", data=body) as response:
                assert response.status == 400
                assert "expected" in await response.text()

    asyncio.run(scenario())


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b" " * (1 << 20))])
def test_packed_questions_are_refused_unread(verb, data) -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            async with asked.session.post(
                f"{asked.url}/{verb}", data=data, headers={"Content-Encoding": "gzip"}
            ) as response:
                assert response.status == 415
                assert await response.text() == "Content-Encoding gzip is not supported"
            assert (await asked.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_question_that_breaks_off_leaves_no_traceback(caplog) -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", int(asked.url.rpartition(":")[2])
            )
            writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            await writer.drain()
            writer.close()
            while 'errors_total{verb="filter"} 1.0' not in await asked.metrics():
                pass
            assert (await asked.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())
    assert not caplog.records


def test_it_is_said_once_that_all_was_listed() -> None:
    said: list[str] = []

    async def scenario() -> None:
        async with served(ApiStub()) as api:
            made = Extender(api, Answers(ClusterState()), synced=lambda: said.append("all"))
            async with running(made.run()):
                await until(lambda: bool(said))
                assert made.is_synced

    asyncio.run(scenario())
    assert said == ["all"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_only_clients_with_a_certificate_of_the_authority_are_answered(tmp_path) -> None:
    for name, issuer in (
        ("ca", ""),
        ("server", "ca"),
        ("client", "ca"),
        ("evil", ""),
        ("forged", "evil"),
    ):
        certificate(tmp_path, name, issuer)

    def client(name: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        if name is not None:
            context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        return context

    async def scenario() -> None:
        files = [str(tmp_path / name) for name in ("server.crt", "server.key", "ca.crt")]
        tls = tls_context(*files)
        async with extender("a", tls=tls, needs_certificate=True) as asked:
            await asked.stub.put(PODS, pod_object("p"))
            url = asked.url.replace("http:", "https:")
            question = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
            for verb, body in (
                ("filter", {"Pod": pod_object("p"), "NodeNames": ["a"]}),
                ("bind", question),
            ):
                async with asked.session.post(
                    f"{url}/{verb}", json=body, ssl=client(None)
                ) as response:
                    assert response.status == 403
                    assert "client certificate" in await response.text()

                with pytest.raises((aiohttp.ClientError, OSError)):
                    async with asked.session.post(
                        f"{url}/{verb}", json=body, ssl=client("forged")
                    ) as response:
                        raise AssertionError(response.status)

            assert "nodeName" not in asked.stub.get(PODS, "p", "default")["spec"]
            async with asked.session.get(f"{url}/healthz", ssl=client(None)) as response:
                assert response.status == 200
            async with asked.session.post(
                f"{url}/bind", json=question, ssl=client("client")
            ) as response:
                assert await response.json() == {"Error": ""}

    asyncio.run(scenario())


@pytest.mark.parametrize("forbidden", [False, True])
def test_claims_are_followed_where_the_server_shows_them(forbidden) -> None:
    async def scenario() -> None:
        stub, kinds = (
            ApiStub(),
            [f"{CLAIMS}/{kind}" for kind in ("resourceslices", "deviceclasses", "resourceclaims")],
        )
        if forbidden:
            stub.forbidden.update(kinds)

        for kind, found in zip(
            kinds, (slice_of([0], node="a"), class_of(), claim_named("c")), strict=True
        ):
            await stub.put(kind, found)

        said: list[str] = []
        async with served(stub, said.append) as api:
            made = Extender(api, Answers(ClusterState()))
            async with running(made.run()):
                await until(lambda: made.is_synced)
                known = made.state.claims
                assert [
                    len(one.objects) for one in (known.slices, known.classes, known.claims)
                ] == [not forbidden] * 3
                await stub.put(kinds[2], claim_named("d"))
                await until(lambda: forbidden or ("default", "d") in known.claims.objects)
                await stub.delete(kinds[0], "a-gpu.example.com")
                await until(lambda: not known.slices.objects)
                await until(lambda: len(said) == (len(kinds) if forbidden else 0))

        assert (
            all(any(kind in text and "403" in text for text in said) for kind in kinds) == forbidden
        )

    asyncio.run(scenario())


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_each_question_is_one_span_below_that_of_the_scheduler() -> None:
    sdk = pytest.importorskip(
        "opentelemetry.sdk.trace", reason="the extra tracing is not installed"
    )
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(sdk.export.SimpleSpanProcessor(exporter))

    async def scenario() -> None:
        async with extender("a", prepare=lambda app: trace_with(app, provider)) as asked:
            pod = pod_object("p", cpu=3)
            await asked.stub.put(PODS, pod)
            asked.session.headers["traceparent"] = f"00-{TRACE}-{PARENT}-01"
            await asked.filter(pod, "a")
            await asked.ask("prioritize", Pod=pod, NodeNames=["a"])
            assert await asked.bind("p", "a") == ""
            asked.session.headers["traceparent"] = "not-a-trace"
            assert "already assigned" in await asked.bind("p", "b")
            async with asked.session.post(f"{asked.url}/filter", data=b"nothing") as response:
                assert response.status == 400

    asyncio.run(scenario())
    filtered, scored, bound, refused, unread = exporter.get_finished_spans()
    assert [one.name for one in (filtered, scored, bound, refused, unread)] == [
        *VERBS[:2],
        "bind",
        "bind",
        "filter",
    ]
    for one in (filtered, scored, bound):
        assert one.kind.name == "SERVER"
        assert (f"{one.context.trace_id:032x}", f"{one.parent.span_id:016x}") == (TRACE, PARENT)
        assert one.attributes["k8s.pod.name"] == "p"
        assert one.attributes["k8s.pod.uid"] == "uid-p"
        assert one.status.status_code.name != "ERROR"

    assert bound.attributes["k8s.node.name"] == "a"
    assert refused.parent is None
    assert unread.status.status_code.name == "ERROR"


def test_the_standard_variables_say_whether_and_where_traces_go(monkeypatch) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the extra tracing is not installed"
    )
    said: list[str] = []
    received: list[tuple[str, bytes]] = []

    def wanted(app: web.Application) -> None:
        trace(app, "alignup-extender", said.append)

    async def collect(request: web.Request) -> web.Response:
        received.append((request.path, await request.read()))
        return web.Response()

    async def scenario() -> None:
        app = web.Application()
        app.router.add_post("/{any:.*}", collect)
        runner, port = await serve(app, ("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        try:
            async with extender("a", prepare=wanted) as asked:
                await asked.filter(pod_object("p", cpu=3), "a")
            assert [path for path, _ in received] == ["/v1/traces"]  # at the end at the latest
            assert all(one in received[0][1] for one in (b"alignup-extender", b"filter", b"uid-p"))
            for name, value in (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")):
                with monkeypatch.context() as changed:
                    changed.setenv(name, value)
                    async with extender("a", prepare=wanted) as asked:
                        await asked.filter(pod_object("p", cpu=3), "a")
        finally:
            await runner.cleanup()

    for name in (
        "OTEL_TRACES_EXPORTER",
        "OTEL_SDK_DISABLED",
        "OTEL_SERVICE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES",
    ):
        monkeypatch.delenv(name, raising=False)

    asyncio.run(scenario())
    assert len(received) == 1
    assert said == []


def test_without_the_extra_a_wish_for_traces_is_answered_in_one_line_and_nothing_is_imported(
    monkeypatch,
) -> None:
    said: list[str] = []
    before = {name for name in sys.modules if name.startswith("opentelemetry")}
    for name in (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_TRACES_EXPORTER",
    ):
        monkeypatch.delenv(name, raising=False)

    trace(web.Application(), "e", said.append)
    assert said == []
    assert {name for name in sys.modules if name.startswith("opentelemetry")} == before
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    trace(web.Application(), "e", said.append)
    assert said == [
        "OTEL_* ask for traces, which need the extra tracing: pip install 'alignup[tracing]'"
    ]
