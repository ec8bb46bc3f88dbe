"""Health is told while the largest questions are worked on.

How long it takes is said, beside each kind of question.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.extender_server import LARGEST_QUESTION, make_app
from alignup.control_plane.scheduler.extender_service import Extender
from alignup.control_plane.serving import serve
from fakes.api_server import ApiStub, running, served, until

if TYPE_CHECKING:
    from collections.abc import Iterator

POD = '"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{"containers":[{"name":"c"}]}}'


def filled(head: str, unit: str, tail: str) -> bytes:
    """Return a body of the largest length, or a little less, of one thing again and again."""
    count = (LARGEST_QUESTION - len(head) - len(tail)) // (len(unit) + 1)
    return f"{head}{','.join([unit] * count)}{tail}".encode()


def questions() -> Iterator[tuple[str, bytes]]:
    """Yield questions that take long, one at a time."""
    labels = ",".join(f'"label-{number}.example.com/x":"value-{number}"' for number in range(60))
    conditions = ",".join(['{"type":"Ready","lastHeartbeatTime":"2026-01-01T00:00:00Z"}'] * 40)
    node = (
        '{"metadata":{"name":"node-%05d","labels":{'
        + labels
        + '}},"status":{"conditions":['
        + conditions
        + "]}}"
    )

    items = ",".join(node % number for number in range(10_000))
    yield "10,000 whole nodes", f'{{{POD},"Nodes":{{"items":[{items}]}}}}'.encode()

    yield "names", filled(f'{{{POD},"NodeNames":[', '"a"', "]}")
    yield "brackets", filled(f'{{{POD},"NodeNames":["a"],"x":[', "[]", "]}")
    yield (
        "containers",
        filled(
            '{"Pod":{"metadata":{},"spec":{"containers":[', '{"name":"c"}', ']}},"NodeNames":["a"]}'
        ),
    )
    yield (
        "keys of another case",
        filled(f'{{{POD.lower()},"nodes":{{"items":[', '{"metadata":{"name":"n"}}', "]}}"),
    )


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Let some processes take all the time of a processor that they can get."""
    command = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(command))  # noqa: S603  # our own
            stack.callback(process.kill)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("busy", [0, 2])
def test_health_beside_the_largest_questions(busy: int) -> None:
    """The numbers are said, not judged: a busy machine is no mistake.

    docs/cluster.md has them as they were on two cores with nothing else to do.
    """
    sys.stdout.write(f"beside {busy} busy processes:\n")
    with busy_processes(busy):
        measure_health()


def measure_health() -> None:
    """Ask for health all the time while each of the questions is answered."""

    async def scenario() -> None:
        async with served(ApiStub()) as api, aiohttp.ClientSession() as session:
            extender = Extender(api, Answers(ClusterState(), fails_open=True))
            runner, port = await serve(make_app(extender), ("127.0.0.1", 0))
            url = f"http://127.0.0.1:{port}"
            async with running(extender.run()):
                await until(lambda: extender.watch.is_synced)
                for name, body in questions():
                    durations = []
                    start = time.perf_counter()
                    asking = asyncio.ensure_future(
                        session.post(f"{url}/filter", data=io.BytesIO(body))
                    )
                    while not asking.done():
                        asked_at = time.perf_counter()
                        async with session.get(f"{url}/healthz") as response:
                            assert response.status == 200
                        durations.append(time.perf_counter() - asked_at)
                        await asyncio.sleep(0.002)

                    async with asking.result() as response:
                        status = response.status
                    durations.sort()
                    answered, p99 = (
                        time.perf_counter() - start,
                        durations[len(durations) * 99 // 100],
                    )
                    sys.stdout.write(
                        f"{name}: {len(body) >> 20} MiB, answer {status} after {answered:.1f} s; "
                        "health after "
                        f"{p99 * 1000:.0f} ms in 99 of 100, {durations[-1] * 1000:.0f} ms at most\n"
                    )

            await runner.cleanup()

    asyncio.run(scenario())
