"""The file of leases, and its text: whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.host.leases.evidence import (
    VARIABLE,
    Evidence,
    evidence_file,
    evidence_of,
    evidence_text,
    show_evidence,
)
from alignup.host.leases.evidence import living as reclaimed
from alignup.host.leases.file import (
    DamagedError,
    LeaseFile,
    check_machine,
    decode_table,
    default_state,
    encode_table,
)
from alignup.host.leases.record import LeaseTable, MachineIdentity, Waiter
from alignup.host.processes.identity import identify
from alignup.machine.cpuset import CPUSet
from inputs import leasing

MACHINE = MachineIdentity("m", "a machine")

OURS = encode_table(LeaseTable(MACHINE, ()))

TABLE = LeaseTable(
    MachineIdentity("f", "d"), (leasing.record(cpus=CPUSet.parse("0-3")), leasing.record("two"))
)
TEXT = encode_table(TABLE)


@pytest.fixture
def file(tmp_path):
    """A file of leases that is not to be damaged."""
    return LeaseFile(tmp_path / "leases.json", pytest.fail)


def add(file, lease, machine=MACHINE):
    check_machine(file.read(), machine, file.path)
    leasing.put(file, lease, machine=machine)


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
    with pytest.raises(ZeroDivisionError), file.change() as change:  # noqa: PT012  # in the block
        change.table = LeaseTable()
        raise ZeroDivisionError
    assert len(file.read().leases) == 1


def test_an_unchanged_table_is_not_written(file):
    """Looking costs no write."""
    add(file, leasing.record("one"))
    before = file.path.stat()
    with file.change():
        pass
    # all but the time of the last read
    after = file.path.stat()
    names = ("st_ino", "st_mtime_ns", "st_ctime_ns", "st_size", "st_mode")
    assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]


def test_leases_can_be_dropped(file):
    """By their ids; an unknown one is no error."""
    lease = leasing.record("one")
    add(file, lease)
    with file.change() as change:
        change.drop("nobody's")
        change.drop(lease.id)
    assert file.read().leases == ()


def test_the_leases_of_gone_processes_are_reclaimed(file):
    """Those that run are kept."""
    living = leasing.record("living")
    dead = msgspec.structs.replace(
        leasing.record("dead", cpus=CPUSet.parse("2-3")),
        process=msgspec.structs.replace(living.process, start_time=1),
    )
    add(file, living)
    add(file, dead)
    table, gone = reclaimed(file.read())
    assert (table.leases, gone) == ((living,), [dead])


def test_leases_of_another_machine_are_in_the_way(file):
    """Unless there are none left."""
    lease = leasing.record("one")
    add(file, lease)
    machine = MachineIdentity("n", "another")
    with pytest.raises(
        InputError, match=r"\(another\) but of another one \(a machine\) held by one"
    ):
        add(file, leasing.record("two"), machine)
    with file.change() as change:
        change.drop(lease.id)
    add(file, leasing.record("two"), machine)
    assert file.read().machine == machine


@pytest.mark.parametrize(
    "damage", [b"", bytes(4096), OURS[:-9], OURS.replace(b"a machine", b"a m")]
)
def test_a_damaged_file_is_set_aside_and_told_of(tmp_path, damage):
    """It is kept under another name, and each one under its own."""
    messages = []
    file = LeaseFile(tmp_path / "leases.json", messages.append)
    for number in (1, 2):
        file.path.write_bytes(damage)
        assert file.read().leases == ()
        assert "is damaged" in messages[-1], "a look changes nothing"
        with file.change():
            pass
        assert (tmp_path / f"leases.json.damaged-{number}").read_bytes() == damage
        assert f"is now {tmp_path / f'leases.json.damaged-{number}'}" in messages[-1]
        assert "no running process" in messages[-1]

    add(file, leasing.record("one"))
    assert len(messages) == 4
    assert len(file.read().leases) == 1


@pytest.mark.parametrize("text", [b"{}", b"precious\n", b'{"version":3,"sources":[]}', b"\x7fELF"])
def test_a_file_that_is_none_of_leases_is_left_alone(file, text):
    """It may be anything of the user's."""
    file.path.write_bytes(text)
    with pytest.raises(InputError, match=r"leases.json is no file of leases; it is left as it is"):
        file.read()
    with pytest.raises(InputError, match="is no file of leases"), file.change():
        pass
    assert file.path.read_bytes() == text
    assert not list(file.path.parent.glob("*.damaged*"))


