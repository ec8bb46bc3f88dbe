"""The extender over HTTP, beside an API server of our own: it watches, answers, binds and wakes."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import aiohttp
import pytest

from alignup.errors import AlignupWarning
from alignup.scheduler.api_client import TOPOLOGIES
from alignup.scheduler.extender_answers import Answers
from alignup.scheduler.extender_server import make_app
from alignup.scheduler.extender_service import WOKEN, Extender
from alignup.scheduler.report import HOLDINGS, NODE, Description
from alignup.scheduler.serving import serve
from alignup.scheduler.state import ClusterState
from alignup.scheduler.watch import Pauses
from api_stub import NODES, PODS, ApiStub, running, served, until
from watched import description, pod_object, topology

DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
FAST = Pauses(first=0.01, longest=0.05)
EMPTY = Description().template(json.dumps(description()), {})


class Asked:
    """An extender that is served, the cluster behind it, and a client."""

    def __init__(self, stub: ApiStub, extender: Extender, url: str, session: aiohttp.ClientSession) -> None:
        self.stub, self.extender, self.url, self.session = stub, extender, url, session

    async def ask(self, verb: str, **fields: Any) -> Any:
        """Ask as a scheduler does."""
        async with self.session.post(f"{self.url}/{verb}", json=fields) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        return await self.ask("filter", Pod=pod, Nodes=None, NodeNames=list(names))

    async def metrics(self) -> str:
        async with self.session.get(f"{self.url}/metrics") as response:
            return await response.text()

    async def bind(self, name: str, node: str) -> str:
        found = await self.ask("bind", PodName=name, PodNamespace="default", PodUID=f"uid-{name}", Node=node)
        return found["Error"]


@asynccontextmanager
async def extender(*nodes: str, fails_open: bool = True):
    """Serve an extender of some nodes that report their holdings."""
    stub = ApiStub()
    for name in nodes:
        await stub.put(NODES, {"metadata": {"name": name}})
        await stub.put(TOPOLOGIES, topology(name, described=description(), holdings=EMPTY))
    async with served(stub) as api, aiohttp.ClientSession() as session:
        made = Extender(api, Answers(ClusterState(), fails_open=fails_open), pauses=FAST)
        runner, port = await serve(make_app(made), ("127.0.0.1", 0))
        try:
            async with running(made.run()):
                await until(lambda: made.is_synced)
                yield Asked(stub, made, f"http://127.0.0.1:{port}", session)
        finally:
            await runner.cleanup()


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
            assert asked.extender.state.bound("uid-p").node == "a"

    asyncio.run(scenario())


def test_a_choice_that_another_binding_spoilt_is_refused_and_nothing_is_bound() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            pods = [pod_object(name, cpu=4) for name in ("p", "q")]
            for pod in pods:
                await asked.stub.put(PODS, pod)
                assert (await asked.filter(pod, "a"))["NodeNames"] == ["a"]
            assert await asked.bind("p", "a") == ""
            assert await asked.bind("q", "a") == "NUMA: node a can no longer take the pod"
            assert "nodeName" not in asked.stub.get(PODS, "q", "default")["spec"]

    asyncio.run(scenario())


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
                assert {path.rpartition("/pods/")[0] for path in paths} == {"/api/v1/namespaces/default"}
                asked.stub.requests.clear()
            for name in ("", ".", ".."):
                assert f"expected the name of an object, got '{name}'" in await asked.bind(name, "a")
            assert not [path for method, path in asked.stub.requests if method == "POST" or "/pods/" in path]

    asyncio.run(scenario())


def test_a_binding_whose_answer_got_lost_is_done() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            asked.stub.binds_then_fails = True
            await asked.stub.put(PODS, pod_object("p", cpu=4))
            assert await asked.bind("p", "a") == ""
            assert (await asked.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == []

    asyncio.run(scenario())


def test_a_binding_of_a_pod_that_another_one_of_its_name_replaced_is_an_error() -> None:
    """The other one is bound to the very node, yet the pod that was asked for is not, and holds nothing."""

    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.filter(pod_object("p", cpu=4), "a")
            other = pod_object("p", "a", cpu=1)
            other["metadata"]["uid"] = "uid-other"
            await asked.stub.put(PODS, other)
            await until(lambda: asked.extender.state.bound("uid-other"))
            assert "409" in await asked.bind("p", "a")
            assert asked.extender.state.bound("uid-p") is None
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
            await until(lambda: asked.extender.state.bound("uid-first"))
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
            await until(lambda: asked.extender.state.pod_count)
            refused = await asked.filter(pod_object("q", cpu=4), "a")
            assert refused["FailedNodes"] == {"a": "NUMA: too little cpu is left on the node"}
            assert WOKEN not in asked.stub.get(NODES, "a")["metadata"].get("annotations", {})
            await asked.stub.delete(PODS, "p", "default")
            await until(lambda: WOKEN in asked.stub.get(NODES, "a")["metadata"].get("annotations", {}))

    asyncio.run(scenario())


def test_an_extender_that_starts_again_knows_what_is_bound() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            await asked.stub.put(PODS, pod_object("p", "a", cpu=4))
            async with served(asked.stub) as api:
                second = Extender(api, Answers(ClusterState()), pauses=FAST)
                async with running(second.run()):
                    await until(lambda: second.is_synced)
                    assert second.state.bound("uid-p") is not None
                    assert not second.answers.state.members["a"].node.try_admit(pod_object("q", cpu=4))

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


@pytest.mark.parametrize("fails_open", [True, False])
def test_before_the_cluster_is_known_it_fails_open_or_closed(fails_open) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api, aiohttp.ClientSession() as session:
            made = Extender(api, Answers(ClusterState(), fails_open=fails_open))
            runner, port = await serve(make_app(made), ("127.0.0.1", 0))
            asked = Asked(stub, made, f"http://127.0.0.1:{port}", session)
            found = await asked.filter(pod_object("p"), "a")
            async with session.get(f"{asked.url}/healthz") as response:
                assert response.status == 503
            await runner.cleanup()
        if fails_open:
            assert found["NodeNames"] == ["a"]
        else:
            assert found == {"Error": "alignup has not seen the whole cluster yet"}

    asyncio.run(scenario())


def test_what_is_no_question_is_answered_with_an_error() -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            assert "expected the JSON of ExtenderArgs" in (await asked.ask("filter", Pod=3))["Error"]
            async with asked.session.post(f"{asked.url}/prioritize", json=3) as response:
                assert response.status == 400

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
            await until(lambda: asked.extender.state.pod_count)
            async with served(asked.stub) as api:
                second = Extender(api, Answers(ClusterState()), pauses=FAST)
                async with running(second.run()):
                    await until(lambda: second.is_synced)
                    assert set(second.state.members) == {"b"}

    with pytest.warns(AlignupWarning, match=f"what node a reports is passed over: .*{annotation}"):
        asyncio.run(scenario())


@pytest.mark.parametrize("item", [b"5", b"{}", b'{"metadata": {"name": 7}}', DEEP])
def test_nodes_that_are_none_are_answered_with_an_error(item) -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            body = (
                b'{"Pod": ' + json.dumps(pod_object("p")).encode() + b', "Nodes": {"items": [' + item + b"]}}"
            )
            async with asked.session.post(f"{asked.url}/filter", data=body) as response:
                assert response.status == 200
                assert "expected" in (await response.json())["Error"]
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
                assert await response.text() == "expected a body without Content-Encoding, got gzip"
            assert (await asked.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_question_that_breaks_off_leaves_no_traceback(caplog) -> None:
    async def scenario() -> None:
        async with extender("a") as asked:
            _, writer = await asyncio.open_connection("127.0.0.1", int(asked.url.rpartition(":")[2]))
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
            made = Extender(api, Answers(ClusterState()), pauses=FAST, synced=lambda: said.append("all"))
            async with running(made.run()):
                await until(lambda: bool(said))
                assert made.is_synced

    asyncio.run(scenario())
    assert said == ["all"]
