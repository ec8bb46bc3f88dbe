"""Odd questions and odd objects.

Each is answered or ignored in order, and the next question is answered as before.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import pytest

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.kubelet.node_resource_topology.report import HOLDINGS, NODE
from fakes.api_server import NODES, PODS
from inputs.watched_objects import description, pod_object, topology
from running.served_extender import EMPTY, extender

POD = pod_object("p", cpu=1)
TEXT = json.dumps(POD)
ARGS = json.dumps({"Pod": POD, "NodeNames": ["a"]})
BIG = "9" * 400
DEEP = "[" * 400 + "]" * 400

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    [None],
    {},
    {"": None},
    {"a": {"b": [1]}},
    "\u0000",
    "\ud800",
    "é" * 300,
)

PLACES = (
    "metadata",
    "metadata.name",
    "metadata.uid",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.ownerReferences",
    "spec",
    "spec.containers",
    "spec.containers.0",
    "spec.containers.0.name",
    "spec.containers.0.resources",
    "spec.containers.0.resources.requests",
    "spec.containers.0.resources.limits.cpu",
    "spec.initContainers",
    "spec.priority",
    "spec.nodeName",
    "spec.affinity",
    "spec.topologySpreadConstraints",
    "spec.nodeSelector",
    "spec.resourceClaims",
    "spec.resources",
    "status",
    "status.phase",
    "status.startTime",
)


def question(**fields: Any) -> str:
    """Return a question of `filter` with other fields."""
    return json.dumps({"Pod": POD, "NodeNames": ["a"], **fields})


def changed(place: str, value: Any) -> str:
    """Return a question of `filter` whose pod has something else at a place."""
    pod = json.loads(TEXT)
    at = pod
    *path, last = place.split(".")
    for key in path:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})

    if isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    return json.dumps({"Pod": pod, "NodeNames": ["a"]})


BODIES = (
    "",
    " ",
    "null",
    "true",
    "0",
    '"x"',
    "[]",
    "{}",
    "{",
    "}",
    "nan",
    "Infinity",
    "\ufeff{}",
    "{'Pod': 1}",
    "{} {}",
    ARGS + ARGS,
    ARGS[:-1],
    ARGS + "\n\n",
    "\n" + ARGS,
    ARGS.replace("NodeNames", "NODENAMES"),
    question(NodeNames=None),
    question(NodeNames=[]),
    question(NodeNames=["a", "a", "a"]),
    question(NodeNames=[""]),
    question(NodeNames=[None]),
    question(NodeNames="a"),
    question(NodeNames={"a": 1}),
    question(Nodes={"items": [1]}),
    question(Nodes={"items": [{}]}, NodeNames=None),
    question(Nodes={"items": [{"metadata": {"name": 1}}]}, NodeNames=None),
    question(Nodes=[], NodeNames=None),
    question(Pod=None),
    question(Pod=[]),
    '{"Pod":' + TEXT + ',"pod":' + TEXT + ',"NodeNames":["a"]}',
    '{"Pod":' + TEXT + ',"Pod":null,"NodeNames":["a"]}',
    '{"NodeNames":["a"],"NodeNames":["b"],"Pod":' + TEXT + "}",
    ARGS.replace('"cpu": "1"', f'"cpu": {BIG}'),
    ARGS.replace('"cpu": "1"', '"cpu": 1e999'),
    ARGS.replace('"cpu": "1"', '"cpu": -0'),
    ARGS.replace('"cpu": "1"', f'"cpu": "{BIG}"'),
    ARGS.replace('"cpu": "1"', '"cpu": "1e400"'),
    ARGS.replace('"cpu": "1"', f'"cpu": {DEEP}'),
    ARGS.replace('"cpu": "1"', '"cpu": "1", "cpu": "2"'),
    ARGS.replace('"main"', '"main\\u0000"'),
    ARGS.replace('"main"', '"' + "m" * 70_000 + '"'),
)


def raw(body: bytes, path: str = "/filter", more: str = "", length: int | None = None) -> bytes:
    """Return a request as bytes."""
    count = len(body) if length is None else length
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {count}\r\n{more}\r\n".encode() + body
    )


REQUESTS = (
    b"",
    b"\r\n\r\n",
    b"GET",
    b"POST /filter HTTP/1.1\r\n",
    b"\x00" * 100,
    b"\xff\xfe" * 50,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    raw(b"{}", length=-1),
    raw(b"{}", length=1 << 70),
    raw(b"{}", length=100),
    raw(b"{}", more="Content-Length: 7\r\n"),
    raw(b"{}", more="Transfer-Encoding: chunked\r\n"),
    raw(b"5\r\n{}", more="Transfer-Encoding: gzip, chunked\r\n"),
    raw(b"{}", more="Content-Encoding: deflate\r\n"),
    raw(b"{}", more="Content-Encoding: br, gzip\r\n"),
    raw(b"{}", more="Expect: 100-continue\r\n"),
    raw(b"{}", more="Upgrade: websocket\r\nConnection: upgrade\r\n"),
    raw(b"{}", more="X: " + "y" * 9_000 + "\r\n"),
    raw(b"{}", more="X\r\n"),
    raw(b"{}", more=" folded: x\r\n"),
    raw(b"{}", path="/../filter"),
    raw(b"{}", path="/filter/"),
    raw(b"{}", path="//filter"),
    raw(b"{}", path="/%66ilter"),
    raw(b"{}", path="/filter?" + "a=b&" * 2_000),
    raw(b"{}", path="*"),
    raw(b"{}", path="http://other/filter"),
    raw(b"{}", more="traceparent: " + "0" * 300 + "\r\n"),
    raw(b"{}", more="traceparent: 00-0-0-0\r\ntraceparent: x\r\n"),
    b"DELETE /filter HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/0.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    raw(ARGS.encode()) * 20,
)


async def still_answers(served: Any) -> None:
    """Check that the usual question gets the usual answer."""
    answer = await served.filter(pod_object("usual", cpu=3), "a")
    assert answer["NodeNames"] == ["a"]
    async with served.session.get(f"{served.url}/healthz") as response:
        assert response.status == 200


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind", "evaluate"])
def test_a_body_that_is_odd_is_answered_or_refused_in_one_line(verb, caplog) -> None:
    bodies = [*BODIES, *(changed(place, value) for place in PLACES for value in ODD)]

    async def scenario() -> None:
        async with extender("a") as served:
            for body in bodies:
                data = body.encode("utf-8", "surrogatepass")
                async with served.session.post(f"{served.url}/{verb}", data=data) as response:
                    text = await response.text()
                    assert response.status < 500, (body[:200], text)
                    if response.status == 200:
                        json.loads(text)
                    else:
                        assert response.status in {400, 413}, (body[:200], text)
                        assert len(text.splitlines()) == 1, text

            await still_answers(served)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())

    assert not [record for record in caplog.records if record.exc_info]


def test_a_request_that_is_odd_ends_in_order(caplog) -> None:
    async def scenario() -> None:
        async with extender("a") as served:
            host, _, port = served.url.removeprefix("http://").rpartition(":")
            for data in REQUESTS:
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                with suppress(OSError):
                    writer.write_eof()
                    async with asyncio.timeout(20):
                        await reader.read(1 << 20)

                writer.transport.abort()

            await still_answers(served)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())

    # what aiohttp says of bad HTTP is cut to a line by the command
    assert not [
        record for record in caplog.records if record.exc_info and record.name != "aiohttp.server"
    ]


def test_objects_that_are_odd_are_ignored_one_by_one(caplog, recwarn) -> None:
    """As they come by a watch; a node that reports afterwards is known as before.

    Half a surrogate pair is left out: Go writes none, and what has one is no JSON as a whole.
    """
    sendable = [value for value in ODD if value != "\ud800"]
    good = topology("b", described=description(), holdings=EMPTY)

    async def scenario() -> None:
        async with extender("a") as served:
            stub = served.stub
            for number, (place, value) in enumerate(
                (place, value) for place in PLACES for value in ODD
            ):
                if place in {"metadata", "metadata.name", "metadata.namespace"}:
                    continue  # the stand-in keeps objects by these
                pod = json.loads(changed(place, value))["Pod"]
                pod["metadata"]["name"] = f"odd-{number}"
                await stub.put(PODS, pod)

            for number, value in enumerate(sendable):
                for key in (NODE, HOLDINGS):
                    odd_topology = topology(
                        f"odd-{number}", described=description(), holdings=EMPTY
                    )
                    odd_topology["metadata"]["annotations"][key] = value
                    await stub.put(TOPOLOGIES, odd_topology)

                for key in ("zones", "attributes"):
                    await stub.put(TOPOLOGIES, {**topology(f"odd-{key}-{number}"), key: value})
                await stub.put(
                    NODES,
                    {"metadata": {"name": f"odd-{number}", "labels": value, "annotations": value}},
                )

            await stub.put(TOPOLOGIES, good)
            async with asyncio.timeout(60):
                # any change may be the last
                while "b" not in served.extender.state.members:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

            await still_answers(served)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())

    assert not [record for record in caplog.records if record.exc_info]
    assert all(len(str(warning.message).splitlines()) == 1 for warning in recwarn)