def test_in_the_default_place_everything_is_a_damaged_file_of_leases(tmp_path, monkeypatch):
    """Nobody keeps anything else there; it is kept all the same."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = LeaseFile(None, [].append)
    file.path.parent.mkdir()
    file.path.write_bytes(b"junk")
    add(file, leasing.record())
    assert len(file.read().leases) == 1
    assert file.path.with_name("leases.json.damaged-1").read_bytes() == b"junk"


def test_links_are_never_followed(file, tmp_path):
    """Neither as the file, nor as its next version, its lock, or a damaged one set aside."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    file.path.symlink_to(precious)
    with pytest.raises(InputError, match="a symbolic link, which is not followed"):
        add(file, leasing.record())

    file.path.unlink()
    (tmp_path / "leases.json.new").symlink_to(precious)
    add(file, leasing.record())
    missing = tmp_path / "missing"
    (tmp_path / "leases.json.damaged-1").symlink_to(missing)
    file.path.write_bytes(OURS[:-9])
    with LeaseFile(file.path, [].append).change():
        pass

    assert (tmp_path / "leases.json.damaged-2").exists()
    assert precious.read_bytes() == b"precious"
    assert not missing.exists()


def test_pipes_and_devices_are_refused(file):
    """Without being opened for reading, which could take for ever."""
    os.mkfifo(file.path)
    with pytest.raises(InputError, match="a device, pipe or socket"):
        file.read()
    with pytest.raises(InputError, match="a device, pipe or socket"):
        add(file, leasing.record())


def test_a_removed_file_is_made_anew_of_what_processes_show(tmp_path):
    """And so is one that was put back as it was before."""
    messages = []
    file = LeaseFile(tmp_path / "leases.json", messages.append)
    add(file, leasing.record("earlier"))
    earlier = file.path.read_bytes()

    lease = leasing.record("kept")
    descriptor = evidence_file()
    try:
        show_evidence(evidence_of(lease, MACHINE, file.path), descriptor)
        add(file, lease)

        file.path.unlink()
        assert [kept.name for kept in file.read().leases] == ["kept"]
        with file.change() as change:
            assert [kept.name for kept in change.table.leases] == ["kept"]
        assert "was removed or replaced" in messages[-1]

        file.path.write_bytes(earlier)
        with file.change() as change:
            assert [kept.name for kept in change.table.leases] == ["earlier", "kept"]
        assert len(messages) == 2
    finally:
        os.close(descriptor)


def test_leases_of_the_dead_do_not_hide_who_has_their_cpus_now(tmp_path):
    """The file was put back as it was before they ended, and their CPUs were given again."""
    file = LeaseFile(tmp_path / "leases.json", [].append)
    ended = msgspec.structs.replace(identify(os.getpid()), start_time=1)
    dead = msgspec.structs.replace(leasing.record("dead", cpus=CPUSet.parse("2-3")), process=ended)

    lease = leasing.record("kept", cpus=CPUSet.parse("3"))
    descriptor = evidence_file()
    try:
        show_evidence(evidence_of(lease, MACHINE, file.path), descriptor)
        add(file, lease)
        file.path.write_bytes(encode_table(LeaseTable(MACHINE, (dead,))))
        with file.change() as change:
            assert "kept" in [kept.name for kept in change.table.leases]
        file.path.write_bytes(encode_table(LeaseTable(MACHINE, (dead,)))[:-9])
        assert [kept.name for kept in file.read().leases] == ["kept"]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_folders_and_files_are_private_whatever_the_umask(tmp_path, umask):
    """Those above the last folder too."""
    file = LeaseFile(tmp_path / "a" / "b" / "leases.json", pytest.fail)
    before = os.umask(umask)
    try:
        add(file, leasing.record())
    finally:
        os.umask(before)
    modes = [
        path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b", file.path)
    ]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_another_user_s_file_is_read_and_never_changed(file):
    """Its leases are theirs."""
    add(file, leasing.record())
    os.chown(file.path, 12345, 12345)
    assert len(file.read().leases) == 1
    with pytest.raises(InputError, match=r"is not trusted: .* belongs to user 12345"):
        add(file, leasing.record("two"))


def test_a_lock_that_was_removed_meanwhile_gives_nothing(file):
    """Somebody else may have had one of their own, and been given the same."""
    refusal = pytest.raises(InputError, match="the lock file was removed")
    with refusal, file.change() as change:
        file.path.with_name("leases.json.lock").unlink()
        change.table = LeaseTable(leases=(leasing.record(),))
    with file.change() as change:
        file.path.with_name("leases.json.lock").unlink()
        change.table = LeaseTable()


def test_those_who_wait_can_leave(file):
    """The dead are dropped."""
    mine = identify(os.getpid())
    leaver, stayer = Waiter("1", mine, ("cpu",)), Waiter("2", mine, ("x/y",))
    dead = Waiter("3", msgspec.structs.replace(mine, start_time=1), ("cpu", "x/y"))
    leasing.put(file, waiting=(leaver, stayer, dead))
    with file.change() as change:
        change.drop("1")
    assert reclaimed(file.read())[0].waiting == (stayer,)


