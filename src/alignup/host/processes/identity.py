"""Tells processes apart, for ever.

It reads /proc for the identity of a process, and whether that one still runs. A group of processes
can have a cgroup (v2), which holds all that they have started, whoever is its parent now.

Hosts are told apart by machine id and name. Two hosts that were cloned with both, and share a list
of processes, take each other's running processes for those of an earlier boot.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from alignup.errors import InputError, system_errors
from alignup.host.proc_files import (
    PARENT,
    PROC,
    START_TIME,
    STATE,
    THREADS,
    opened,
    stat_fields,
)

# The file of a cgroup that says whether there are processes in it, or below.
EVENTS: Final = "cgroup.events"
_POPULATED: Final = b"populated 1"
_LARGEST: Final = 4096
# The errors that say that there is no such cgroup; others say nothing about it.
_REMOVED: Final = frozenset({errno.ENOENT, errno.ENODEV})
_DEAD_STATES: Final = frozenset("ZXx")
_DEEPEST: Final = 64


class Liveness(StrEnum):
    """The answer to whether a process still runs.

    Attributes:
        UNKNOWN: it belongs to another host, or to another PID namespace (a container), into which
            one cannot see; or what would say it cannot be read now.
    """

    RUNNING = "running"
    GONE = "gone"
    UNKNOWN = "unknown"


class ProcessIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """A process, so that no later one can be taken for it.

    Process ids are used again, start times are not. `start_time` is in clock ticks since the kernel
    started, and so means something only together with `boot_id`.

    Attributes:
        pid_namespace: the inode number of the namespace that `pid` is a number in.
        host: see `host_identity`.
        host_name: the host's own name: hosts made of one image can have one identity.
        time_namespace: the inode number of the namespace that `start_time` is a time in; 0: not
            known.
    """

    pid: int
    start_time: int
    boot_id: str
    pid_namespace: int
    host: str = ""
    host_name: str = ""
    time_namespace: int = 0


def host_identity() -> str:
    """Return what each host has of its own, through its restarts; empty where it has no such thing.

    It is made of /etc/machine-id, which is not to be shown to anybody, by a one-way function.
    """
    text = _read("/etc/machine-id").strip()
    if not text:
        return ""

    import hashlib  # noqa: PLC0415  # costs a few milliseconds, and not every host has the file

    return hashlib.sha256(f"alignup {text}".encode()).hexdigest()[:16]


def identify(pid: int, proc: str = PROC) -> ProcessIdentity:
    """Return the identity of a running process of this PID namespace.

    Args:
        pid: its number.
        proc: where the kernel's proc file system is.

    Raises:
        InputError: there is no such process, or no proc file system that can be read.
    """
    with system_errors(f"cannot read about process {pid}", proc):
        fields = stat_fields(pid, proc)

    if fields is None:
        raise InputError(f"no process {pid} in {proc}: is {proc} mounted?")

    return ProcessIdentity(
        pid=pid,
        start_time=int(fields[START_TIME]),
        boot_id=_boot_id(proc),
        pid_namespace=_namespace(proc, "pid"),
        host=host_identity(),
        host_name=os.uname().nodename,
        time_namespace=_namespace(proc, "time"),
    )


def liveness(process: ProcessIdentity, proc: str = PROC) -> Liveness:
    """Return whether a process still runs, as far as it can be seen from here.

    What cannot be read now, as without a free descriptor, is not known. A process of an earlier
    boot of this host is gone. A zombie runs no more: it waits to be looked at by its
    parent, which in a container may never happen. Start times differ between time namespaces:
    there, a process of this number may or may not be the one that is meant.

    Args:
        process: the one that is meant.
        proc: where the kernel's proc file system is.
    """
    is_visible = process.pid_namespace == _namespace(proc, "pid")
    try:
        fields = stat_fields(process.pid, proc) if is_visible else None
    except OSError:
        return Liveness.UNKNOWN

    runs = fields is not None and not _has_ended(fields)
    is_it = fields is not None and int(fields[START_TIME]) == process.start_time
    state = Liveness.RUNNING if runs and is_it else Liveness.GONE
    if process.boot_id != _boot_id(proc):
        if process.host != host_identity() or process.host_name not in {"", os.uname().nodename}:
            return Liveness.UNKNOWN
        # boot ids can be made up for a container; number and start time are no coincidence
        return state

    if not is_visible:
        return Liveness.UNKNOWN
    if runs and not is_it and process.time_namespace not in {0, _namespace(proc, "time")}:
        return Liveness.UNKNOWN

    return state


def runs_here(process: ProcessIdentity, proc: str = PROC) -> bool:
    """Return whether a process of this boot and this PID namespace still runs.

    The two are not looked at. False too if that cannot be read now.
    """
    try:
        fields = stat_fields(process.pid, proc)
    except OSError:
        return False

    if fields is None or int(fields[START_TIME]) != process.start_time:
        return False
    return not _has_ended(fields)


def joint_liveness(processes: Iterable[ProcessIdentity], cgroup: str = "") -> Liveness:
    """Return whether any of some processes still runs, or anything in their cgroup.

    They need not have one.
    """
    states = {liveness(process) for process in processes}
    if Liveness.RUNNING in states:
        return Liveness.RUNNING
    if Liveness.UNKNOWN in states:
        return Liveness.UNKNOWN

    try:
        return Liveness.RUNNING if cgroup and has_processes(cgroup) else Liveness.GONE
    except OSError:
        return Liveness.UNKNOWN


def ancestors(pid: int) -> tuple[tuple[int, int], ...]:
    """Return number and start time of a process, of its parent, and so on.

    They are as many as can be seen.
    """
    processes: list[tuple[int, int]] = []
    with suppress(OSError):
        while pid > 0 and len(processes) < _DEEPEST:
            fields = stat_fields(pid)
            if fields is None:
                break
            processes.append((pid, int(fields[START_TIME])))
            pid = int(fields[PARENT])

    return tuple(processes)


def has_processes(cgroup: str) -> bool:
    """Return whether there are processes in a cgroup (v2), or in one below it.

    False if there is no such cgroup. Zombies do not count.

    Raises:
        OSError: that cannot be known now, as without the right to look or a free descriptor.
    """
    try:
        with opened(f"{cgroup}/{EVENTS}") as events:
            return shows_processes(events)
    except OSError as error:
        if error.errno in _REMOVED:
            return False

        raise


def shows_processes(events: int) -> bool:
    """Return what the open file `EVENTS` of a cgroup says now.

    False if the cgroup has been removed.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        return _POPULATED in os.pread(events, _LARGEST, 0).splitlines()
    except OSError as error:
        if error.errno in _REMOVED:
            return False

        raise


def _has_ended(fields: list[str]) -> bool:
    """Return whether a process has ended.

    A main thread can be a zombie while other threads run on.
    """
    return fields[STATE] in _DEAD_STATES and int(fields[THREADS]) <= 1


def _boot_id(proc: str) -> str:
    return _read(f"{proc}/sys/kernel/random/boot_id").strip()


def _namespace(proc: str, kind: str) -> int:
    """Return the inode number of this process's namespace of a kind.

    It is 0 where the kernel does not tell.
    """
    try:
        return os.stat(f"{proc}/self/ns/{kind}").st_ino  # noqa: PTH116  # startup counts
    except OSError:
        return 0


def _read(path: str) -> str:
    """Return the text of a file of the kernel's or of /etc; empty if there is none."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
