"""Writes what happens to the leases into a file before anybody is told, and reads it back.

It reads back whatever happened in between. A line has the checksum of what follows it, and an
entry. The first entry is a table of all leases; when the file has grown, a new one that starts with
today's table takes its place. Entries that come while the disk is busy are written together (group
commit), by a thread that does nothing else.

What ends in a newline was promised. Where such a line cannot be read, the leases that it may have
given are looked for among those that running processes show; what is not found is said to be lost,
and nothing is given until an operator has looked.
"""

from __future__ import annotations

import asyncio
import operator
import os
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from alignup.errors import InputError, system_reason
from alignup.host.leases import record
from alignup.host.leases.evidence import Evidence, with_evidence
from alignup.host.proc_files import opened
from alignup.host.trusted_files import is_at, open_own, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


VERSION: Final = 1
# Bytes after which the file is made anew.
_LARGEST: Final = 8 << 20
_CHECKSUM: Final = 8
# Places at which an entry may end that are tried.
_MOST_ENDS: Final = 1 << 20
# The longest line, in bytes, of which it is found out whether one of them alone is wrong.
_LONGEST: Final = 1 << 16
# The beginning of an entry, and what it ends with.
_BEGINNING: Final = re.compile(rb"[0-9a-f]{8} \{")
_END: Final = re.compile(rb"\}")


class Began(msgspec.Struct, frozen=True, tag="began", omit_defaults=True):
    """The first entry: the leases when the file was made.

    Attributes:
        lost: why there may be leases that are not known; empty: there are none.
    """

    version: int
    table: record.LeaseTable
    lost: str = ""


_ENTRY: Final = Began | record.Given | record.Freed | record.Joined | record.Left
_DECODE: Final = record.lease_decoder(_ENTRY).decode  # type: ignore[arg-type]  # a union


class Damage(NamedTuple):
    """A promised line, or several that follow each other, that cannot be read."""

    line: int
    text: bytes

    @property
    def end(self) -> int:
        """The number of the line behind it."""
        return self.line + self.text.count(b"\n") + 1

    @property
    def is_of_one_entry(self) -> bool:
        """Whether one entry was there for certain, and not several that were written over.

        Damage may go from within one entry into the next, and leave the beginning of the first and
        the end of the second. One wrong byte, a newline among them, does not.
        """
        return _has_one_wrong_byte(self.text)


