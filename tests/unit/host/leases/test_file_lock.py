"""One at a time."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from alignup.errors import InputError
from alignup.host.leases import file as module
from alignup.host.leases.file import locked


def test_two_wait_for_each_other(tmp_path):
    """Nobody gets in between."""
    path = tmp_path / "made" / "lock"
    inside = []

    def work():
        for _ in range(50):
            with locked(path):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()

    for thread in threads:
        thread.join()

    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_lock_that_was_removed_while_one_waited_is_made_anew(tmp_path):
    """Else two could hold locks on two files of one name."""
    path = tmp_path / "lock"
    entered = threading.Event()

    def work():
        with locked(path):
            entered.set()

    with locked(path):
        waiting = threading.Thread(target=work)
        waiting.start()
        # one that opens the file only after its removal does not wait
        while open_descriptors(path) < 2:
            time.sleep(0.001)
        path.unlink()
        with locked(path):  # the new file
            assert not entered.wait(0.1)

    waiting.join()
    assert entered.is_set()


def open_descriptors(path):
    """Return how many descriptors of this process are open on the file."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += descriptor.samefile(path)
    return count


def test_a_copy_of_the_descriptor_does_not_keep_the_lock(tmp_path, monkeypatch):
    """A child of another thread may have one."""
    copies = []
    unlock = os.close
    path = tmp_path / "lock"
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", copies.append)
        with locked(path):
            pass
    with locked(path):
        pass
    for descriptor in copies:
        unlock(descriptor)


def test_a_place_where_no_file_can_be_is_refused(tmp_path):
    """In one line, with the place."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"cannot lock a file: .* at .*file/lock"),
        locked(tmp_path / "file" / "lock"),
    ):
        pass


def test_an_interruption_leaves_nothing_open(tmp_path, monkeypatch):
    """Whoever is tired of waiting may leave."""
    before = len(list(Path("/proc/self/fd").iterdir()))

    def interrupted(_descriptor, _operation):
        raise KeyboardInterrupt

    monkeypatch.setattr("fcntl.flock", interrupted)
    with pytest.raises(KeyboardInterrupt), locked(tmp_path / "lock"):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def stopped_holder(path):
    """Start a process that has the lock and is stopped; return its number."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with locked(path):
            os.write(writing, b"x")
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.read(reading, 1)
    os.waitpid(pid, os.WUNTRACED)
    return pid


def test_one_says_for_which_process_one_waits_and_gives_up(tmp_path, monkeypatch):
    """A stopped one could keep the lock for ever."""
    monkeypatch.setattr(module, "_SAID_AFTER", 0.02)
    monkeypatch.setattr(module, "_LIMIT", 0.1)
    path = tmp_path / "lock"
    pid = stopped_holder(path)
    messages = []
    try:
        with (
            pytest.raises(
                InputError, match=rf"pid {pid}, which is stopped, has kept the lock for 0 s"
            ),
            locked(path, messages.append),
        ):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    assert messages == [f"waiting for the lock that pid {pid}, which is stopped, has at {path}"]


def test_the_checksum_stays_with_the_lock(tmp_path):
    """Whoever gets it next reads it."""
    path = tmp_path / "lock"
    with locked(path) as lock:
        assert lock.checksum == ""
        lock.note("0123abcd")
    with locked(path) as lock:
        assert lock.checksum == "0123abcd"


def test_a_file_that_is_no_lock_is_not_written_over(tmp_path):
    """Nor one that a link leads to, by either kind of link."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "soft").symlink_to(precious)
    (tmp_path / "hard").hardlink_to(precious)
    (tmp_path / "other").write_text("precious")
    for name, why in (
        ("soft", "symbolic link"),
        ("hard", "more than one name"),
        ("other", "no lock file"),
    ):
        with pytest.raises(InputError, match=why), locked(tmp_path / name):
            pass

    assert precious.read_text() == (tmp_path / "other").read_text() == "precious"
