"""Health and metrics over HTTP, for clients of any manners."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus

import pytest

from alignup.control_plane.gates import status_server
from alignup.control_plane.gates.status_server import metrics_text, serving
from alignup.errors import InputError

PAGES = {
    "/healthz": lambda: (HTTPStatus.OK, "ok"),
    "/away": lambda: (HTTPStatus.SERVICE_UNAVAILABLE, "not yet ö"),
}


async def closed(writer) -> None:
    """Close a connection that the server may have dropped already."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def answers(*requests: bytes, pages=PAGES):
    """Return what the server says to each request, which stays open."""

    async def scenario():
        texts = []
        async with serving(("127.0.0.1", 0), pages) as port:
            for request in requests:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                if not request.endswith(b"\r\n\r\n"):
                    writer.write_eof()
                texts.append(await reader.read())
                await closed(writer)
        return texts

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("request_text", "status", "body"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK", "ok"),
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", "200 OK", "ok"),
        (b"GET /away HTTP/1.1\r\n\r\n", "503 Service Unavailable", "not yet ö"),
        (b"GET /other HTTP/1.1\r\n\r\n", "404 Not Found", "no such page\n"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "only GET is answered\n"),
        (b"GET\r\n\r\n", "400 Bad Request", "no request of HTTP\n"),
        (b"\xff\xfe\r\n\r\n", "400 Bad Request", "no request of HTTP\n"),
        (b"GET /healthz", "400 Bad Request", "no request of HTTP\n"),
        (b"GET /healthz HTTP/1.1\r\n" + b"a" * 20_000, "400 Bad Request", "no request of HTTP\n"),
    ],
)
def test_each_request_has_one_answer(request_text, status, body) -> None:
    (text,) = answers(request_text)
    head, _, content = text.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}\r\n".encode())
    assert f"Content-Length: {len(content)}".encode() in head
    assert content.decode() == body


def test_a_silent_client_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(status_server, "_REQUEST_SECONDS", 0.2)

    async def scenario() -> None:
        async with serving(("127.0.0.1", 0), PAGES) as port:
            silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await silent.read() == b""
            await closed(silent_writer)

    asyncio.run(scenario())


def test_who_opens_many_connections_keeps_nobody_from_asking_for_health(monkeypatch) -> None:
    """Else a kubelet would restart the keeper for them."""
    monkeypatch.setattr(status_server, "_MOST_CONNECTIONS", 4)

    async def scenario() -> None:
        async with serving(("127.0.0.1", 0), PAGES) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                await closed(writer)

            # the oldest are closed long before their time is over
            assert [await reader.read() for reader, _ in silent[:16]] == [b""] * 16
            for _, writer in silent:
                await closed(writer)

    asyncio.run(scenario())


def test_an_address_that_cannot_be_had_is_said() -> None:
    async def scenario() -> None:
        async with serving(("127.0.0.1", 0), PAGES) as port:
            with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port}: "):
                async with serving(("127.0.0.1", port), PAGES):
                    pass

    asyncio.run(scenario())


def test_metrics_are_in_the_text_format() -> None:
    metrics = {"a_total": ("counter", "What is counted.", 3), "b": ("gauge", "Now.", 0.25)}
    assert metrics_text(metrics) == (
        "# HELP a_total What is counted.\n# TYPE a_total counter\na_total 3\n"
        "# HELP b Now.\n# TYPE b gauge\nb 0.25\n"
    )
    samples = {'{reason="a"}': 1, "_count": 2.5}
    assert metrics_text({"c": ("histogram", "x", samples)}) == (
        '# HELP c x\n# TYPE c histogram\nc{reason="a"} 1\nc_count 2.5\n'
    )
    assert "1000001" in metrics_text({"a": ("counter", "x", 1_000_001)})