def test_what_running_processes_hold_outlives_damage(tmp_path):
    """It is read off them; what others merely inherited is not."""
    messages = []
    file = LeaseFile(tmp_path / "leases.json", messages.append)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        lease = msgspec.structs.replace(leasing.record("kept"), process=identify(os.getpid()))
        text = evidence_text(Evidence(str(file.path), MACHINE, lease))
        os.execvpe("sleep", ["sleep", "60"], {**os.environ, VARIABLE: text})  # noqa: S606, S607

    try:
        os.write(writing, b"x")
        deadline = time.monotonic() + 60
        while VARIABLE.encode() not in Path(f"/proc/{child}/environ").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.01)

        file.path.write_bytes(OURS[:-9])
        with file.change() as change:
            assert [lease.name for lease in change.table.leases] == ["kept"]
            assert change.table.machine == MACHINE
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert "found again from running processes: kept (pid" in messages[0]


def test_a_writer_that_is_killed_leaves_the_old_leases(file):
    """At any moment before the rename; the lock is free at once, and the draft in nobody's way."""
    add(file, leasing.record("one"))
    code = (
        "import os,sys,signal\nfrom pathlib import Path\n"
        "from alignup.host.leases.file import LeaseFile\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with LeaseFile(Path(sys.argv[1]), print).change() as change: change.drop('id of one')\n"
    )

    done = subprocess.run([sys.executable, "-c", code, str(file.path)], check=False)  # noqa: S603
    assert done.returncode == -signal.SIGKILL
    assert len(file.read().leases) == 1

    add(file, leasing.record("two"))
    assert sorted(path.name for path in file.path.parent.iterdir()) == [
        "leases.json",
        "leases.json.lock",
    ]


def test_files_that_cannot_be_used_are_refused(tmp_path, monkeypatch):
    """In one line that says what is wrong with which file."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot read the file of leases: is a directory"):
        LeaseFile(tmp_path / "folder", pytest.fail).read()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file = LeaseFile(tmp_path / "leases.json", pytest.fail)
    with pytest.raises(
        InputError, match="cannot write the file of leases: no space left on device"
    ):
        add(file, leasing.record("one"))

    assert file.read().leases == ()
    assert not (tmp_path / "leases.json.new").exists()


def test_a_damaged_file_that_cannot_be_kept_is_left_alone(tmp_path, monkeypatch):
    """Nothing is forgotten where there is no room for it."""
    file = LeaseFile(tmp_path / "leases.json", pytest.fail)
    file.path.write_bytes(OURS[:-9])

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot keep the damaged file"), file.change():
        pass
    assert file.path.read_bytes() == OURS[:-9]
    assert not list(tmp_path.glob("*.damaged*"))


def test_a_later_release_s_file_is_left_alone(file):
    """It is neither read nor set aside."""
    text = encode_table(LeaseTable()).replace(b'"version":1', b'"version":9')
    file.path.write_bytes(text)
    with pytest.raises(InputError, match="version 2"), file.change():
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


def test_what_is_written_is_read():
    """An empty table too."""
    assert decode_table(TEXT, "f") == TABLE
    assert decode_table(encode_table(LeaseTable()), "f") == LeaseTable()


@given(st.integers(0, len(TEXT) - 2), st.integers(1, 255))
def test_one_wrong_byte_never_changes_leases(index, flip):
    """It is noticed, or it does not matter, such as a letter's case in a key that is not read."""
    damaged = TEXT[:index] + bytes([TEXT[index] ^ flip]) + TEXT[index + 1 :]
    try:
        table = decode_table(damaged, "f")
    except InputError:
        return
    assert table == TABLE


@given(st.integers(0, len(TEXT) - 2))
def test_a_torn_file_is_noticed(length):
    """Whatever its length."""
    with pytest.raises(DamagedError):
        decode_table(TEXT[:length], "f")


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 100, b"{}", b"[]", b"\xff\xfe", b"null", b'{"a":' * 50_000]
)
def test_other_files_are_no_leases(text):
    """Each is damage, said in one line."""
    with pytest.raises(DamagedError, match="at the place"):
        decode_table(text, "the place")


def test_a_wrong_shape_with_a_right_checksum_is_damage():
    """Somebody took pains."""
    inner = b'{"leases":7}'
    text = msgspec.json.encode(
        {"version": 1, "checksum": f"{zlib.crc32(inner):08x}", "table": msgspec.Raw(inner)}
    )
    with pytest.raises(DamagedError):
        decode_table(text, "f")


def test_a_later_release_is_no_damage():
    """Its file is left alone."""
    with pytest.raises(InputError, match="version 2, got 3 at f") as caught:
        decode_table(TEXT.replace(b'"version":1', b'"version":3'), "f")
    assert not isinstance(caught.value, DamagedError)


def test_a_file_that_an_agent_has_is_of_a_later_version():
    """Releases that know no agents refuse it, and give nothing beside the agent."""
    text = encode_table(LeaseTable(agent="/a.sock"))
    assert text.startswith(b'{"version":2,')
    assert decode_table(text, "f").agent == "/a.sock"
    assert b"agent" not in encode_table(LeaseTable())
