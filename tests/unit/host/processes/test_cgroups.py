"""Cgroups are made where the agent may make them, hold the command, and go away with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from threading import Event

import msgspec
import pytest

from alignup.errors import InputError
from alignup.host.processes import cgroups as module
from alignup.host.processes.cgroups import Cgroups, Enclosures, cgroup_of, remove_cgroup
from alignup.host.processes.identity import identify
from running.real_cgroups import made_cgroup, members

OWNER = """
import os, sys
from alignup.host.processes.identity import has_processes
os.setgid(12345)
os.setuid(12345)
cgroup = sys.argv[1]
print(has_processes(cgroup))
os.mkdir(cgroup + "/own")
with open(cgroup + "/own/cgroup.procs", "w") as file:
    file.write(sys.argv[2])
with open(cgroup + "/cgroup.subtree_control", "w"), open(cgroup + "/own/cgroup.procs") as file:
    print(file.read().split() == sys.argv[2:])
"""

VERSION_1 = Path("/sys/fs/cgroup/memory")

MOUNTS = """\
22 1 0:1 / / rw - ext4 /dev/vda rw
30 22 0:26 {root} {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
"""


@pytest.fixture
def base():
    with made_cgroup() as made:
        yield made


@pytest.fixture
def process():
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield started
    started.kill()
    started.communicate()


def test_a_process_is_put_into_the_cgroup_of_its_lease(base, process):
    cgroups = Cgroups(base / "leases")
    path = cgroups.enclose("1", identify(process.pid))
    assert path == str(base / "leases" / "alignup-1")
    assert members(path) == [process.pid]
    assert cgroups.enclose("1", identify(process.pid)) == path
    assert not remove_cgroup(path)
    process.kill()
    process.communicate()
    assert remove_cgroup(path)
    assert remove_cgroup(path)


def test_one_that_has_ended_gets_none(base, process):
    """Nor one that has its number."""
    cgroups = Cgroups(base)
    gone = msgspec.structs.replace(identify(process.pid), start_time=1)
    with pytest.raises(ProcessLookupError):
        cgroups.enclose("1", gone)
    assert list(cgroups.strays(())) == []


@pytest.mark.parametrize("goes_back", [True, False])
def test_another_process_that_has_got_the_number_goes_back(
    base, process, monkeypatch, caplog, goes_back
):
    """Or else somebody hears that it is still there."""
    (base / "session").mkdir()
    (base / "session" / "cgroup.procs").write_text(str(process.pid))
    cgroups, looks, left = Cgroups(base), [True, False], []
    monkeypatch.setattr(module, "runs_here", lambda _: looks.pop(0))
    if not goes_back:
        monkeypatch.setattr(module, "cgroup_of", lambda _: base / "removed")

    with pytest.raises(ProcessLookupError):
        cgroups.enclose("1", identify(process.pid), left.append)

    if goes_back:
        assert (members(base / "session"), left) == ([process.pid], [])
        assert not (base / "alignup-1").exists()
        assert f"pid {process.pid} is in the cgroup again that it was in" in caplog.text
    else:
        assert (members(base / "alignup-1"), left) == ([process.pid], [str(base / "alignup-1")])

    assert looks == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes cgroups for others")
@pytest.mark.parametrize("is_one_for_all", [True, False])
def test_it_is_whose_the_one_above_is(base, process, is_one_for_all):
    """Who may look into it and divide it, whatever the umask of the agent's unit."""
    unit = base / "unit"
    unit.mkdir()
    for path in (unit, unit / "cgroup.procs"):
        os.chown(path, 12345, 12345)

    (unit / "cgroup.procs").write_text(str(process.pid))
    umask = os.umask(0o077)
    try:
        cgroups = Cgroups(unit / "leases" if is_one_for_all else None)
        path = cgroups.enclose("1", identify(process.pid))
    finally:
        os.umask(umask)

    assert Path(path).stat().st_mode & 0o777 == 0o755
    command = [sys.executable, "-c", OWNER, path, str(process.pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout == "True\nTrue\n", done.stderr
    process.kill()
    process.communicate()
    assert remove_cgroup(path)


def test_those_that_a_command_made_below_are_removed_too(base):
    (base / "alignup-1" / "a" / "b").mkdir(parents=True)
    assert remove_cgroup(str(base / "alignup-1"))


def test_one_that_cannot_be_looked_into_stays(base, monkeypatch):
    (base / "alignup-1" / "a").mkdir(parents=True)

    def fail(_cgroup):
        raise OSError(24, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("alignup.host.processes.cgroups.has_processes", fail)
        assert not remove_cgroup(str(base / "alignup-1"))
    assert (base / "alignup-1" / "a").exists()


def test_cgroups_of_unknown_leases_are_found(base):
    for name in ("alignup-1", "alignup-2", "agent"):
        (base / name).mkdir()
    assert list(Cgroups(base).strays({str(base / "alignup-1")})) == [str(base / "alignup-2")]


@pytest.mark.skipif(
    not (VERSION_1 / "cgroup.procs").exists() or not os.access(VERSION_1, os.W_OK),
    reason="no cgroups of version 1 can be made here",
)
def test_a_cgroup_of_version_1_does_not_tell_of_its_end():
    place = VERSION_1 / f"alignup-test-{os.getpid()}"
    with pytest.raises(InputError, match="is not a cgroup of version 2"):
        Cgroups(place)
    assert not place.exists()


def test_another_folder_is_no_cgroup(tmp_path):
    with pytest.raises(InputError, match="is not a cgroup of version 2"):
        Cgroups(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(InputError, match="cannot make cgroups: no such file or directory"):
        Cgroups(tmp_path / "no" / "such")


def fake_proc(folder, own, root="/", mount="/sys/fs/cgroup"):
    for name in ("self", "7"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "cgroup").write_text(f"1:cpu:/x\n0::{own}\n")
    (folder / "self" / "mountinfo").write_text(MOUNTS.format(root=root, mount=mount))
    return folder


@pytest.mark.parametrize(
    ("own", "root", "expected"),
    [
        ("/system.slice/a.service", "/", "/sys/fs/cgroup/system.slice/a.service"),
        ("/", "/", "/sys/fs/cgroup"),
        ("/docker/1/x", "/docker/1", "/sys/fs/cgroup/x"),
        ("/y", "/docker/1", None),
        ("/../../a.scope", "/", None),
    ],
)
def test_the_cgroup_of_a_process_is_found_where_it_is_mounted(tmp_path, own, root, expected):
    """A mount may show a part only.

    One outside of the own cgroup namespace is not to be reached.
    """
    proc = fake_proc(tmp_path, own, root)
    if expected:
        assert str(cgroup_of("7", proc)) == expected
    else:
        with pytest.raises(InputError, match=f"no mount of cgroups of version 2 shows {own}"):
            cgroup_of("7", proc)


def test_without_version_2_there_is_none(tmp_path):
    with pytest.raises(InputError, match="cannot read which cgroup a process is in"):
        cgroup_of("7", tmp_path)
    fake_proc(tmp_path, "/")
    (tmp_path / "7" / "cgroup").write_text("1:cpu:/\n")
    with pytest.raises(InputError, match="in no cgroup of version 2"):
        cgroup_of("7", tmp_path)


def test_by_default_it_is_below_that_of_the_process(base, process):
    """Whose limits go on to hold, and which stays the end of it."""
    unit = base / "unit"
    unit.mkdir()
    (unit / "cgroup.procs").write_text(str(process.pid))
    neighbour = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (unit / "cgroup.procs").write_text(str(neighbour.pid))
    cgroups = Cgroups()
    for _ in range(2):
        assert cgroups.enclose("1", identify(process.pid)) == str(unit / "alignup-1")

    assert (members(unit), members(unit / "alignup-1")) == ([neighbour.pid], [process.pid])
    # a command of a command with a lease
    assert cgroups.enclose("2", identify(process.pid)) == str(unit / "alignup-1" / "alignup-2")
    assert list(cgroups.strays(())) == []
    (unit / "cgroup.kill").write_text("1")
    assert (process.wait(), neighbour.wait()) == (-9, -9)
    neighbour.stdin.close()
    assert remove_cgroup(str(unit / "alignup-1"))


def test_a_cgroup_that_nobody_wants_any_more_is_removed_once_it_is_made(monkeypatch) -> None:
    removed: list[str] = []
    begun, goes_on, is_removed = Event(), Event(), Event()

    class SlowCgroups(Cgroups):
        def enclose(self, *_: object) -> str:
            begun.set()
            assert goes_on.wait(60)
            return "/made"

    def remove(cgroup: str) -> bool:
        removed.append(cgroup)
        is_removed.set()
        return True

    monkeypatch.setattr(module, "remove_cgroup", remove)

    async def scenario() -> None:
        enclosures = Enclosures(SlowCgroups(None))
        enclosing = asyncio.create_task(enclosures.enclose("n", identify(os.getpid())))
        assert await asyncio.to_thread(begun.wait, 60)
        enclosing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enclosing

        assert removed == []
        goes_on.set()
        assert await asyncio.to_thread(is_removed.wait, 60)
        enclosures.close()

    asyncio.run(scenario())
    assert removed == ["/made"]
