"""Says whether anything that a lease is for still runs: its processes, or whatever is left in its cgroup.

The cgroup of a lease holds its command and all that the command has started, whoever is its parent now. The agent
makes it (`alignup.agent.cgroups`); everybody can look at it.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from alignup.leases.process import Liveness, joint_liveness

if TYPE_CHECKING:
    from alignup.leases.record import LeaseRecord

__all__ = ["EVENTS", "has_processes", "lease_liveness", "shows_processes"]

EVENTS: Final = "cgroup.events"
"""The file of a cgroup that says whether there are processes in it, or below."""
_POPULATED: Final = b"populated 1"
_LARGEST: Final = 4096
_REMOVED: Final = frozenset({errno.ENOENT, errno.ENODEV})
"""The errors that say that there is no such cgroup; others say nothing about it."""


def lease_liveness(lease: LeaseRecord) -> Liveness:
    """Return whether any process of a lease still runs, as far as it can be seen from here."""
    found = joint_liveness(lease.processes)
    if found is not Liveness.GONE or not lease.cgroup:
        return found
    try:
        return Liveness.RUNNING if has_processes(lease.cgroup) else Liveness.GONE
    except OSError:
        return Liveness.UNKNOWN


def has_processes(cgroup: str) -> bool:
    """Return whether there are processes in a cgroup (v2), or in one below it; False if there is no such cgroup.

    Zombies do not count.

    Raises:
        OSError: that cannot be known now, as without the right to look or a free descriptor.
    """
    try:
        descriptor = os.open(f"{cgroup}/{EVENTS}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _REMOVED:
            return False
        raise
    try:
        return shows_processes(descriptor)
    finally:
        os.close(descriptor)


def shows_processes(events: int) -> bool:
    """Return what the open file `EVENTS` of a cgroup says now; False if the cgroup has been removed.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        return _POPULATED in os.pread(events, _LARGEST, 0).splitlines()
    except OSError as error:
        if error.errno in _REMOVED:
            return False
        raise
