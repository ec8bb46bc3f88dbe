"""Leases whose processes have ended last until their cgroups are empty.

Of that the kernel tells.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from alignup.host.processes import watch as module
from alignup.host.processes.identity import identify
from alignup.host.processes.watch import ProcessWatch
from inputs import leasing
from running.real_cgroups import made_cgroup

LONG = 60.0


@pytest.fixture
def base():
    with made_cgroup() as made:
        yield made


def occupied(cgroup):
    """Return a process in a cgroup."""
    cgroup.mkdir(exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (cgroup / "cgroup.procs").write_text(str(process.pid))
    return process


def ended(process):
    process.kill()
    process.communicate()


def no_descriptor(*_, **_more):
    raise OSError(24, "too many open files")


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def lease_in(cgroup):
    """Return a lease whose process has ended, by the name of its cgroup."""
    gone = msgspec.structs.replace(identify(os.getpid()), start_time=1)
    return msgspec.structs.replace(
        leasing.record(), id=cgroup.name, process=gone, cgroup=str(cgroup)
    )


@contextmanager
def watching(*cgroups):
    """Yield a watch of leases in cgroups, and the list of those that it has told of."""
    ended_ids = []
    watch = ProcessWatch(ended_ids.append, map(lease_in, cgroups))
    try:
        yield watch, ended_ids
    finally:
        watch.close()


async def eventually(holds):
    for _ in range(int(LONG / 0.005)):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never came")


def test_it_is_told_once_a_cgroup_is_empty(base):
    """Not before, and of no other."""

    async def work():
        first, second, elsewhere = occupied(base / "a"), occupied(base / "a"), occupied(base / "b")
        with watching(base / "a", base / "b") as (watch, ended_ids):
            ended(first)
            await asyncio.sleep(0.05)
            assert (ended_ids, len(watch)) == ([], 2)
            ended(second)
            await eventually(lambda: ended_ids)
            assert (ended_ids, len(watch)) == (["a"], 1)

        ended(elsewhere)

    before = open_files()
    asyncio.run(work())
    assert open_files() <= before


def test_one_that_is_empty_or_not_there_is_told_of_at_once(base):
    async def work():
        with watching(base, base / "no") as (watch, ended_ids):
            assert len(watch) == 0
            await eventually(lambda: ended_ids == [base.name, "no"])

    asyncio.run(work())


def test_what_is_forgotten_is_not_told(base):
    async def work():
        process = occupied(base / "a")
        with watching(base / "a") as (watch, ended_ids):
            watch.watch(lease_in(base / "a"))
            ended(process)
            await eventually(lambda: ended_ids)
            process = occupied(base / "a")
            watch.watch(lease_in(base / "a"))
            watch.forget("a")
            watch.forget("a")
            ended(process)
            await asyncio.sleep(0.05)
            assert ended_ids == ["a"]

    asyncio.run(work())


@pytest.mark.parametrize("call", ["open", "pread"])
def test_one_that_cannot_be_read_is_not_told_of_before_it_can(base, monkeypatch, call):
    monkeypatch.setattr(module, "_LOOK", 0.01)

    async def work():
        process = occupied(base / "a")
        with watching() as (watch, ended_ids):
            lease, before = lease_in(base / "a"), open_files()
            with monkeypatch.context() as patched:
                patched.setattr(os, call, no_descriptor)
                watch.watch(lease)
                await asyncio.sleep(0.05)

            assert (ended_ids, len(watch)) == ([], 1)
            await eventually(lambda: open_files() <= before + 1)
            ended(process)
            await eventually(lambda: ended_ids)

    asyncio.run(work())


def test_one_that_cannot_be_read_any_more_is_looked_at_again(base, monkeypatch):
    async def work():
        process = occupied(base / "a")
        with watching(base / "a") as (watch, ended_ids):
            watched = [watch.state_of("a")]
            with monkeypatch.context() as patched:
                patched.setattr(os, "pread", no_descriptor)
                ended(process)
                await eventually(
                    lambda: watched.append(watch.state_of("a")) or watched[-1] != watched[0]
                )
            assert (ended_ids, watched[-1], len(watch)) == ([], "unknown", 1)

    asyncio.run(work())


def test_it_costs_no_time_while_nothing_happens(base):
    """The file is readable all the time, and yet nobody looks at it."""

    async def work():
        looks = []
        process = occupied(base / "a")
        with watching(base / "a") as (watch, _):
            real = watch._take_events
            watch._loop.add_reader(watch._events.fileno(), lambda: (looks.append(1), real()))
            await asyncio.sleep(0.1)
        ended(process)
        return len(looks)

    assert asyncio.run(work()) <= 1
