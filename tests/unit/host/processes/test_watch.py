"""The end of processes is noticed, with descriptors of the kernel and without."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from alignup.errors import InputError
from alignup.host.processes import watch as module
from alignup.host.processes.identity import identify
from alignup.host.processes.watch import ProcessWatch
from inputs import leasing


def lease_of(process, name="one"):
    return msgspec.structs.replace(leasing.record(name), process=process)


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def ended_within(watched, act, seconds=60.0):
    """Return the leases that a watch tells of, once it tells of one."""
    ended_ids = []

    async def work():
        is_told = asyncio.Event()
        watch = ProcessWatch(lambda lease_id: (ended_ids.append(lease_id), is_told.set()), watched)
        act()
        with suppress(TimeoutError):
            await asyncio.wait_for(is_told.wait(), seconds)
        left = len(watch)
        watch.close()
        return left

    return asyncio.run(work()), ended_ids


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_the_end_of_a_process_is_noticed(monkeypatch, has_descriptors):
    if not has_descriptors:

        def refuse(_pid, _flags=0):
            raise OSError(38, "no such call")

        monkeypatch.setattr(os, "pidfd_open", refuse)
        monkeypatch.setattr(module, "_LOOK", 0.02)

    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lease = lease_of(identify(process.pid))

    def end():
        process.kill()
        process.communicate()

    left, ended_ids = ended_within([lease, lease_of(identify(os.getpid()), "mine")], end)
    assert ended_ids == [lease.id]
    assert left == 1


def test_one_that_is_watched_twice_is_told_of_once():
    """A request may come a second time, and gets the same lease."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lease = lease_of(identify(process.pid))
    before = open_files()

    def end():
        process.kill()
        process.communicate()

    left, ended_ids = ended_within([lease, lease], end)
    assert (left, ended_ids) == (0, [lease.id])
    assert open_files() <= before


def test_one_that_has_ended_before_is_told_of_at_once():
    gone = msgspec.structs.replace(identify(os.getpid()), start_time=1)
    assert ended_within([lease_of(gone)], lambda: None) == (0, ["id of one"])


@pytest.mark.parametrize("is_closed", [True, False])
def test_one_that_is_forgotten_is_not_told_of_any_more(is_closed):
    """Nor any once the watch is closed, though they had ended before."""
    gone = msgspec.structs.replace(identify(os.getpid()), start_time=1)

    async def work():
        ended_ids = []
        watch = ProcessWatch(ended_ids.append, [lease_of(gone), lease_of(gone, "two")])
        if is_closed:
            watch.close()
        else:
            watch.forget("id of one")

        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not is_closed:
            watch.close()
        return ended_ids

    assert asyncio.run(work()) == ([] if is_closed else ["id of two"])


def test_what_is_known_of_a_lease_is_said_without_another_look(monkeypatch):
    """Whoever asks for all leases again and again has nothing read for it."""
    me = identify(os.getpid())
    gone = lease_of(msgspec.structs.replace(me, start_time=1), "gone")
    elsewhere = lease_of(msgspec.structs.replace(me, pid_namespace=1), "other")

    async def work():
        watch = ProcessWatch(lambda _: None, [lease_of(me), gone, elsewhere])
        for name in ("joint_liveness", "runs_here"):
            monkeypatch.setattr(module, name, pytest.fail)
        states = [watch.state_of(f"id of {name}").value for name in ("one", "gone", "other", "new")]
        watch.close()
        return states

    assert asyncio.run(work()) == ["running", "gone", "unknown", "running"]


class Caller:
    def __init__(self, uid):
        self.uid = uid

    def is_elsewhere(self):
        return False


def test_only_number_and_start_are_taken_from_who_asks():
    """The rest is known here, and would be believed after the next boot."""
    me = identify(os.getpid())

    async def work():
        watch = ProcessWatch(lambda _: None)
        forged = msgspec.structs.replace(me, host="other", host_name="x" * 60_000, time_namespace=7)
        checked = watch.checked(forged, Caller(os.geteuid()))
        with pytest.raises(InputError, match="has ended"):
            watch.checked(
                msgspec.structs.replace(me, start_time=me.start_time + 1), Caller(os.geteuid())
            )

        watch.close()
        return checked

    assert asyncio.run(work()) == me


def test_a_cgroup_that_cannot_be_read_is_looked_at_again(monkeypatch):
    """Its lease does not end before it is known to be empty."""
    monkeypatch.setattr(module, "_LOOK", 0.01)
    gone = msgspec.structs.replace(identify(os.getpid()), start_time=1)
    lease = msgspec.structs.replace(lease_of(gone), cgroup="/one")
    looks = []

    def follow(_self, lease):
        looks.append(lease.cgroup)
        if len(looks) < 4:
            raise OSError(24, "too many open files")
        return False

    monkeypatch.setattr(module.ProcessWatch, "_follow_cgroup", follow)
    assert ended_within([lease], lambda: None) == (0, [lease.id])
    assert looks == ["/one"] * 4


def test_few_descriptors_are_not_all_for_leases(monkeypatch):
    """A quarter of them; other leases are looked at now and then, and end as well."""
    monkeypatch.setattr(module, "_LOOK", 0.01)
    monkeypatch.setattr(module.resource, "getrlimit", lambda _: (4, 4))
    processes = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)
    ]
    leases = [
        lease_of(identify(process.pid), str(number)) for number, process in enumerate(processes)
    ]

    before = open_files()
    assert ended_within(leases, processes[1].communicate) == (1, [leases[1].id])
    assert open_files() == before - 1  # what it could be written to
    processes[0].communicate()


def test_one_of_another_container_is_not_known_to_have_ended(monkeypatch):
    monkeypatch.setattr(module, "_LOOK", 0.01)
    elsewhere = msgspec.structs.replace(identify(os.getpid()), pid_namespace=1)
    assert ended_within([lease_of(elsewhere)], lambda: None, 0.1) == (1, [])
