"""Lets leases be found again when their file is damaged: what a process holds can be read off the process.

A command started by `alignup run` has its lease in its environment; a Python process that took one itself
keeps it in a file in memory. Both are visible in /proc to the same user, and gone with the process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import InputError
from alignup.leases.process import Liveness, liveness
from alignup.leases.record import LeaseRecord, MachineIdentity, encode_leases, lease_decoder
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["VARIABLE", "Evidence", "evidence_text", "find_evidence", "show_evidence"]

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


def evidence_text(evidence: Evidence) -> str:
    """Return the text that says it."""
    return encode_leases(evidence).decode()


def show_evidence(evidence: Evidence) -> int | None:
    """Make a file in memory that says it; return its descriptor, to be closed when the lease ends.

    None where the system has no such files: the lease is then not found again if the file is damaged.
    """
    try:
        descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    except OSError:
        return None
    os.write(descriptor, evidence_text(evidence).encode())
    return descriptor


def find_evidence(state: Path, proc: str = "/proc") -> tuple[Evidence, ...]:
    """Return the leases kept in the file `state` whose processes run, by process id.

    Args:
        state: the file, as an absolute path.
        proc: where the kernel's proc file system is.
    """
    found: dict[str, Evidence] = {}
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):  # noqa: PTH208  # names are wanted
        for text in _texts(f"{proc}/{pid}"):
            try:
                evidence = decode_json(text, "a lease", decode=_DECODE)
            except InputError:
                continue
            # children inherit the environment, and some the file
            is_holder = evidence.lease.process.pid == pid and evidence.state == str(state)
            if is_holder and liveness(evidence.lease.process, proc) is Liveness.RUNNING:
                found[evidence.lease.id] = evidence
    return tuple(found.values())


def _texts(folder: str) -> Iterator[bytes]:
    """Yield what might be evidence about one process; nothing if it is gone or somebody else's."""
    prefix = f"{VARIABLE}=".encode()
    for variable in _read(f"{folder}/environ").split(b"\0"):
        if variable.startswith(prefix):
            yield variable.removeprefix(prefix)
    try:
        names = os.listdir(f"{folder}/fd")  # noqa: PTH208  # names are wanted
    except OSError:
        return
    for name in names:
        try:
            link = os.readlink(f"{folder}/fd/{name}")  # noqa: PTH115  # there is no path to be had
        except OSError:
            continue
        if link == _LINK:
            yield _read(f"{folder}/fd/{name}")


def _read(path: str) -> bytes:
    """Return the start of a file; nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # in /proc, and there are many
            return file.read(_LARGEST)
    except OSError:
        return b""
