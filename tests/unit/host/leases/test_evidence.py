"""Leases that can be read off the processes that hold them.

A lease lasts as long as its processes, and as long as there is anybody in its cgroup.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from alignup.host.leases import evidence
from alignup.host.leases.evidence import (
    VARIABLE,
    Evidence,
    evidence_file,
    evidence_of,
    evidence_text,
    find_evidence,
    lease_liveness,
    show_evidence,
)
from alignup.host.leases.record import MachineIdentity
from alignup.host.processes.identity import identify
from alignup.machine.cpuset import CPUSet
from inputs import leasing

MACHINE = MachineIdentity("m", "a machine")

GONE = msgspec.structs.replace(identify(os.getpid()), start_time=1)


def test_a_process_that_shows_it_is_found(tmp_path):
    """For the file that it names, and as long as it shows it."""
    state = tmp_path / "leases.json"
    evidence = Evidence(str(state), MACHINE, leasing.record(cpus=CPUSet.parse("3")))
    descriptor = evidence_file()
    show_evidence(evidence, descriptor)
    try:
        assert find_evidence(state) == (evidence,)
        assert find_evidence(tmp_path / "other.json") == ()
    finally:
        os.close(descriptor)
    assert find_evidence(state) == ()


def test_a_child_that_inherited_it_is_not_a_holder(tmp_path):
    """Its number is another."""
    state = tmp_path / "leases.json"
    evidence = Evidence(str(state), MACHINE, leasing.record(pid=os.getppid()))
    descriptor = evidence_file()
    show_evidence(evidence, descriptor)
    try:
        assert find_evidence(state) == ()
    finally:
        os.close(descriptor)


def fake_process(folder, pid, environment):
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "environ").write_bytes(environment)


def test_what_is_no_evidence_is_passed_over(tmp_path):
    """Other variables, other people's processes, nonsense."""
    proc = tmp_path / "proc"
    name = VARIABLE.encode()
    fake_process(proc, 1, b"A=B\0" + name + b"=junk\0" + name + b"X={}\0")
    fake_process(
        proc, 2, name + b"=" + evidence_text(Evidence("/x", MACHINE, leasing.record())).encode()
    )
    (proc / "3").mkdir()
    (proc / "self").mkdir()
    (proc / "²").mkdir()
    folder = proc / "4" / "fd"
    folder.mkdir(parents=True)
    (folder / "0").write_text("no link")
    (folder / "1").symlink_to("/memfd:other (deleted)")

    assert find_evidence(tmp_path / "leases.json", str(proc)) == ()


def test_a_process_that_was_started_while_others_were_asked_is_found(tmp_path, monkeypatch):
    """Its parent may have ended before it was asked."""
    proc, state = tmp_path / "proc", tmp_path / "leases.json"
    claimed = Evidence(str(state), MACHINE, leasing.record())
    fake_process(proc, 1, b"")

    def texts_of(_folder, **_):
        if not (proc / str(os.getpid())).exists():
            fake_process(proc, os.getpid(), b"")
            return os.geteuid(), []
        return os.geteuid(), [evidence_text(claimed).encode()]

    monkeypatch.setattr(evidence, "_texts_of", texts_of)
    assert find_evidence(state, str(proc)) == (claimed,)


@pytest.mark.parametrize(
    "environments", [[b"A=B"], [b"", b"", None]], ids=["just after", "just before"]
)
def test_a_process_that_executes_its_command_is_found(tmp_path, monkeypatch, environments):
    """Until then it has a file of evidence, from then on a variable (None).

    For a moment it has neither. Here that happens just after its environment was first looked at,
    and just before.
    """
    proc, state = tmp_path / "proc", tmp_path / "leases.json"
    claimed = Evidence(str(state), MACHINE, leasing.record())
    text = evidence_text(claimed).encode()
    folder = proc / str(os.getpid())
    fake_process(proc, os.getpid(), b"")
    (folder / "status").write_text("Uid:\t" + "\t".join([str(os.geteuid())] * 4) + "\n")
    (folder / "fd").mkdir()
    (folder / "fd/0").symlink_to("/dev/null")
    shown = folder / "fd/1"
    if environments[0]:
        shown.symlink_to("/memfd:alignup-lease (deleted)")

    left = iter(environments)

    def read(name, _folder, uid=None):
        if uid is not None:
            return text
        if name == "environ":
            shown.unlink(missing_ok=True)
            environment = next(left, None)
            if environment is None:
                environment = VARIABLE.encode() + b"=" + text
            return environment

        if name == "cmdline":
            return b""
        return (folder / name).read_bytes()

    monkeypatch.setattr(evidence, "_read", read)
    assert find_evidence(state, str(proc)) == (claimed,)