class Reading(NamedTuple):
    """What a journal says.

    Attributes:
        torn: what stands at the end without a newline, and is no entry. If it was not written
            whole, it was promised to nobody.
        lost: see `Began.lost`.
        is_end_known: whether it is known that nothing is missing at the end.
    """

    table: record.LeaseTable
    damage: tuple[Damage, ...] = ()
    torn: bytes = b""
    lost: str = ""
    is_end_known: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether all that was promised is there, for all that is known."""
        return not self.damage and self.is_end_known


def read_entries(text: bytes, where: str) -> Reading:
    """Return what the lines of a journal say; `where` is the place that an error names.

    Raises:
        InputError: it is of a later release, or has amounts that no machine has.
    """
    *promised, tail = text.split(b"\n")
    entries: list[Began | record.Entry] = []
    # By the first of several that follow each other, lines that cannot be read: they may be one
    # entry with a newline in it.
    unreadable: dict[int, list[bytes]] = {}
    first = 0
    for number, line in enumerate(promised, 1):
        line_entries = _entries_of(line)
        is_misplaced = number > 1 and any(isinstance(entry, Began) for entry in line_entries)
        if line_entries and not is_misplaced:
            entries += line_entries
            first = 0
            continue

        first = first or number
        unreadable.setdefault(first, []).append(line)

    damage = [Damage(number, b"\n".join(lines)) for number, lines in unreadable.items()]
    tail_entries, torn = _unfinished(tail)
    entries += tail_entries
    began = next((entry for entry in entries if isinstance(entry, Began)), None)
    if began is None and not damage:
        damage = [Damage(1, b"")]

    if began is not None and began.version > VERSION:
        raise InputError.at(
            f"{where}:1", f"a journal in the form of version {VERSION}", began.version
        )

    table = _replayed(entries, is_damaged=bool(damage))
    record.check_amounts(table.leases, where)
    return Reading(table, tuple(damage), torn, "" if began is None else began.lost)


def settled(
    reading: Reading, shown: Sequence[Evidence], promised_leases: int | None = None
) -> tuple[record.LeaseTable, str, str]:
    """Return the leases that are known, words about where from, and why there may be others.

    The last is empty where there are no others.

    Args:
        reading: what the journal says.
        shown: what running processes show.
        promised_leases: how many leases there were when the journal was written last; None: not
            known.
    """
    if reading.is_whole:
        notice = ""
        if reading.torn:
            notice = "the journal ends with an incomplete entry, which is ignored"
        return reading.table, notice, reading.lost

    table, evidence_notice = with_evidence(reading.table, shown)
    lines = ", ".join(dict.fromkeys(str(damage.line) for damage in reading.damage[:4]))
    trouble = f"line {lines} of the journal cannot be read"
    doubt = f"{trouble}, and may have recorded a lease"
    if not lines:
        trouble = "the lock file no longer says how long the journal was"
        doubt = f"{trouble}, and an end that recorded a lease may be missing"

    notice = f"{trouble}; {evidence_notice or 'running processes show no other lease'}"
    has_all = promised_leases is not None and len(table.leases) >= promised_leases
    # of several entries, one may have freed a lease that is in the table, and another given one
    if has_all and reading.is_end_known and len(reading.damage) == 1:
        is_sure = not reading.table.leases or reading.damage[0].is_of_one_entry
        if is_sure:
            return table, notice, reading.lost

    return table, notice, doubt


def write_journal(
    path: Path,
    table: record.LeaseTable,
    lost: str = "",
    replaced: Callable[[], object] = lambda: None,
) -> int:
    """Write a journal that starts with a table, in the place of an earlier one.

    Args:
        path: the file.
        table: the leases.
        lost: see `Began.lost`.
        replaced: called once it has taken the place, before the disk is waited for: what is noted
            of the earlier one is not to be taken for this one's, which may get its inode.

    Returns:
        Its size in bytes.

    Raises:
        OSError: it cannot be written; the earlier one is still there.
    """
    text = line_of(Began(VERSION, table, lost))
    replace_file(path, text)
    replaced()
    with opened(path.parent, os.O_DIRECTORY) as folder:
        os.fsync(folder)
    return len(text)


class Journal:
    """A journal that is being written, from within an event loop.

    Args:
        path: the file, which `write_journal` has made.
        table: returns the leases as they are now, for the next file.
        broken: called with a sentence after which nothing more is written.
        durable: entries are on the disk before anybody is told; else they survive the end of this
            process only.
        lost: see `Began.lost`.
        written: called, in the thread that writes, with the open file and the number of leases
            after each write.
    """

    def __init__(
        self,
        path: Path,
        table: Callable[[], record.LeaseTable],
        broken: Callable[[str], None],
        *,
        durable: bool = True,
        lost: str = "",
        written: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self._path = path
        self._table = table
        self._broken = broken
        self._durable = durable
        self._lost = lost
        self._written = written
        self._descriptor = open_own(path, os.O_WRONLY | os.O_APPEND)
        self._size = self._first_size = os.fstat(self._descriptor).st_size

        # What is to be written next, and the event that says that it is, or that it cannot be.
        self._lines: list[bytes] = []
        self._done = asyncio.Event()
        self._wake = asyncio.Event()
        self._is_closing = False
        self._trouble = ""

        # its own: what hangs elsewhere is not to keep the disk waiting
        self._disk = ThreadPoolExecutor(1, "journal")
        self._writing = asyncio.create_task(self._run())

    def append(self, *entries: record.Entry) -> None:
        """Write entries, in the order of the calls."""
        self._lines += map(line_of, entries)
        self._wake.set()

    async def written(self) -> None:
        """Return when all that was appended is written.

        Raises:
            InputError: it cannot be written.
        """
        done = self._done
        self._wake.set()
        if not self._trouble:
            await done.wait()
        if self._trouble:
            raise InputError(self._trouble)

    async def close(self) -> None:
        """Wait until all is written, and close the file."""
        self._is_closing = True
        self._wake.set()
        await self._writing
        self._disk.shutdown()
        os.close(self._descriptor)

    async def _run(self) -> None:
        """Write what is appended until closed."""
        loop = asyncio.get_running_loop()
        while not self._is_closing or self._lines:
            await self._wake.wait()
            self._wake.clear()
            lines, self._lines = self._lines, []
            done, self._done = self._done, asyncio.Event()

            try:
                if lines and not self._trouble:
                    table = self._table()  # it has what the lines say
                    await loop.run_in_executor(self._disk, self._write, b"".join(lines), table)
            except Exception as error:  # noqa: BLE001  # nobody is above, and those who asked wait
                # behind a line that was written in part, nothing would be read again
                self._trouble = f"cannot write the journal: {system_reason(error)}"
                self._broken(self._trouble)

            done.set()

    def _write(self, data: bytes, table: record.LeaseTable) -> None:
        """Write some lines.

        Write the whole table in a new file if the file has grown large or is not as it was left.
        """
        is_as_left = (
            is_at(self._path, self._descriptor) and os.fstat(self._descriptor).st_size == self._size
        )
        if not is_as_left or self._size > max(_LARGEST, 4 * self._first_size):

            def replaced() -> None:
                earlier = self._descriptor
                self._descriptor = open_own(self._path, os.O_WRONLY | os.O_APPEND)
                os.close(earlier)
                self._written(self._descriptor, len(table.leases))

            self._size = self._first_size = write_journal(self._path, table, self._lost, replaced)
            return

        self._size += len(data)
        while data:
            data = data[os.write(self._descriptor, data) :]
        if self._durable:
            os.fdatasync(self._descriptor)

        self._written(self._descriptor, len(table.leases))


def line_of(entry: Began | record.Entry) -> bytes:
    """Return the line of an entry."""
    text = record.encode_leases(entry)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _entry_of(line: bytes) -> Began | record.Entry | None:
    """Return the entry of a line; None if it is not whole."""
    text = line[_CHECKSUM + 1 :]
    if line[:_CHECKSUM] != b"%08x" % zlib.crc32(text):
        return None
    return _decoded(text)


def _decoded(text: bytes) -> Began | record.Entry | None:
    """Return the entry that a text says; None: it says none."""
    try:
        entry: Began | record.Entry = _DECODE(text)
    except msgspec.MsgspecError:
        return None
    return entry


def _has_one_wrong_byte(line: bytes) -> bool:
    """Return whether a line is a whole entry but for one byte."""
    if len(line) > _LONGEST:
        return False

    text = line[_CHECKSUM + 1 :]
    checksum = zlib.crc32(text)
    beginning = b"%08x " % checksum
    if sum(map(operator.ne, line, beginning)) == 1:
        return _entry_of(beginning + text) is not None

    try:
        difference = int(line[:_CHECKSUM], 16) ^ checksum
    except ValueError:
        return False

    # the difference that one byte makes is taken through the bytes behind it: this goes back
    changes = [zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)]
    by_first_byte = {change >> 24: byte for byte, change in enumerate(changes)}
    for place in range(len(line) - 1, _CHECKSUM, -1):
        byte = by_first_byte[difference >> 24]
        if changes[byte] == difference:
            right = bytes([line[place] ^ byte])
            return _entry_of(line[:place] + right + line[place + 1 :]) is not None
        difference = (difference ^ changes[byte]) << 8 | byte

    return False


def _entries_of(line: bytes) -> list[Began | record.Entry]:
    """Return the entry of a line, or those of a line in which newlines were damaged.

    There are none if it cannot be read.
    """
    entry = _entry_of(line)
    if entry is not None:
        return [entry]

    entries, end = _joined_entries(line)
    return entries if end == len(line) else []


def _unfinished(tail: bytes) -> tuple[list[Began | record.Entry], bytes]:
    """Return the entries at the end of a journal that have no newline, and what is behind them.

    The newline of a promised line may be what is damaged.
    """
    entries, end = _joined_entries(tail)
    return entries, tail[end + 1 :] if entries else tail


def _joined_entries(text: bytes) -> tuple[list[Began | record.Entry], int]:
    """Return the entries with which a text begins, one byte between two, and where they end."""
    entries: list[Began | record.Entry] = []
    end = 0
    first = _first_entry(text, 0)
    while first is not None:
        entry, end = first
        entries.append(entry)
        first = _first_entry(text, end + 1)

    return entries, end


def _first_entry(text: bytes, start: int) -> tuple[Began | record.Entry, int] | None:
    """Return the entry that begins at a place of a text, and where it ends; None: there is none."""
    if not _BEGINNING.match(text, start):
        return None

    expected = int(text[start : start + _CHECKSUM], 16)
    checksum = 0
    end = first = start + _CHECKSUM + 1
    for brace in islice(_END.finditer(text, first), _MOST_ENDS):
        checksum = zlib.crc32(text[end : brace.end()], checksum)
        end = brace.end()
        if checksum == expected:
            entry = _decoded(text[first:end])
            if entry is not None:
                return entry, end

    return None


class _Leases:
    """The leases after some entries.

    Args:
        table: the leases at first; some may have a CPU in common, where one's processes are gone.
        ends_overlapping: what is given is taken to have been freed before: the entry that says so
            may be one of those that cannot be read.
    """

    def __init__(self, table: Iterable[record.LeaseRecord], *, ends_overlapping: bool) -> None:
        self.by_id: dict[str, record.LeaseRecord] = {}
        self._ends_overlapping = ends_overlapping
        # By what one lease alone may have, the ids of those that do, where they are looked for.
        self._holders: dict[_Unit, set[str]] = {}
        for lease in table:
            self._add(lease)

    def give(self, lease: record.LeaseRecord) -> None:
        """Add a lease, in the place of those that have some of it."""
        if self._ends_overlapping:
            for holder in set().union(*(self._holders.get(unit, ()) for unit in _units(lease))):
                self.free(holder)

        self._add(lease)

    def _add(self, lease: record.LeaseRecord) -> None:
        self.free(lease.id)
        self.by_id[lease.id] = lease
        if self._ends_overlapping:
            for unit in _units(lease):
                self._holders.setdefault(unit, set()).add(lease.id)

    def free(self, lease_id: str) -> None:
        """Take away a lease, if there is one of that id."""
        lease = self.by_id.pop(lease_id, None)
        if lease is not None and self._ends_overlapping:
            for unit in _units(lease):
                self._holders[unit].discard(lease_id)


# A CPU, or a device of a resource.
_Unit = int | tuple[str, str]


def _units(lease: record.LeaseRecord) -> list[_Unit]:
    """Return what a lease holds of what nobody else may hold at the same time."""
    devices = [(resource, device) for resource, ids in lease.devices.items() for device in ids]
    return [*lease.cpus, *devices]


def _replayed(entries: Sequence[Began | record.Entry], *, is_damaged: bool) -> record.LeaseTable:
    """Return the leases after some entries."""
    table = record.LeaseTable()
    leases = _Leases((), ends_overlapping=is_damaged)
    waiting: dict[str, record.Waiter] = {}
    for entry in entries:
        if isinstance(entry, Began):
            table = entry.table
            leases = _Leases(table.leases, ends_overlapping=is_damaged)
            waiting = {waiter.id: waiter for waiter in table.waiting}
        elif isinstance(entry, record.Given):
            leases.give(entry.lease)
        elif isinstance(entry, record.Freed):
            leases.free(entry.id)
        elif isinstance(entry, record.Joined):
            waiting[entry.waiter.id] = entry.waiter
        else:
            waiting.pop(entry.id, None)

    return record.LeaseTable(table.machine, tuple(leases.by_id.values()), tuple(waiting.values()))
