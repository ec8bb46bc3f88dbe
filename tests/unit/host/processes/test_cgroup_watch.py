"""The kernel tells when cgroups are empty."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alignup.host.processes.cgroups import CgroupWatch
from real_cgroups import made_cgroup

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


def no_descriptor(*_):
    raise OSError(24, "too many open files")


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def eventually(wanted):
    for _ in range(int(LONG / 0.005)):
        if wanted():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never came")


def test_it_is_told_once_a_cgroup_is_empty(base):
    """Not before, and of no other."""

    async def work():
        told, watch = [], CgroupWatch()
        first, second, other = occupied(base / "a"), occupied(base / "a"), occupied(base / "b")
        for name in ("a", "b"):
            assert watch.watch(str(base / name), lambda name=name: told.append(name))
        ended(first)
        await asyncio.sleep(0.05)
        assert (told, len(watch)) == ([], 2)
        ended(second)
        await eventually(lambda: told)
        assert (told, len(watch)) == (["a"], 1)
        watch.close()
        ended(other)

    before = open_files()
    asyncio.run(work())
    assert open_files() <= before


def test_one_that_is_empty_or_not_there_is_said_at_once(base):
    async def work():
        watch = CgroupWatch()
        assert not watch.watch(str(base), pytest.fail)
        assert not watch.watch(str(base / "no"), pytest.fail)
        assert len(watch) == 0
        watch.close()

    asyncio.run(work())


def test_what_is_forgotten_is_not_told(base):
    async def work():
        told, watch = [], CgroupWatch()
        process = occupied(base / "a")
        watch.watch(str(base / "a"), pytest.fail)
        watch.watch(str(base / "a"), lambda: told.append("again"))
        ended(process)
        await eventually(lambda: told)
        process = occupied(base / "a")
        watch.watch(str(base / "a"), pytest.fail)
        watch.forget(str(base / "a"))
        watch.forget(str(base / "a"))
        ended(process)
        await asyncio.sleep(0.05)
        assert told == ["again"]
        watch.close()

    asyncio.run(work())


@pytest.mark.parametrize("call", ["open", "pread"])
def test_one_that_cannot_be_read_is_not_said_to_be_empty(base, monkeypatch, call):
    async def work():
        watch = CgroupWatch()
        process = occupied(base / "a")
        before = open_files()
        with monkeypatch.context() as patched:
            patched.setattr(os, call, no_descriptor)
            with pytest.raises(OSError, match="too many"):
                watch.watch(str(base / "a"), pytest.fail)
        assert (len(watch), open_files()) == (0, before)
        ended(process)
        watch.close()

    asyncio.run(work())


def test_who_watches_one_that_cannot_be_read_any_more_looks_again(base, monkeypatch):
    async def work():
        told, watch = [], CgroupWatch()
        process = occupied(base / "a")
        watch.watch(str(base / "a"), lambda: told.append("look"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", no_descriptor)
            ended(process)
            await eventually(lambda: told)
        assert (told, len(watch)) == (["look"], 0)
        watch.close()

    asyncio.run(work())


def test_it_costs_no_time_while_nothing_happens(base):
    """The file is readable all the time, and yet nobody looks at it."""

    async def work():
        watch, looks = CgroupWatch(), []
        process = occupied(base / "a")
        watch.watch(str(base / "a"), lambda: None)
        real = watch._look
        watch._loop.add_reader(watch._events.fileno(), lambda: (looks.append(1), real()))
        await asyncio.sleep(0.1)
        watch.close()
        ended(process)
        return len(looks)

    assert asyncio.run(work()) <= 1
