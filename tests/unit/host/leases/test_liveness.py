"""A lease lasts as long as its processes, and as long as there is anybody in its cgroup."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import msgspec
import pytest

from alignup.host.leases.evidence import lease_liveness
from alignup.host.processes.identity import has_processes, identify
from inputs import leasing
from running.real_cgroups import made_cgroup

GONE = msgspec.structs.replace(identify(os.getpid()), start_time=1)


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


def test_the_kernel_says_it():
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