def test_a_process_that_ends_while_it_is_looked_at_is_passed_over(tmp_path, monkeypatch):
    """Between any two steps: here its files are open to be listed when it ends."""
    state = tmp_path / "leases.json"
    child = subprocess.Popen(["sleep", "60"])  # noqa: S607  # a test
    evidence = Evidence(str(state), MACHINE, leasing.record())
    descriptor = evidence_file()
    show_evidence(evidence, descriptor)
    real = os.open

    def ending(path, flags, mode=0o777, *, dir_fd=None):
        opened = real(path, flags, mode, dir_fd=dir_fd)
        if path == "fd":
            folder = os.readlink(f"/proc/self/fd/{dir_fd}")  # noqa: PTH115
            if folder == f"/proc/{child.pid}":
                child.kill()
                child.wait()

        return opened

    monkeypatch.setattr(os, "open", ending)
    try:
        assert find_evidence(state) == (evidence,)
        assert child.returncode == -signal.SIGKILL
    finally:
        os.close(descriptor)


def test_systems_without_files_in_memory_show_nothing(tmp_path, monkeypatch):
    """That is no reason to refuse a lease."""

    def missing(_name, _flags):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", missing)
    assert evidence_file() is None
    show_evidence(Evidence(str(tmp_path), MACHINE, leasing.record()), None)


def forger(state, *, uid, claimed=None):
    """Start a process of another user that claims a lease of the file; return its number."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reading, 1)
        os.setresuid(uid, uid, uid)
        lease = msgspec.structs.replace(
            leasing.record("evil"),
            id=f"id of {claimed}",
            process=identify(os.getpid()),
            uid=claimed,
        )
        os.execvpe(  # noqa: S606  # a test
            "sleep",  # noqa: S607  # a test
            ["sleep", "60"],
            {
                "PATH": os.environ["PATH"],
                VARIABLE: evidence_text(evidence_of(lease, MACHINE, state)),
            },
        )

    os.write(writing, b"x")
    deadline = time.monotonic() + 60
    while VARIABLE.encode() not in Path(f"/proc/{pid}/environ").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)

    return pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_what_other_users_claim_is_not_believed(tmp_path):
    """Root sees their processes, and takes nothing from them."""
    state = tmp_path / "leases.json"
    pids = [forger(state, uid=uid) for uid in (12345, 0)]
    try:
        assert [believed.lease.process.pid for believed in find_evidence(state)] == pids[1:]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_root_asks_the_processes_of_all_users(tmp_path):
    """After damage, an agent of root does: each about leases of its own user."""
    state = tmp_path / "leases.json"
    pids = [forger(state, uid=12345, claimed=claimed) for claimed in (None, 0, 12345)]
    try:
        believed = find_evidence(state, of_all_users=True)
        assert [claim.lease.process.pid for claim in believed] == pids[2:]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_another_user_s_file_in_memory_is_not_believed(tmp_path):
    """A process can be handed one."""
    state = tmp_path / "leases.json"
    evidence = evidence_of(leasing.record(), MACHINE, state)
    descriptor = evidence_file()
    show_evidence(evidence, descriptor)
    try:
        assert find_evidence(state) == (evidence,)
        os.fchown(descriptor, 12345, 12345)
        assert find_evidence(state) == ()
    finally:
        os.close(descriptor)


def lease(process, cgroup=""):
    return msgspec.structs.replace(leasing.record(), process=process, cgroup=str(cgroup))


def events(folder, populated):
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
    return folder


def test_processes_are_enough(tmp_path):
    assert lease_liveness(lease(identify(os.getpid()), events(tmp_path, 0))) == "running"


@pytest.mark.parametrize(("populated", "expected"), [(1, "running"), (0, "gone")])
def test_without_processes_the_cgroup_counts(tmp_path, populated, expected):
    assert lease_liveness(lease(GONE, events(tmp_path, populated))) == expected


def test_without_processes_and_a_cgroup_it_is_gone(tmp_path):
    assert lease_liveness(lease(GONE)) == "gone"
    assert lease_liveness(lease(GONE, tmp_path / "removed")) == "gone"


def test_of_another_container_nothing_is_known(tmp_path):
    """Its cgroup says nothing: another may have the same path here."""
    process = msgspec.structs.replace(identify(os.getpid()), pid_namespace=1)
    assert lease_liveness(lease(process, events(tmp_path, 0))) == "unknown"


def fails(call, number):
    """Return a call of `os` that fails for cgroups.

    What is read of processes comes from elsewhere.
    """
    real = getattr(os, call)

    def fail(file, *positional, **named):
        if isinstance(file, str) and file.startswith("/proc/"):
            return real(file, *positional, **named)
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", ["open", "pread"])
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOENT, "gone"),
        (errno.ENODEV, "gone"),
        (errno.EACCES, "unknown"),
        (errno.EMFILE, "unknown"),
        (errno.ENOMEM, "unknown"),
    ],
)
def test_a_cgroup_that_cannot_be_read_is_not_known_to_be_empty(
    tmp_path, monkeypatch, call, number, expected
):
    """Only one that is not there is gone.

    Whatever else goes wrong says nothing about a daemon in it.
    """
    record = lease(GONE, events(tmp_path, 1))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails(call, number))
        state = lease_liveness(record)
    assert state == expected
