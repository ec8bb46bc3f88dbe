"""The file of leases: whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import leasing
from alignup.errors import InputError
from alignup.leases.file_format import encode_table
from alignup.leases.process import identify
from alignup.leases.record import LeaseTable, MachineIdentity
from alignup.leases.recovery import VARIABLE, Evidence, evidence_text
from alignup.leases.store import LeaseFile, default_state

MACHINE = MachineIdentity("m", "a machine")


@pytest.fixture
def file(tmp_path):
    """A file of leases that is not to be damaged."""
    return LeaseFile(tmp_path / "leases.json", pytest.fail)


def add(file, lease, machine=MACHINE):
    with file.change() as change:
        change.use_for(machine, "f")
        change.leases.append(lease)


def test_nothing_is_there_at_first(file):
    """And reading makes no file."""
    assert file.read() == LeaseTable()
    assert list(file.path.parent.iterdir()) == []


def test_changes_are_kept(file):
    """In the order in which they were made."""
    add(file, leasing.record("one"))
    add(file, leasing.record("two"))

    table = file.read()
    assert [lease.name for lease in table.leases] == ["one", "two"]
    assert table.machine == MACHINE
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_an_error_changes_nothing(file):
    """The block's changes are dropped with it."""
    add(file, leasing.record("one"))
    with pytest.raises(ZeroDivisionError), file.change() as change:  # noqa: PT012  # an error in the block
        change.leases.clear()
        raise ZeroDivisionError
    assert len(file.read().leases) == 1


def test_an_unchanged_table_is_not_written(file):
    """Looking costs no write."""
    add(file, leasing.record("one"))
    before = file.path.stat()
    with file.change():
        pass
    assert file.path.stat() == before


def test_leases_can_be_found_and_dropped(file):
    """By name, and by identity; an unknown one is no error."""
    lease = leasing.record("one")
    add(file, lease)
    with file.change() as change:
        assert change.named("one") == lease
        assert change.named("two") is None
        change.drop("nobody's")
        change.drop(lease.id)
    assert file.read().leases == ()


def test_the_leases_of_gone_processes_are_reclaimed(file):
    """Those that run are kept."""
    living = leasing.record("living")
    dead = msgspec.structs.replace(
        leasing.record("dead"), process=msgspec.structs.replace(living.process, start_time=1)
    )
    add(file, living)
    add(file, dead)
    with file.change() as change:
        assert change.reclaim() == [dead]
    assert file.read().leases == (living,)


def test_leases_of_another_machine_are_in_the_way(file):
    """Unless there are none left."""
    lease = leasing.record("one")
    add(file, lease)
    other = MachineIdentity("n", "another")
    with pytest.raises(InputError, match=r"\(another\), got leases of another one \(a machine\) held by one"):
        add(file, leasing.record("two"), other)
    with file.change() as change:
        change.drop(lease.id)
    add(file, leasing.record("two"), other)
    assert file.read().machine == other


@pytest.mark.parametrize("damage", [b"", b"{}", b"junk", encode_table(LeaseTable(MACHINE, ()))[:-9]])
def test_a_damaged_file_is_set_aside_and_told_of(tmp_path, damage):
    """It is kept under another name, and each one under its own."""
    told = []
    file = LeaseFile(tmp_path / "leases.json", told.append)
    for number in (1, 2):
        file.path.write_bytes(damage)
        assert file.read().leases == ()
        assert (tmp_path / f"leases.json.damaged-{number}").read_bytes() == damage
        assert f"is now {tmp_path / f'leases.json.damaged-{number}'}" in told[-1]
        assert "no running process" in told[-1]
    add(file, leasing.record("one"))
    assert len(told) == 2
    assert len(file.read().leases) == 1


def test_what_running_processes_hold_outlives_damage(tmp_path):
    """It is read off them; what others merely inherited is not."""
    told = []
    file = LeaseFile(tmp_path / "leases.json", told.append)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        lease = msgspec.structs.replace(leasing.record("kept"), process=identify(os.getpid()))
        text = evidence_text(Evidence(str(file.path), MACHINE, lease))
        os.execvpe("sleep", ["sleep", "60"], {**os.environ, VARIABLE: text})  # noqa: S606, S607
    try:
        os.write(writing, b"x")
        deadline = time.monotonic() + 20
        while VARIABLE.encode() not in Path(f"/proc/{child}/environ").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        file.path.write_bytes(b"junk")
        with file.change() as change:
            assert [lease.name for lease in change.leases] == ["kept"]
            assert change.machine == MACHINE
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert "found again from running processes: kept (pid" in told[0]


def test_a_writer_that_is_killed_leaves_the_old_leases(file):
    """At any moment before the rename; the lock is free at once, and the draft in nobody's way."""
    add(file, leasing.record("one"))
    code = (
        "import os,sys,signal\nfrom pathlib import Path\n"
        "from alignup.leases.store import LeaseFile\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with LeaseFile(Path(sys.argv[1]), print).change() as change: change.leases.clear()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file.path)], check=False)  # noqa: S603
    assert done.returncode == -signal.SIGKILL
    assert len(file.read().leases) == 1
    add(file, leasing.record("two"))
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["leases.json", "leases.json.lock"]


def test_files_that_cannot_be_used_are_refused(tmp_path, monkeypatch):
    """In one line that says what is wrong with which file."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="can be read, got 'is a directory'"):
        LeaseFile(tmp_path / "folder", pytest.fail).read()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file = LeaseFile(tmp_path / "leases.json", pytest.fail)
    with pytest.raises(InputError, match="can be written, got 'no space left on device'"):
        add(file, leasing.record("one"))
    assert file.read().leases == ()
    assert not (tmp_path / "leases.json.new").exists()


def test_a_damaged_file_that_cannot_be_kept_is_left_alone(tmp_path, monkeypatch):
    """Nothing is forgotten where there is no room for it."""
    file = LeaseFile(tmp_path / "leases.json", pytest.fail)
    file.path.write_bytes(b"junk")

    def full(_path, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="can be set aside"):
        file.read()
    assert file.path.read_bytes() == b"junk"


def test_a_later_release_s_file_is_left_alone(file):
    """It is neither read nor set aside."""
    text = encode_table(LeaseTable()).replace(b'"version":1', b'"version":9')
    file.path.write_bytes(text)
    with pytest.raises(InputError, match="version 1"), file.change():
        pass
    assert file.path.read_bytes() == text


def test_the_default_place_is_the_users_state(monkeypatch, tmp_path):
    """XDG_STATE_HOME if it is absolute, else the folder beneath the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_state() == Path("/state/alignup/leases.json")
    for useless in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", useless)
        assert default_state() == tmp_path / ".local/state/alignup/leases.json"
    assert LeaseFile(None, pytest.fail).path == default_state()
