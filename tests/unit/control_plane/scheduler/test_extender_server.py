"""The extender over HTTP: what it answers to whom, and what it refuses or bounds."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import shutil
import ssl
from operator import methodcaller
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from alignup.control_plane import serving
from alignup.control_plane.api_server.objects import Container
from alignup.control_plane.scheduler import extender_server
from alignup.control_plane.scheduler.cluster_state import (
    ClusterState,
)
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.extender_server import make_app
from alignup.control_plane.scheduler.extender_service import Extender
from alignup.control_plane.scheduler.extender_wire import (
    LARGEST_POD,
    LARGEST_REQUESTS,
    MOST_NAMES,
    MOST_PODS,
    decode_args,
    decode_preemption,
)
from alignup.control_plane.serving import serve, tls_context, trace, trace_with
from alignup.errors import InputError
from alignup.text.json_text import DEPTH_LIMIT
from fakes.api_server import PODS, ApiStub, served, until
from inputs.watched_objects import pod_object
from running.certificates import certificate
from running.served_extender import Asked, extender

DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
VERBS = ("filter", "prioritize", "preempt", "bind")


def test_a_pod_is_filtered_scored_and_bound_and_then_counts() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as client:
            pod = pod_object("p", cpu=3, gpu=1)
            await client.stub.put(PODS, pod)
            assert (await client.filter(pod, "a", "b"))["NodeNames"] == ["a", "b"]

            scores = await client.ask("prioritize", Pod=pod, NodeNames=["a", "b"])
            assert scores == [{"Host": "a", "Score": 8}, {"Host": "b", "Score": 8}]
            assert await client.bind("p", "a") == ""
            assert client.stub.get(PODS, "p", "default")["spec"]["nodeName"] == "a"

            second_pod = pod_object("q", cpu=3, gpu=2)
            assert (await client.filter(second_pod, "a"))["FailedNodes"] == {}

            full = await client.filter(pod_object("q", cpu=4, gpu=1), "a", "b")
            assert full["NodeNames"] == ["a", "b"]
            assert await client.bind("p", "a") == ""  # it is done already
            assert "already assigned" in await client.bind("p", "b")
            assert client.extender.state.pods.get("uid-p").node == "a"

    asyncio.run(scenario())


def test_health_and_metrics_are_served() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            await client.filter(pod_object("q", cpu=5), "a")
            async with client.session.get(f"{client.url}/healthz") as response:
                assert (response.status, await response.text()) == (200, "ok")
            text = await client.metrics()
            assert 'alignup_extender_nodes{known_by="holdings"} 1.0' in text
            assert 'alignup_extender_refused_nodes_total{resolvable="no"} 1.0' in text
            assert 'alignup_extender_request_seconds_count{verb="filter"} 1.0' in text

    asyncio.run(scenario())


def test_counters_are_shown_before_the_first_question() -> None:
    """One that appears with its first count is no increase for Prometheus."""

    async def scenario() -> None:
        async with extender("a") as client:
            text = await client.metrics()
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
            service = Extender(api, Answers(ClusterState(), fails_open=fails_open))
            runner, port = await serve(make_app(service), ("127.0.0.1", 0))
            client = Asked(stub, service, f"http://127.0.0.1:{port}", session)
            waits = {"Error": "alignup has not listed the whole cluster yet"}
            pod = pod_object("p")
            assert await client.filter(pod, "a") == waits
            assert await client.bind("p", "a") == waits["Error"]
            for verb in ("prioritize", "preempt"):
                async with session.post(
                    f"{client.url}/{verb}", json={"Pod": pod, "NodeNames": ["a"]}
                ) as response:
                    assert (response.status, await response.text()) == (503, waits["Error"])

            async with session.get(f"{client.url}/healthz") as response:
                assert response.status == 503
            for verb in VERBS:  # what cannot be read is told first
                async with session.post(f"{client.url}/{verb}", data=b"{") as response:
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
            extender("a") as client,
            client.session.post(f"{client.url}/{verb}", data=body) as response,
        ):
            assert response.status == 400
            assert "expected the JSON of Extender" in await response.text()

    asyncio.run(scenario())


def test_other_schedulers_evaluate_pods_on_all_nodes() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as client:
            await client.stub.put(PODS, pod_object("there", "a", cpu=4))
            await until(lambda: client.extender.state.pods)
            answer = await client.ask(
                "evaluate", pods=[pod_object("p", cpu=4), pod_object("q", cpu=3, gpu=1)]
            )
            assert answer["nodes"] == ["a", "b"]
            assert answer["exact"] == [True, True]
            assert [verdict["admitted"] for verdict in answer["pods"]] == [
                [False, True],
                [True, True],
            ]
            assert [verdict["numaNodes"] for verdict in answer["pods"]] == [[[], [1]], [[0], [0]]]
            assert [verdict["score"] for verdict in answer["pods"]] == [[0.0, 88.0], [88.0, 88.0]]

            for wrong in ({}, {"pods": 3}, {"pods": [pod_object("p")] * (MOST_PODS + 1)}):
                async with client.session.post(f"{client.url}/evaluate", json=wrong) as response:
                    assert response.status == 400

    asyncio.run(scenario())


def test_keys_in_lower_case_are_read_at_every_level() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as client:
            pod = pod_object("p", cpu=3)
            assert (await client.ask("filter", pod=pod, nodenames=["a"]))["NodeNames"] == ["a"]
            assert (await client.ask("filter", Pod=pod, nodenames=["a"]))["NodeNames"] == ["a"]
            assert [
                score["Host"] for score in await client.ask("prioritize", Pod=pod, nodeNames=["b"])
            ] == ["b"]
            victims = {"a": {"pods": [{"uid": "x"}], "numPDBViolations": 1}}
            answer = await client.ask("preempt", Pod=pod, nodeNameToMetaVictims=victims)
            assert answer["NodeNameToMetaVictims"] == {
                "a": {"Pods": [{"UID": "x"}], "NumPDBViolations": 1}
            }

    asyncio.run(scenario())


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 400)])
def test_the_number_of_names_is_bounded(more, status) -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            names = [f"n{number}" for number in range(MOST_NAMES + more)]
            victims = {"a": {"Pods": [{"UID": name} for name in names]}}

            for verb, fields in (
                ("filter", {"NodeNames": names}),
                ("prioritize", {"NodeNames": names}),
                ("preempt", {"NodeNameToMetaVictims": victims}),
            ):
                question = {"Pod": pod_object("p"), **fields}
                async with client.session.post(f"{client.url}/{verb}", json=question) as response:
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


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 400)])
def test_the_parts_of_a_question_are_bounded(more, status) -> None:
    """Levels, bytes of a pod, and bytes of what is read of its containers."""

    async def scenario() -> None:
        async with extender("a") as client:
            victims = {"a": {"Pods": [{"UID": "x"}]}}
            levels = DEPTH_LIMIT + more - 1
            deep = json.loads("[" * levels + "]" * levels)

            long = pod_object("p")
            long["metadata"]["annotations"] = {"x": ""}
            missing = LARGEST_POD + more - len(json.dumps(long))
            long["metadata"]["annotations"]["x"] = "x" * missing
            too_long = f"{LARGEST_POD + 1} bytes of a pod are more than the {LARGEST_POD} allowed"

            for fields, refusal in (
                ({"Pod": pod_object("p"), "Deep": deep}, f"more than {DEPTH_LIMIT} levels"),
                ({"Pod": long}, too_long),
                ({"Pod": filled(LARGEST_REQUESTS + more)}, f"{LARGEST_REQUESTS + 1} bytes"),
            ):
                for verb, asks in (
                    ("filter", {"NodeNames": ["a"]}),
                    ("preempt", {"NodeNameToMetaVictims": victims}),
                ):
                    body = io.BytesIO(json.dumps({**fields, **asks}).encode())
                    async with client.session.post(f"{client.url}/{verb}", data=body) as response:
                        text = await response.text()
                        assert response.status == status, (verb, text)
                        assert not more or refusal in text

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
    """It is service anew; what it has no memory for is too large."""
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
        async with extender("a") as client:
            question = json.dumps({"Pod": pod_object("p"), "NodeNames": ["a"]}).encode()

            async def chunks(body: bytes):
                yield body

            for length, status in ((10_000, 200), (10_001, 413)):
                body = question.ljust(length)
                async with client.session.post(
                    f"{client.url}/filter", data=body if is_told else chunks(body)
                ) as response:
                    assert response.status == status

            assert (await client.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_unfinished_questions_end_and_leave_room_for_others(monkeypatch) -> None:
    monkeypatch.setattr(extender_server, "_BODY_SECONDS", 0.3)
    monkeypatch.setattr(extender_server, "_LARGEST_IN_SUM", 50_000)

    async def scenario() -> None:
        async with extender("a") as client:
            port = int(client.url.rpartition(":")[2])
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
            assert (await client.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


@pytest.mark.parametrize("of", ["a number", "descriptors"])
def test_beyond_a_number_of_connections_the_longest_idle_one_makes_room(monkeypatch, of) -> None:
    """One that asks now and then stays, whenever it was opened.

    One below the bound, and one above.
    """
    if of == "a number":
        monkeypatch.setattr(serving, "MOST_CONNECTIONS", 6)
    else:
        monkeypatch.setattr(serving.resource, "getrlimit", lambda _: (24, 24))

    async def scenario() -> None:
        async with extender("a") as client:
            port = int(client.url.rpartition(":")[2])
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
        async with extender("a") as client:
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
                client.session.post(f"{client.url}/filter", data=io.BytesIO(body))
            )
            while not asking.done():
                async with client.session.get(f"{client.url}/healthz") as response:
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

        async with extender(*names) as client:
            answers = client.extender.answers
            judge = getattr(answers, verb)

            def noted(pod: Any, *rest: Any) -> Any:
                judged.extend([turns] * (len(rest[0]) if verb == "preempt" else 1))
                return judge(pod, *rest)

            monkeypatch.setattr(answers, verb, noted)
            counting = asyncio.create_task(count())
            if verb == "evaluate":
                answer = await client.ask(verb, pods=[pod_object(name, cpu=1) for name in names])
                assert [verdict["uid"] for verdict in answer["pods"]] == [
                    f"uid-{name}" for name in names
                ]
                assert all(
                    verdict["admitted"] == [True] * 25 and len(verdict["numaNodes"]) == 25
                    for verdict in answer["pods"]
                )
            else:
                victims = {name: {"Pods": [{"UID": "x"}]} for name in names}
                answer = await client.ask(
                    verb, Pod=pod_object("p", cpu=1), NodeNameToMetaVictims=victims
                )
                assert set(answer["NodeNameToMetaVictims"]) == set(names)

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


@pytest.mark.parametrize(("binds", "status"), [(True, 200), (False, 403)])
def test_pods_are_bound_only_where_that_is_allowed(binds, status) -> None:
    async def scenario() -> None:
        async with extender("a", binds=binds) as client:
            await client.stub.put(PODS, pod_object("p"))
            assert (await client.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]
            question = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
            async with client.session.post(f"{client.url}/bind", json=question) as response:
                assert response.status == status
            assert ("nodeName" in client.stub.get(PODS, "p", "default")["spec"]) is binds

    asyncio.run(scenario())


@pytest.mark.parametrize("item", [b"5", b"{}", b'{"metadata": {"name": 7}}', DEEP])
def test_nodes_that_are_none_are_answered_with_an_error(item) -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            body = (
                b'{"Pod": '
                + json.dumps(pod_object("p")).encode()
                + b', "Nodes": {"items": ['
                + item
                + b"]}}"
            )
            async with client.session.post(f"{client.url}/filter", data=body) as response:
                assert response.status == 400
                assert "expected" in await response.text()

            async with client.session.post(f"{client.url}/prioritize", data=body) as response:
                assert response.status == 400
                assert "expected" in await response.text()

    asyncio.run(scenario())


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b" " * (1 << 20))])
def test_packed_questions_are_refused_unread(verb, data) -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            async with client.session.post(
                f"{client.url}/{verb}", data=data, headers={"Content-Encoding": "gzip"}
            ) as response:
                assert response.status == 415
                assert await response.text() == "Content-Encoding gzip is not supported"
            assert (await client.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_question_that_breaks_off_leaves_no_traceback(caplog) -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", int(client.url.rpartition(":")[2])
            )
            writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            await writer.drain()
            writer.close()
            while 'errors_total{verb="filter"} 1.0' not in await client.metrics():
                pass
            assert (await client.filter(pod_object("p"), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())
    assert not caplog.records


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

    def context_of(name: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        if name is not None:
            context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        return context

    async def scenario() -> None:
        files = [str(tmp_path / name) for name in ("server.crt", "server.key", "ca.crt")]
        tls = tls_context(*files)
        async with extender("a", tls=tls, needs_certificate=True) as client:
            await client.stub.put(PODS, pod_object("p"))
            url = client.url.replace("http:", "https:")
            question = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
            for verb, body in (
                ("filter", {"Pod": pod_object("p"), "NodeNames": ["a"]}),
                ("bind", question),
            ):
                async with client.session.post(
                    f"{url}/{verb}", json=body, ssl=context_of(None)
                ) as response:
                    assert response.status == 403
                    assert "client certificate" in await response.text()

                with pytest.raises((aiohttp.ClientError, OSError)):
                    async with client.session.post(
                        f"{url}/{verb}", json=body, ssl=context_of("forged")
                    ) as response:
                        raise AssertionError(response.status)

            assert "nodeName" not in client.stub.get(PODS, "p", "default")["spec"]
            async with client.session.get(f"{url}/healthz", ssl=context_of(None)) as response:
                assert response.status == 200
            async with client.session.post(
                f"{url}/bind", json=question, ssl=context_of("client")
            ) as response:
                assert await response.json() == {"Error": ""}

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
        async with extender("a", prepare=lambda app: trace_with(app, provider)) as client:
            pod = pod_object("p", cpu=3)
            await client.stub.put(PODS, pod)
            client.session.headers["traceparent"] = f"00-{TRACE}-{PARENT}-01"
            await client.filter(pod, "a")
            await client.ask("prioritize", Pod=pod, NodeNames=["a"])
            assert await client.bind("p", "a") == ""
            client.session.headers["traceparent"] = "not-a-trace"
            assert "already assigned" in await client.bind("p", "b")
            async with client.session.post(f"{client.url}/filter", data=b"nothing") as response:
                assert response.status == 400

    asyncio.run(scenario())
    filtered, scored, bound, refused, unread = exporter.get_finished_spans()
    assert [span.name for span in (filtered, scored, bound, refused, unread)] == [
        *VERBS[:2],
        "bind",
        "bind",
        "filter",
    ]
    for span in (filtered, scored, bound):
        assert span.kind.name == "SERVER"
        assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
        assert span.attributes["k8s.pod.name"] == "p"
        assert span.attributes["k8s.pod.uid"] == "uid-p"
        assert span.status.status_code.name != "ERROR"

    assert bound.attributes["k8s.node.name"] == "a"
    assert refused.parent is None
    assert unread.status.status_code.name == "ERROR"


def test_the_standard_variables_say_whether_and_where_traces_go(monkeypatch) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the extra tracing is not installed"
    )
    said: list[str] = []
    received: list[tuple[str, bytes]] = []

    def with_traces(app: web.Application) -> None:
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
            async with extender("a", prepare=with_traces) as client:
                await client.filter(pod_object("p", cpu=3), "a")
            assert [path for path, _ in received] == ["/v1/traces"]  # at the end at the latest
            assert all(
                text in received[0][1] for text in (b"alignup-extender", b"filter", b"uid-p")
            )

            for name, value in (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")):
                with monkeypatch.context() as changed:
                    changed.setenv(name, value)
                    async with extender("a", prepare=with_traces) as client:
                        await client.filter(pod_object("p", cpu=3), "a")
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
