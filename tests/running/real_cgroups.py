"""A cgroup (v2) of the kernel at hand for tests, where this user may make one."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from alignup.host.processes.cgroups import remove_cgroup

_NUMBERS = count()


def cgroup_mount():
    """Return where cgroups of version 2 are mounted; None if they are not."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] == "cgroup2":
            return Path(fields[4])
    return None


@contextmanager
def made_cgroup():
    """Make a cgroup, and end whatever is in it afterwards; skip the test where none can be made."""
    mount = cgroup_mount()
    if mount is None:
        pytest.skip("cgroups of version 2 are not mounted here")

    base = mount / f"alignup-test-{os.getpid()}-{next(_NUMBERS)}"
    try:
        base.mkdir()
        (base / "trial").mkdir()
        (base / "trial").rmdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made in {mount}: {error.strerror}")

    try:
        yield base
    finally:
        for folder in [*base.iterdir(), base]:
            with suppress(OSError):
                (folder / "cgroup.kill").write_text("1")

        end = time.monotonic() + 60
        while not remove_cgroup(str(base)) and time.monotonic() < end:
            time.sleep(0.01)
        assert not base.exists()


def members(cgroup):
    """Return the processes in a cgroup."""
    return [int(pid) for pid in (Path(cgroup) / "cgroup.procs").read_text().split()]
