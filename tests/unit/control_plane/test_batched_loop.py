"""A loop that reads in batches: what it reads, and when."""

from __future__ import annotations

import asyncio
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.control_plane.batched_loop import BatchSelector, new_batched_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 10.0


class Line:
    """A socket that gets letters, and a clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._ours, self._theirs = socket.socketpair()
        self.selector = BatchSelector(SECONDS, lambda: self.now, self.sleep)
        self.selector.register(self._ours, selectors.EVENT_READ)

    def sleep(self, seconds: float) -> None:
        """Let time go by."""
        self.slept.append(seconds)
        self.now += seconds

    def send(self) -> None:
        """Let a letter arrive now."""
        self._theirs.send(b"x")

    def select(self, timeout: float | None) -> str:
        """Return the letters that a loop reads which waits for some seconds."""
        ready = self.selector.select(timeout)
        return self._ours.recv(100).decode() if ready else ""

    def close(self) -> None:
        """Close everything."""
        self.selector.close()
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def line() -> Iterator[Line]:
    with closing(Line()) as line:
        yield line


def begin_and_end_a_batch(line: Line) -> None:
    line.send()
    assert line.select(None) == "x"
    assert line.select(0) == ""
    line.sleep(1.0)


def test_the_first_file_after_a_quiet_time_is_told_of_at_once(line: Line) -> None:
    line.send()
    assert line.select(None) == "x"
    assert line.slept == []


def test_a_batch_goes_on_as_long_as_something_is_ready(line: Line) -> None:
    for _ in range(5):
        line.send()
        assert line.select(None) == "x"
    assert line.slept == []


def test_a_batch_goes_on_while_the_loop_has_other_work(line: Line) -> None:
    line.send()
    assert line.select(None) == "x"
    assert line.select(0) == ""
    line.send()
    assert line.select(0) == "x"
    assert line.slept == []


def test_what_comes_after_a_batch_waits_for_the_next_one(line: Line) -> None:
    begin_and_end_a_batch(line)
    assert line.select(0.0) == ""

    line.selector.select(1.0)  # nothing is ready, and the batch has ended
    line.send()
    line.send()
    assert line.select(0.0) == ""
    assert line.select(None) == "xx"
    assert line.now == SECONDS


def test_a_timer_keeps_its_time_between_two_batches(line: Line) -> None:
    begin_and_end_a_batch(line)
    assert line.select(2.0) == ""
    line.send()
    assert line.select(3.0) == ""
    assert line.now == 6.0
    assert line.select(4.0) == "x"
    assert line.now == SECONDS


def test_after_a_pause_the_rest_of_the_time_is_waited(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float | None] = []

    def select(_selector: object, timeout: float | None = None) -> list[None]:
        timeouts.append(timeout)
        return []

    begin_and_end_a_batch(line)
    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    assert line.select(12.0) == ""
    assert line.slept[-1] == SECONDS - 1.0
    assert timeouts == [0, 12.0 - (SECONDS - 1.0)]


def test_a_loop_with_other_work_does_not_wait(line: Line) -> None:
    begin_and_end_a_batch(line)
    line.selector.select(0.5)
    before = line.now
    for _ in range(3):
        assert line.select(0) == ""
        assert line.select(-1.0) == ""
    assert line.now == before


def expected_reads(arrivals: list[float], work: list[float]) -> list[tuple[float, int]]:
    """Return when a loop reads how many letters, that works for some seconds after each time."""
    waiting, seconds_of_work = sorted(arrivals), iter(work)
    reads: list[tuple[float, int]] = []
    next_batch = now = 0.0
    while waiting:
        now = max(now, waiting[0], next_batch)
        next_batch = now + SECONDS
        while waiting and waiting[0] <= now:
            come = [arrival for arrival in waiting if arrival <= now]
            del waiting[: len(come)]
            reads.append((now, len(come)))
            now += next(seconds_of_work)

    return reads


@given(
    st.lists(st.integers(0, 80).map(float), max_size=30),
    st.lists(st.integers(0, 20).map(float), min_size=30, max_size=30),
)
def test_a_loop_reads_as_a_plain_model_says(arrivals: list[float], work: list[float]) -> None:
    now = 0.0
    waiting = sorted(arrivals)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def select(_selector: object, timeout: float | None = None) -> list[None]:
        if timeout is None:
            sleep(max(0.0, waiting[0] - now))
        return [None] * sum(arrival <= now for arrival in waiting)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selectors.DefaultSelector, "select", select)
        selector = BatchSelector(SECONDS, lambda: now, sleep)
        reads = []
        while waiting:
            ready = selector.select(None)
            reads.append((now, len(ready)))
            del waiting[: len(ready)]
            sleep(work[len(reads) - 1])

        selector.close()

    assert reads == expected_reads(arrivals, work)


def test_a_large_answer_is_read_in_one_batch() -> None:
    """A batch as long as this test may last would not end otherwise."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4) * 1_000_000)
        writer.close()

    async def scenario() -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"text")
            answer = await reader.read()
            writer.close()
            return len(answer)

    with asyncio.Runner(loop_factory=lambda: new_batched_loop(0.02)) as runner:
        assert runner.run(asyncio.wait_for(scenario(), 60)) == 4_000_000


PROGRAM = """
import asyncio
from alignup.control_plane import process
from alignup.control_plane.batched_loop import new_batched_loop

async def work():
    while True:
        await asyncio.sleep(0.001)

with asyncio.Runner(loop_factory=lambda: new_batched_loop(0.05)) as runner:
    runner.run(process.run_until_told(work(), lambda: print("runs", flush=True)))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_with_such_a_loop(number: signal.Signals) -> None:
    with subprocess.Popen(  # noqa: S603  # ours
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(number)
        assert process.wait(60) == 0
