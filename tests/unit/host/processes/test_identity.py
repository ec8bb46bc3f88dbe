"""Who a process is, and whether it still runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import msgspec
import pytest

from alignup.errors import InputError
from alignup.host.processes import identity as module
from alignup.host.processes.identity import (
    Liveness,
    has_processes,
    host_identity,
    identify,
    joint_liveness,
    liveness,
    runs_here,
)
from running.real_cgroups import made_cgroup


def changed(identity, **fields):
    return msgspec.structs.replace(identity, **fields)


def test_this_process_runs():
    """What was identified a moment ago is found again."""
    assert liveness(identify(os.getpid())) is Liveness.RUNNING


def test_another_process_with_the_number_is_not_taken_for_it():
    """Numbers are used again, start times are not."""
    mine = identify(os.getpid())

    assert liveness(changed(mine, start_time=mine.start_time - 1)) is Liveness.GONE


def test_a_process_that_ended_is_gone_even_before_its_parent_looked():
    """A zombie holds nothing."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    child = identify(pid)
    assert liveness(child) is Liveness.RUNNING
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert liveness(child) is Liveness.GONE
    os.waitpid(pid, 0)
    assert liveness(child) is Liveness.GONE


def test_a_process_before_a_restart_is_gone():
    """The same host has started anew."""
    mine = identify(os.getpid())
    assert liveness(changed(mine, boot_id="earlier", start_time=1)) is Liveness.GONE


def test_a_made_up_boot_id_takes_nothing_from_a_process_that_runs_here():
    """Containers can have one."""
    assert liveness(changed(identify(os.getpid()), boot_id="earlier")) is Liveness.RUNNING


def test_hosts_of_one_image_are_told_apart_by_name():
    """Their machine ids are one."""
    mine = identify(os.getpid())
    assert (
        liveness(changed(mine, boot_id="other", host_name="other", start_time=1))
        is Liveness.UNKNOWN
    )


def test_start_times_of_another_time_namespace_say_nothing():
    """Unless there is no such process at all."""
    mine = identify(os.getpid())
    shifted = changed(mine, start_time=mine.start_time + 1000, time_namespace=1)
    assert liveness(shifted) is Liveness.UNKNOWN
    assert liveness(changed(shifted, pid=2**22 + 1)) is Liveness.GONE


def test_some_processes_last_as_long_as_the_last_of_them():
    """What is not known may be so."""
    mine = identify(os.getpid())
    gone = changed(mine, start_time=1)
    unknown = changed(mine, pid_namespace=1)
    assert joint_liveness([gone, mine, unknown]) is Liveness.RUNNING
    assert joint_liveness([gone, unknown]) is Liveness.UNKNOWN
    assert joint_liveness([gone]) is Liveness.GONE


def test_nothing_is_known_of_other_hosts_and_containers():
    """One cannot see them from here, so they count as there."""
    mine = identify(os.getpid())

    assert liveness(changed(mine, boot_id="other", host="other")) is Liveness.UNKNOWN
    assert liveness(changed(mine, pid_namespace=1)) is Liveness.UNKNOWN


def fake_proc(folder, stat):
    """Make a proc file system with one process, 7."""
    (folder / "sys/kernel/random").mkdir(parents=True)
    (folder / "sys/kernel/random/boot_id").write_text("boot\n")
    (folder / "7").mkdir()
    (folder / "7/stat").write_text(stat)
    return str(folder)


@pytest.mark.parametrize(
    ("state", "threads", "expected"),
    [
        ("S", 1, Liveness.RUNNING),
        ("Z", 1, Liveness.GONE),
        ("Z", 3, Liveness.RUNNING),
        ("X", 0, Liveness.GONE),
    ],
)
def test_a_name_with_parentheses_and_a_main_thread_that_ended(tmp_path, state, threads, expected):
    """The name may look like fields; other threads may outlive the main one."""
    fields = [state, *["0"] * 16, str(threads), "0", "4711"]
    proc = fake_proc(tmp_path, f"7 (a) Z 1 (b)) {' '.join(fields)} 0")

    identity = identify(7, proc)

    assert (identity.start_time, identity.boot_id, identity.pid_namespace) == (4711, "boot", 0)
    assert liveness(identity, proc) is expected


def test_a_process_that_is_not_there_is_refused(tmp_path):
    """The message says where one looked."""
    with pytest.raises(InputError, match=r"is .* mounted"):
        identify(7, str(tmp_path))


def test_of_a_process_that_cannot_be_read_nothing_is_known(tmp_path):
    """It may run: only one that is not there is gone."""
    proc = fake_proc(tmp_path, f"7 (a) S {' '.join(['0'] * 16)} 1 0 4711 0")
    identity = identify(7, proc)
    (tmp_path / "7/stat").unlink()
    assert liveness(identity, proc) is Liveness.GONE
    (tmp_path / "7/stat").mkdir()  # an error of another kind
    assert liveness(identity, proc) is Liveness.UNKNOWN
    assert not runs_here(identity, proc)
    with pytest.raises(InputError, match="cannot read about process 7"):
        identify(7, proc)


def test_hosts_are_told_apart_without_showing_their_identity(monkeypatch):
    """Only a digest is kept; where there is no identity, nothing is."""
    monkeypatch.setattr(module, "_read", lambda _path: "0123456789abcdef\n")
    assert len(host_identity()) == 16
    assert "0123456789" not in host_identity()
    monkeypatch.setattr(module, "_read", lambda _path: "")
    assert host_identity() == ""


def test_the_kernel_says_whether_a_cgroup_has_processes():
    """Of cgroups below it too."""
    with made_cgroup() as cgroup:
        assert not has_processes(str(cgroup))
        below = cgroup / "below"
        below.mkdir()
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        (below / "cgroup.procs").write_text(str(process.pid))
        assert has_processes(str(cgroup))
        process.kill()
        process.communicate()
        assert not has_processes(str(cgroup))
