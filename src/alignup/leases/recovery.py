"""Lets leases be found again when their file is damaged or lost: what a process holds can be read off the process.

A command started by `alignup run` has its lease in its environment; its keeper, and a Python process that took one
itself, have it in a file in memory. Both are visible in /proc to the same user, and gone with the process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import InputError
from alignup.leases.process import Liveness, joint_liveness
from alignup.leases.record import LeaseRecord, MachineIdentity, encode_leases, lease_decoder
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "VARIABLE",
    "Evidence",
    "evidence_file",
    "evidence_of",
    "evidence_text",
    "find_evidence",
    "show_evidence",
    "text_of",
]

VARIABLE: Final = "ALIGNUP_LEASE"
_NAME: Final = "alignup-lease"
_LINK: Final = f"/memfd:{_NAME} (deleted)"
_LARGEST: Final = 1 << 20


class Evidence(msgspec.Struct, frozen=True):
    """A lease, with the file that it is kept in and the machine that it is of."""

    state: str
    machine: MachineIdentity
    lease: LeaseRecord


_DECODE: Final = lease_decoder(Evidence).decode


def evidence_of(lease: LeaseRecord, machine: MachineIdentity, state: Path) -> Evidence:
    """Return the evidence of a lease of a machine that is kept in the file `state`."""
    return Evidence(text_of(state), machine, lease)


def evidence_text(evidence: Evidence) -> str:
    """Return the text that says it."""
    return encode_leases(evidence).decode()


def evidence_file() -> int | None:
    """Make a file in memory for evidence; return its descriptor, to be closed when the lease ends.

    None where the system has no such files: the lease is then not found again if the file of leases is lost.
    """
    try:
        return os.memfd_create(_NAME, os.MFD_CLOEXEC)
    except OSError:
        return None


def show_evidence(evidence: Evidence, descriptor: int | None) -> None:
    """Write evidence into a file that `evidence_file` made; do nothing if there is none."""
    if descriptor is not None:
        os.write(descriptor, evidence_text(evidence).encode())


def find_evidence(state: Path, proc: str = "/proc") -> tuple[Evidence, ...]:
    """Return the leases kept in the file `state` whose processes run, by process id.

    Only this user's processes are believed, and only about themselves.

    Args:
        state: the file, as an absolute path.
        proc: where the kernel's proc file system is.
    """
    found: dict[str, Evidence] = {}
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):  # noqa: PTH208  # names are wanted
        for text in _texts_of(f"{proc}/{pid}"):
            try:
                evidence = decode_json(text, "a lease", decode=_DECODE)
            except InputError:
                continue
            # children inherit the environment, and some the file
            holders = [one for one in evidence.lease.processes if one.pid == pid]
            if evidence.state == text_of(state) and joint_liveness(holders) is Liveness.RUNNING:
                found[evidence.lease.id] = evidence
    return tuple(found.values())


def text_of(state: Path) -> str:
    """Return the path of the file as evidence has it: what is no UTF-8 is escaped."""
    return os.fsencode(state).decode("utf-8", "backslashreplace")


def _texts_of(folder: str) -> list[bytes]:
    """Return what might be evidence about one process; nothing if it is gone or not this user's."""
    try:
        # open, it stands for this very process, not for a later one with its number
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        # last, since it may become another user's meanwhile
        texts = list(_texts(descriptor)) if _is_own(descriptor) else []
        return texts if texts and _is_own(descriptor) else []
    finally:
        os.close(descriptor)


def _is_own(folder: int) -> bool:
    """Return whether all four user ids of a process are this user's; who owns its files in /proc says less."""
    own = str(os.geteuid()).encode()
    for line in _read("status", folder).splitlines():
        if line.startswith(b"Uid:"):
            return set(line.split()[1:]) == {own}
    return False


def _texts(folder: int) -> Iterator[bytes]:
    """Yield what might be evidence about the process of a folder in /proc."""
    prefix = f"{VARIABLE}=".encode()
    for variable in _read("environ", folder).split(b"\0"):
        if variable.startswith(prefix):
            yield variable.removeprefix(prefix)
    try:
        descriptor = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    try:
        for name in _names(descriptor):
            try:
                link = os.readlink(name, dir_fd=descriptor)
            except OSError:
                continue
            if link == _LINK:
                yield _read(name, descriptor, is_own=True)
    finally:
        os.close(descriptor)


def _names(folder: int) -> list[str]:
    """Return the names in an open folder of /proc; none if its process has ended since it was opened."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(name: str, folder: int, *, is_own: bool = False) -> bytes:
    """Return the start of a file; nothing if it cannot be read, or has to be this user's own and is not."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if is_own and os.fstat(descriptor).st_uid != os.geteuid():
            return b""
        try:
            return file.read(_LARGEST)
        except OSError:
            return b""
