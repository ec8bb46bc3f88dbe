"""Writes what happens to the leases into a file before anybody is told, and reads it back after whatever happened.

A line has the checksum of what follows it, and an entry. The first entry is a table of all leases; when the file has
grown, a new one that starts with today's table takes its place. Entries that come while the disk is busy are written
together (group commit).
"""

from __future__ import annotations

import asyncio
import os
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.agent.entries import Entry, Freed, Given, Joined, Left
from alignup.errors import InputError
from alignup.leases.lease_liveness import lease_liveness
from alignup.leases.private_file import open_own, write_new
from alignup.leases.process import Liveness
from alignup.leases.record import LeaseRecord, LeaseTable, Waiter, encode_leases, lease_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["Journal", "LostJournalError", "read_journal", "write_journal"]

VERSION: Final = 1
_LARGEST: Final = 8 << 20
"""Bytes after which the file is made anew."""
_CHECKSUM: Final = 8


class LostJournalError(Exception):
    """There is no journal, or nothing in it is whole: what leases there were it does not say."""


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The first entry: the leases when the file was made."""

    version: int
    table: LeaseTable


_DECODE: Final = lease_decoder(Began | Given | Freed | Joined | Left).decode  # type: ignore[arg-type]  # a union


def read_journal(path: Path) -> tuple[LeaseTable, str]:
    """Return the leases that a journal ends with, and a sentence if its end was torn off.

    What was not written whole was promised to nobody. A line that is damaged in the middle is another matter: what
    follows cannot be believed, unless all processes that are named anywhere are gone.

    Raises:
        LostJournalError: there is none, or its first line, which is written whole or not at all, is damaged.
        InputError: it cannot be read, is damaged further down, or of a later release.
    """
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        raise LostJournalError(f"the journal is gone at {path}") from None
    except OSError as error:
        why = (error.strerror or "an error").lower()
        raise InputError(f"expected a journal that can be read, got {why!r} at {path}") from error
    entries = [_decoded(line) for line in lines]
    whole = next((number for number, entry in enumerate(entries) if entry is None), len(entries))
    later = [entry for entry in entries[whole:] if entry is not None]
    if later and any(map(_names_a_process, (*entries[:whole], *later))):
        raise InputError.at(
            f"{path}:{whole + 1}", "a whole line, or all processes of the journal gone", lines[whole][:40]
        )
    if not whole:
        raise LostJournalError(f"the journal is damaged from its first line at {path}")
    table = _replayed(entries[:whole], path)
    torn = lines[whole] if whole < len(lines) else b""
    return table, f"the journal's end was torn off and is left out at {path}:{whole + 1}" if torn else ""


def write_journal(path: Path, table: LeaseTable) -> int:
    """Write a journal that starts with a table, in the place of an earlier one; return its size in bytes.

    Raises:
        OSError: it cannot be written; the earlier one is still there.
    """
    draft = path.with_name(path.name + ".new")
    with suppress(FileNotFoundError):
        draft.unlink()
    text = _line(Began(VERSION, table))
    write_new(draft, text)
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return len(text)


class Journal:
    """A journal that is being written, from within an event loop.

    Args:
        path: the file, which `write_journal` has made.
        table: returns the leases as they are now, for the next file.
        failed: called with an error after which nothing more is written.
        durable: entries are on the disk before anybody is told; else they survive the end of this process only.
    """

    def __init__(
        self,
        path: Path,
        table: Callable[[], LeaseTable],
        failed: Callable[[OSError], None],
        *,
        durable: bool = True,
    ) -> None:
        self._path = path
        self._table = table
        self._failed = failed
        self._durable = durable
        self._descriptor = open_own(path, os.O_WRONLY | os.O_APPEND)
        self._size = self._first_size = os.fstat(self._descriptor).st_size
        self._lines: list[bytes] = []
        self._told: list[Callable[[], None]] = []
        self._wake = asyncio.Event()
        self._is_broken = False
        self.commits = 0
        """How many times the disk was waited for."""

    def append(self, entries: Iterable[Entry], tell: Callable[[], None]) -> None:
        """Write entries, in the order of the calls; call `tell` when they, and all before them, are written."""
        self._lines.extend(map(_line, entries))
        self._told.append(tell)
        if self._durable:
            self._wake.set()
        else:
            self._flush_now()

    async def run(self) -> None:
        """Write what is appended until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            lines, told = self._taken()
            write = self._writing(lines)
            try:
                await loop.run_in_executor(None, write)
            except OSError as error:
                self._break(error)
                return
            self.commits += 1
            for tell in told:
                loop.call_soon(tell)  # each by itself: one that fails is logged, and stops nobody else

    def close(self) -> None:
        """Write what is left, and close the file."""
        with suppress(OSError):
            self._flush_now()
        os.close(self._descriptor)

    def _flush_now(self) -> None:
        lines, told = self._taken()
        if self._is_broken:
            return
        try:
            self._writing(lines)()
        except OSError as error:
            self._break(error)
            return
        for tell in told:
            tell()

    def _break(self, error: OSError) -> None:
        """Write no more: behind a line that was written in part, nothing would be read again."""
        self._is_broken = True
        self._failed(error)

    def _taken(self) -> tuple[list[bytes], list[Callable[[], None]]]:
        lines, told = self._lines, self._told
        self._lines, self._told = [], []
        return lines, told

    def _writing(self, lines: list[bytes]) -> Callable[[], None]:
        """Return the function that writes some lines, or the whole table if the file has grown large."""
        if self._size > max(_LARGEST, 4 * self._first_size):
            table = self._table()  # it has what the lines say
            return lambda: self._begin_anew(table)
        return lambda: self._write(b"".join(lines))

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        while data:
            data = data[os.write(self._descriptor, data) :]
        if self._durable:
            os.fdatasync(self._descriptor)

    def _begin_anew(self, table: LeaseTable) -> None:
        self._size = self._first_size = write_journal(self._path, table)
        earlier, self._descriptor = self._descriptor, open_own(self._path, os.O_WRONLY | os.O_APPEND)
        os.close(earlier)


