"""A process ends when it is told to, whatever it does.

What clients do wrong is a line of its log.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
import subprocess
import sys

import pytest
from aiohttp import web

from alignup.control_plane import serving

# what is still under way when the process is told to end; without a bound each of them would go on
BUSY = {
    "a task that does not end": """
async def work():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
""",
    "a thread": """
async def work():
    await asyncio.to_thread(time.sleep, 3600)
""",
    "a clean-up": """
async def work():
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(3600)
""",
}
PROGRAM = """
import asyncio, time
from alignup.control_plane import serving
serving.GRACE = 1
{work}
asyncio.run(serving.run_until_told(work(), lambda: print("runs", flush=True)))
"""

SERVER = """
import asyncio
from aiohttp import web
from alignup.cli.agent import start_logging
from alignup.control_plane.serving import run_until_told, serve
start_logging("{form}", "info")
async def work():
    runner, port = await serve(web.Application(), ("127.0.0.1", 0))
    print(port, flush=True)
    try:
        await asyncio.sleep(3600)
    finally:
        await runner.cleanup()
asyncio.run(run_until_told(work()))
"""


@pytest.mark.parametrize("busy", BUSY)
def test_a_process_that_is_told_to_end_ends(busy: str) -> None:
    """Whatever is under way."""
    with subprocess.Popen(  # noqa: S603  # ours
        [sys.executable, "-c", PROGRAM.format(work=BUSY[busy])], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.terminate()
        assert process.wait(60) == -signal.SIGALRM


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_client_does_wrong_is_one_line_of_the_log(form: str) -> None:
    """No traceback of the server's library."""
    wrong = [
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ]

    async def ask(port: int) -> list[bytes]:
        answers = []
        for one in wrong:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(one)
            answers.append(await reader.read(12))
            writer.close()

        return answers

    with subprocess.Popen(  # noqa: S603  # ours
        [sys.executable, "-c", SERVER.format(form=form)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        answers = asyncio.run(ask(int(process.stdout.readline())))
        process.terminate()
        _, logged = process.communicate(timeout=60)

    assert process.returncode == 0
    assert all(one.startswith(b"HTTP/1.") for one in answers)
    lines = logged.splitlines()
    assert 1 <= len(lines) <= len(wrong)
    assert "Traceback" not in logged
    assert all(
        isinstance(json.loads(line), dict) if form == "json" else "Error handling" in line
        for line in lines
    )


@pytest.mark.parametrize(("most", "accepted"), [(512, 16), (3, 3)])
def test_few_connections_are_accepted_at_once_and_many_may_wait(
    monkeypatch, most, accepted
) -> None:
    """The kernel tells how many may wait where it tells of other sockets which packets were lost."""
    servers: list[tuple[asyncio.Server, int]] = []
    create_server = asyncio.BaseEventLoop.create_server

    async def noted(loop, *arguments, backlog: int, **options):
        server = await create_server(loop, *arguments, backlog=backlog, **options)
        servers.append((server, backlog))
        return server

    async def scenario() -> None:
        runner, _ = await serving.serve(web.Application(), ("127.0.0.1", 0))
        [(server, at_once)] = servers
        facts = server.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        await runner.cleanup()
        assert at_once == accepted
        assert struct.unpack_from("I", facts, 28) == (128,)

    monkeypatch.setattr(serving, "MOST_CONNECTIONS", most)
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_server", noted)
    asyncio.run(scenario())
