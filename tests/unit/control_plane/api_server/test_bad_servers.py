"""What API servers should not do costs few requests and little memory.

Pauses are counted, not waited for.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from alignup.control_plane.api_server import watch
from alignup.control_plane.api_server.api_client import Api, ApiError, Pauses
from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.api_server.watch import Calls, Follower
from fakes.api_server import PODS, REAL_SLEEP, ApiStub, Clock, running, served, until
from inputs.watched_objects import pod_object

if TYPE_CHECKING:
    from collections.abc import Callable

LIST: dict[str, Any] = {"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": []}
GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
EXPIRED = {"kind": "Status", "code": 410, "message": "too old"}


def said(*events: Any) -> Callable[[], web.Response]:
    """Return a function that makes a watch of some events, which ends at once."""
    text = "".join(f"{json.dumps(event)}\n" for event in events)
    return lambda: web.Response(text=text, content_type="application/json")


def raw(body: bytes, status: int = 200, **headers: str) -> Callable[[], web.Response]:
    """Return a function that makes an answer."""
    return lambda: web.Response(
        body=body, status=status, headers={"Content-Type": "application/json", **headers}
    )


def endless(number: int) -> dict[str, Any]:
    """Return a page of the same objects as all others, with a token of its own."""
    return {
        "metadata": {"resourceVersion": "5", "continue": f"t{number}"},
        "items": [pod_object("same")],
    }


@cache
def bomb() -> bytes:
    """Return 64 MiB, packed."""
    return gzip.compress(bytes(64 << 20))


def packed() -> web.Response:
    return raw(bomb(), **{"Content-Encoding": "gzip"})()


MANNERS: dict[str, tuple[Callable[[int], Any], Callable[[], web.Response]]] = {
    "a watch that ends at once": (lambda _: LIST, said()),
    "a watch that says 410": (lambda _: LIST, said(GONE)),
    "410 as the status of a watch": (lambda _: LIST, raw(json.dumps(EXPIRED).encode(), 410)),
    "an event that is none": (lambda _: LIST, said(3)),
    "an event of no known kind": (lambda _: LIST, said({"type": "ODD", "object": {}})),
    "an error that is none": (lambda _: LIST, said({"type": "ERROR", "object": 3})),
    "an error of status 0": (lambda _: LIST, said({"type": "ERROR", "object": {}})),
    "half an event": (lambda _: LIST, raw(b'{"type":')),
    "no JSON in a watch": (lambda _: LIST, raw(b"<html>\n")),
    "a watch that is refused": (lambda _: LIST, raw(b"{}", 500)),
    "too many watches": (lambda _: LIST, raw(b"{}", 429)),
    "a watch that is forbidden": (lambda _: LIST, raw(b"{}", 403)),
    "a packed watch": (lambda _: LIST, packed),
    "a continue that does not change": (lambda _: {**LIST, "metadata": {"continue": "t"}}, said()),
    "pages that repeat": (endless, said()),
    "a list that is none": (lambda _: [], said()),
    "no JSON in a list": (lambda _: raw(b"<html>"), said()),
    "a packed list": (lambda _: packed, said()),
    "a list that is refused": (lambda _: raw(b"{}", 503), said()),
    "a list that is gone": (lambda _: raw(json.dumps(EXPIRED).encode(), 410), said()),
    "a list without a version": (lambda _: {"items": []}, said(GONE)),
}


@pytest.mark.parametrize("manner", MANNERS)
def test_a_bad_server_is_asked_less_and_less_often(manner, monkeypatch) -> None:
    """In 300 seconds of pauses of 0.1 to 10 seconds.

    6 until pauses are longest, then one each 10 seconds.
    """
    lists, watched = MANNERS[manner]
    clock, times = Clock(), []

    async def handle(request: web.Request) -> web.Response:
        times.append(clock.now)
        if "watch" in request.query:
            return watched()
        page = lists(len(times))
        return page() if callable(page) else web.json_response(page)

    async def scenario() -> None:
        stub = ApiStub()
        stub.handle = handle  # type: ignore[method-assign]
        async with served(stub, pauses=Pauses()) as api:
            nothing: Calls[Any] = Calls(lambda _: None, lambda _: None, lambda _: None)
            follower = Follower(api, PODS, decode_pod, nothing, clock=lambda: clock.now)
            monkeypatch.setattr(watch.asyncio, "sleep", clock.sleep)
            async with running(follower.run()):
                while clock.now < 300:  # its time, not ours
                    await REAL_SLEEP(0.001)

            monkeypatch.undo()

    asyncio.run(scenario())
    print(f"{manner}: {len(times) / 300:.2f} requests a second")  # noqa: T201  # shown with -s
    # at most a list and a watch, or two pages, for each of some 36 pauses
    assert len(times) <= 2 * 40


def test_a_list_that_is_whole_in_many_pages_is_no_error() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        stub.page = 1
        for number in range(30):
            await stub.put(PODS, pod_object(f"p{number}"))
        pods: list[Any] = []
        nothing: Calls[Any] = Calls(pods.extend, lambda _: None, lambda _: None)
        async with served(stub) as api, running(Follower(api, PODS, decode_pod, nothing).run()):
            await until(lambda: len(pods) == 30)

    asyncio.run(scenario())


def test_a_server_that_hangs_up_gives_no_answer() -> None:
    """Before its answer, or within it."""

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if request.method == "GET":
            answer = web.StreamResponse(headers={"Content-Length": "2"})
            await answer.prepare(request)

        request.transport.abort()
        return web.Response()

    async def scenario() -> None:
        stub = ApiStub()
        stub.handle = handle  # type: ignore[method-assign]
        async with served(stub) as api:
            for method in ("DELETE", "GET"):
                with pytest.raises(ApiError, match=f"^{method} {PODS}: no answer: "):
                    await api.request(method, PODS)

    asyncio.run(scenario())


def test_an_answer_is_bounded(monkeypatch) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 2000)

    async def scenario() -> None:
        stub = ApiStub()
        stub.handle = handle  # type: ignore[method-assign]
        async with served(stub) as api:
            assert isinstance(api, Api)
            assert len(await api.request("GET", PODS)) == 2000
            monkeypatch.setattr("alignup.control_plane.api_server.api_client._LARGEST_ANSWER", 1999)
            with pytest.raises(ApiError, match="more than 1999 bytes"):
                await api.request("GET", PODS)

    asyncio.run(scenario())
