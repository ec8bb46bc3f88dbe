"""Tells which leases are held, from the processes.

It looks whether these run, and what they show of their leases; so leases are found again when their
file is damaged or lost.

A command started by `alignup run` has its lease in its environment; its keeper, and a Python
process that took one itself, have it in a file in memory. Both are visible in /proc to the same
user, and gone with the process.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from alignup.errors import AllocationError, InputError
from alignup.host.leases import record
from alignup.host.proc_files import opened
from alignup.host.processes.identity import Liveness, joint_liveness, liveness
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VARIABLE: Final = "ALIGNUP_LEASE"
_NAME: Final = "alignup-lease"
_LINK: Final = f"/memfd:{_NAME} (deleted)"
_LARGEST: Final = 1 << 20
_PIECE: Final = 1 << 16
# The most rounds of looking for processes that started, or executed a command, during the round
# before.
_MOST_ROUNDS: Final = 16
# Seconds between two looks at processes that are about to execute a command.
_WAIT: Final = 0.003


class Evidence(msgspec.Struct, frozen=True):
    """A lease, with the file that it is kept in and the machine that it is of."""

    state: str
    machine: record.MachineIdentity
    lease: record.LeaseRecord


_DECODE: Final = record.lease_decoder(Evidence).decode


def evidence_of(
    lease: record.LeaseRecord, machine: record.MachineIdentity, state: Path
) -> Evidence:
    """Return the evidence of a lease of a machine that is kept in the file `state`."""
    return Evidence(text_of(state), machine, lease)


def evidence_text(evidence: Evidence) -> str:
    """Return the text that says it."""
    return record.encode_leases(evidence).decode()


def evidence_file() -> int | None:
    """Make a file in memory for evidence; return its descriptor, to be closed when the lease ends.

    None where the system has no such files: the lease is then not found again if the file of leases
    is lost.
    """
    try:
        return os.memfd_create(_NAME, os.MFD_CLOEXEC)
    except OSError:
        return None


def show_evidence(evidence: Evidence, descriptor: int | None) -> None:
    """Write evidence into a file that `evidence_file` made, in place of what is there.

    Do nothing if there is no such file.
    """
    if descriptor is not None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, evidence_text(evidence).encode(), 0)


def find_evidence(
    state: Path | None, proc: str = "/proc", *, of_all_users: bool = False
) -> tuple[Evidence, ...]:
    """Return the leases kept in the file `state` whose processes run, by process id.

    Processes are believed about themselves only.

    Args:
        state: the file, as an absolute path; None: any, and each lease then says whose it is.
        proc: where the kernel's proc file system is.
        of_all_users: ask the processes of other users too, about leases of these; else only this
            user's.
    """
    evidence_by_id: dict[str, Evidence] = {}
    asked_pids: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        # a process may have handed its lease on to one that it has started since, and ended before
        # it was asked
        names = os.listdir(proc)  # noqa: PTH208  # names are wanted
        pids = {int(name) for name in names if name.isascii() and name.isdigit()}
        fresh_pids = pids - asked_pids
        if not fresh_pids:
            break

        for pid in sorted(fresh_pids):
            uid, texts = _texts_of(f"{proc}/{pid}", of_all_users=of_all_users)
            if texts is None:
                continue

            asked_pids.add(pid)
            for text in texts:
                evidence = _evidence_in(text, state, pid, uid)
                if evidence is not None:
                    evidence_by_id[evidence.lease.id] = evidence

        if not fresh_pids <= asked_pids:
            time.sleep(_WAIT)

    return tuple(evidence_by_id.values())


def _evidence_in(text: bytes, state: Path | None, pid: int, uid: int) -> Evidence | None:
    """Return the evidence in a text that a process shows; None: it is none of that process.

    Args:
        text: what the process shows.
        state: the file; None: any.
        pid: the process.
        uid: its user.
    """
    try:
        evidence = decode_json(text, "a lease", decode=_DECODE)
        record.check_amounts([evidence.lease], "a process")
    except InputError:
        return None

    # children inherit the environment, and some the file
    own_processes = [process for process in evidence.lease.processes if process.pid == pid]
    if state is None and evidence.lease.uid is None:
        evidence = replace(evidence, lease=replace(evidence.lease, uid=uid))

    is_users = uid in {os.geteuid(), evidence.lease.uid}
    is_kept_there = state is None or evidence.state == text_of(state)
    if not (is_kept_there and is_users):
        return None

    return evidence if joint_liveness(own_processes) is Liveness.RUNNING else None


def with_evidence(
    table: record.LeaseTable, shown: Iterable[Evidence]
) -> tuple[record.LeaseTable, str]:
    """Return leases with those beside them that processes show, and words about these.

    A lease is not added if it overlaps a known lease whose processes may still run: one of the two
    was released although its process runs on. Leases of ended processes stay until they are freed,
    and do not block the leases that have their CPUs now.
    """
    known_ids = {lease.id for lease in table.leases}
    missing = [evidence for evidence in shown if evidence.lease.id not in known_ids]
    if not missing:
        return table, ""

    held_leases = [lease for lease in table.leases if lease_liveness(lease) is not Liveness.GONE]
    machine = table.machine if held_leases else missing[0].machine
    added: list[record.LeaseRecord] = []
    for evidence in missing:
        overlaps = any(overlap(evidence.lease, lease) for lease in (*held_leases, *added))
        if evidence.machine == machine and not overlaps:
            added.append(evidence.lease)

    notice = f"found again from running processes: {record.holders(added)}" if added else ""
    leases = (*table.leases, *added)
    return record.LeaseTable(machine, leases, table.waiting, table.agent), notice


def overlap(first: record.LeaseRecord, second: record.LeaseRecord) -> bool:
    """Return whether two leases have a CPU or device in common."""
    return bool(first.cpus & second.cpus) or any(
        set(ids) & set(second.devices.get(resource, ())) for resource, ids in first.devices.items()
    )


def lease_liveness(lease: record.LeaseRecord) -> Liveness:
    """Return whether any process of a lease still runs, as far as it can be seen from here."""
    return joint_liveness(lease.processes, lease.cgroup)


def living(table: record.LeaseTable) -> tuple[record.LeaseTable, list[record.LeaseRecord]]:
    """Return the leases and the queue without those whose processes are gone.

    The second value is the leases that have so ended.
    """
    ended = [lease for lease in table.leases if lease_liveness(lease) is Liveness.GONE]
    ended_ids = {lease.id for lease in ended}
    leases = tuple(lease for lease in table.leases if lease.id not in ended_ids)
    waiting = tuple(
        waiter for waiter in table.waiting if liveness(waiter.process) is not Liveness.GONE
    )
    return record.LeaseTable(table.machine, leases, waiting, table.agent), ended


def check_release(
    lease: record.LeaseRecord | None, name: str, *, force: bool
) -> tuple[record.LeaseRecord, Liveness]:
    """Return a lease that may be released by its name, and whether it is alive.

    Args:
        lease: the lease; None: there is none of that name.
        name: the name.
        force: release it although its process runs, or may run.

    Raises:
        AllocationError: there is none, or its process runs, or may run, and `force` is not given.
    """
    if lease is None:
        raise AllocationError(f"no lease has the name {name!r}: see `alignup ps`")

    alive = lease_liveness(lease)
    if not force and alive is not Liveness.GONE:
        state = "on another host or in another container, or cannot be looked at now"
        if alive is Liveness.RUNNING:
            state = "running"
        raise AllocationError(
            f"lease {name!r} is held by pid {lease.process.pid}, which is {state}; --force frees it"
        )

    return lease, alive


def text_of(state: Path) -> str:
    """Return the path of the file as evidence has it: what is no UTF-8 is escaped."""
    return os.fsencode(state).decode("utf-8", "backslashreplace")


def _texts_of(folder: str, *, of_all_users: bool) -> tuple[int, list[bytes] | None]:
    """Return the user of a process, and what `_texts` says of it.

    Nothing is said of it if it is gone, or is not asked.
    """
    # open, the folder stands for this very process, not for a later one with its number
    with suppress(OSError), opened(folder, os.O_DIRECTORY) as descriptor:
        uid = _user(descriptor)
        is_asked = uid == os.geteuid() or (of_all_users and uid >= 0)
        texts = _texts(descriptor, uid) if is_asked else []
        # last, since it may become another user's meanwhile
        if texts and _user(descriptor) != uid:
            return uid, []
        return uid, texts

    return -1, []


def _user(folder: int) -> int:
    """Return the user that all four ids of a process name; -1: they differ.

    Who owns its files in /proc says less.
    """
    for line in _read("status", folder).splitlines():
        if line.startswith(b"Uid:"):
            ids = set(line.split()[1:])
            return int(ids.pop()) if len(ids) == 1 else -1

    return -1


def _texts(folder: int, uid: int) -> list[bytes] | None:
    """Return what might be evidence about the process of a folder in /proc.

    Its files are looked at before its environment: a keeper's child has the file until it executes
    its command, and the variable from then on. While it does, it has neither, nor words of a
    command: then this is None.
    """
    names: list[str] = []
    texts: list[bytes] = []
    # it may end between any two steps
    with suppress(OSError), opened("fd", os.O_DIRECTORY, folder) as descriptor:
        names = os.listdir(descriptor)  # noqa: PTH208  # of a descriptor
        for name in names:
            with suppress(OSError):
                if os.readlink(name, dir_fd=descriptor) == _LINK:
                    texts.append(_read(name, descriptor, uid))

    environment = _read("environ", folder)
    if names and not (texts or environment or _read("cmdline", folder)):
        return None

    prefix = f"{VARIABLE}=".encode()
    texts += [
        variable.removeprefix(prefix)
        for variable in environment.split(b"\0")
        if variable.startswith(prefix)
    ]
    return texts


def _read(name: str, folder: int, uid: int | None = None) -> bytes:
    """Return the start of a file.

    Return nothing if it cannot be read, or has to be a user's and is not.
    """
    with suppress(OSError), opened(name, os.O_NONBLOCK, folder) as descriptor:
        if uid is None or os.fstat(descriptor).st_uid == uid:
            content = b""
            while len(content) < _LARGEST and (piece := os.read(descriptor, _PIECE)):
                content += piece
            return content

    return b""