def _line(entry: Began | Entry) -> bytes:
    """Return the line of an entry."""
    text = encode_leases(entry)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _decoded(line: bytes) -> Began | Entry | None:
    """Return the entry of a line; None if it is not whole."""
    text = line[_CHECKSUM + 1 :]
    if line[:_CHECKSUM] != b"%08x" % zlib.crc32(text):
        return None
    try:
        entry: Began | Entry = _DECODE(text)
    except msgspec.MsgspecError:
        return None
    return entry


def _names_a_process(entry: Began | Entry | None) -> bool:
    """Return whether an entry is about a process that may still run."""
    found: list[LeaseRecord | Waiter] = []
    if isinstance(entry, Given):
        found = [entry.lease]
    elif isinstance(entry, Began):
        found = [*entry.table.leases]
    return any(lease_liveness(one) is not Liveness.GONE for one in found if isinstance(one, LeaseRecord))


def _replayed(entries: list[Began | Entry | None], path: Path) -> LeaseTable:
    """Return the leases after some entries.

    Raises:
        InputError: the first is no table, or of a later release.
    """
    began, *rest = entries
    if not isinstance(began, Began):
        raise InputError.at(f"{path}:1", "a journal that starts with a table of leases", type(began).__name__)
    if began.version > VERSION:
        raise InputError.at(f"{path}:1", f"a journal in the form of version {VERSION}", began.version)
    leases = {lease.id: lease for lease in began.table.leases}
    waiting = {waiter.id: waiter for waiter in began.table.waiting}
    for entry in rest:
        if isinstance(entry, Given):
            leases[entry.lease.id] = entry.lease
        elif isinstance(entry, Freed):
            leases.pop(entry.id, None)
        elif isinstance(entry, Joined):
            waiting[entry.waiter.id] = entry.waiter
        elif isinstance(entry, Left):
            waiting.pop(entry.id, None)
    return LeaseTable(began.table.machine, tuple(leases.values()), tuple(waiting.values()))
