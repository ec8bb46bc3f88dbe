"""Takes over the leases of a file for the agent, and gives them back to it.

It sees to it that there is one agent only. The file then says which agent has its leases, so that
no command gives anything beside it. At every moment either the file or the journal has them: the
journal is written first, and counts only once the file says so.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from alignup.errors import InputError, system_errors
from alignup.host.agent.journal import Damage, Reading, read_entries, settled, write_journal
from alignup.host.leases.evidence import find_evidence, living
from alignup.host.leases.file import LeaseFile, check_machine
from alignup.host.leases.record import LeaseRecord, LeaseTable, MachineIdentity
from alignup.host.processes.cgroups import remove_cgroup
from alignup.host.processes.identity import identify
from alignup.host.trusted_files import check_trusted, is_at, make_folders, open_own, set_aside
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from alignup.host.leases.evidence import Evidence

# Bytes of the first line of the lock file; the second line is the socket.
_NOTE = 121
# What it says, padded with spaces. The first release that had an agent wrote the pid alone.
_NOTE_FORM: Final = re.compile(
    r"(?P<pid>[0-9]+)( (?P<boot_id>\S+) (?P<inode>[0-9]+) (?P<size>[0-9]+) (?P<leases>[0-9]+))? *\n"
)
# Bytes of a journal that is read: one is made anew long before.
_LARGEST = 1 << 29
_REPAIR = "nothing is given until `alignup agent --repair` has been used"


class KnownLeases(NamedTuple):
    """The leases of an agent, as far as they are known.

    Attributes:
        lost: why there may be others; empty: there are none.
        damaged: the text of a journal with lines that cannot be read.
    """

    table: LeaseTable
    lost: str = ""
    damaged: bytes = b""


class _Promise(NamedTuple):
    """What the agent before this one wrote down about its journal, after each write.

    Attributes:
        is_lost: what it wrote is no longer there.
    """

    boot_id: str = ""
    inode: int = 0
    size: int = 0
    leases: int | None = None
    is_lost: bool = False


class Ownership:
    """The right of one agent to the leases of a file, until it is closed or the process ends.

    Args:
        file: the file of leases.

    Raises:
        InputError: another agent has it, or it cannot be had.
    """

    def __init__(self, file: LeaseFile) -> None:
        self._file = file
        self._socket = ""
        self.journal = file.journal
        # The file had no agent when this one took over.
        self.is_first = False
        # The cgroups of leases that ended before this agent took over: nobody else will remove
        # them.
        self.ended_cgroups: tuple[str, ...] = ()
        # Why there may be leases that are not known, and nothing is to be given; empty: all are
        # known.
        self.lost = ""

        check_trusted(file.path, "the lease file")
        lock = self._lock = file.agent_lock
        with system_errors("cannot lock a file", lock):
            make_folders(lock.parent)
            self._descriptor = open_own(lock, os.O_RDWR | os.O_CREAT)

        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            note = self._read_note().split()
            os.close(self._descriptor)
            pid = note[0] if note else "unknown"
            raise InputError(f"pid {pid} is the agent of {file.path} already") from None

        self._boot_id = identify(os.getpid()).boot_id
        self._note(_promise_in(self._read_note()))

    def close(self) -> None:
        """Let another agent have it; the file goes on to say that an agent has the leases."""
        os.close(self._descriptor)

    def wrote(self, descriptor: int, leases: int) -> None:
        """Write down how far the journal is on the disk.

        So one that is cut off later is noticed.
        """
        status = os.fstat(descriptor)
        self._note(_Promise(self._boot_id, status.st_ino, status.st_size, leases))

    def take_over(
        self, machine: MachineIdentity, socket: Path, tell: Callable[[str], None]
    ) -> LeaseTable:
        """Return the leases that there are, once they are in the journal, and the file says so.

        Leases and waiters whose processes are gone are left out.

        Args:
            machine: the machine that they must be of.
            socket: where the agent will serve.
            tell: called with a sentence about what is not as it was left.

        Raises:
            InputError: the leases are of another machine, or a file cannot be read or written.
        """
        with self._file.change(by_agent=True) as change:
            is_first = not change.table.agent
            known_leases = KnownLeases(change.table)
            if not is_first:
                known_leases = self._known_leases(change.table, tell)

            table, ended = living(known_leases.table)
            self._tell_of_ended(ended, tell)
            check_machine(table, machine, self._file.path)
            before = table.machine
            if before is not None and before.description != machine.description:
                tell(
                    f"this machine has {machine.description} now, and had {before.description} "
                    "before"
                )

            table = LeaseTable(machine, table.leases, table.waiting)
            # first of all: with the journal there, a file that somebody removes is known to be the
            # agent's
            socket_line = f"{socket}\n".encode()
            with system_errors("cannot write a file", self._lock):
                os.pwrite(self._descriptor, socket_line, _NOTE)
                os.truncate(self._descriptor, _NOTE + len(socket_line))

            self._write(table, known_leases.damaged, known_leases.lost, tell)
            change.table = LeaseTable(machine, agent=str(socket))

        self.lost = ""
        if known_leases.lost:
            self.lost = f"{known_leases.lost}: {_REPAIR}"
            tell(self.lost)

        self.is_first = is_first
        self._socket = str(socket)
        self.ended_cgroups = tuple(lease.cgroup for lease in ended if lease.cgroup)
        return table

    def look(self) -> tuple[LeaseRecord, ...]:
        """Make sure that the file still says that this agent has the leases.

        If somebody removed it, it is made to say so again.

        Returns:
            The leases that commands have taken from the file meanwhile; they are the agent's from
            now on.

        Raises:
            InputError: the lock file was removed, so that another agent may have the leases, or a
                file cannot be used.
        """
        if not is_at(self._lock, self._descriptor):
            raise InputError(
                f"the lock file was removed at {self._lock}: another agent may have the leases"
            )

        if self._file.read().agent == self._socket:
            return ()

        with self._file.change(by_agent=True) as change:
            table, _ = living(change.table)  # what the dead had may be others' by now
            change.table = LeaseTable(change.table.machine, agent=self._socket)

        return table.leases

    def hand_back(self, tell: Callable[[str], None]) -> LeaseTable:
        """Put the leases back into the file, and return them; commands then use the file again.

        Raises:
            InputError: a file cannot be read or written, or some leases may not be known.
        """
        ended: list[LeaseRecord] = []
        with self._file.change(by_agent=True) as change:
            table = change.table
            if table.agent:
                known_leases = self._known_leases(table, tell)
                if known_leases.lost:
                    raise InputError(f"{known_leases.lost}: see `alignup agent --repair`")

                table, ended = living(known_leases.table)
                self._tell_of_ended(ended, tell)
                table = change.table = LeaseTable(table.machine, table.leases)

        self.journal.unlink(missing_ok=True)
        cgroups = [lease.cgroup for lease in ended if lease.cgroup]
        for cgroup in (*self.ended_cgroups, *cgroups):
            remove_cgroup(cgroup)

        return table

    def repair(self, tell: Callable[[str], None], *, writes: bool) -> KnownLeases:
        """Return the leases that are known, and why there may be others.

        If it `writes`, from now on there are no others.

        Raises:
            InputError: no agent has the leases, or a file cannot be read or written.
        """
        with self._file.change(by_agent=True) as change:
            if not change.table.agent:
                raise InputError(
                    f"no agent keeps the leases of {self._file.path}: there is no journal"
                )

            known_leases = self._known_leases(change.table, tell)
            table, _ = living(known_leases.table)
            known_leases = known_leases._replace(table=table)
            if writes:
                self._write(table, known_leases.damaged, "", tell)

        return known_leases

    def _known_leases(self, file_table: LeaseTable, tell: Callable[[str], None]) -> KnownLeases:
        """Return the leases of the journal, and those beside them.

        These are the ones of the file, and those that running processes are found to show.

        Raises:
            InputError: it cannot be read.
        """
        reading, text = self._reading()
        shown: Sequence[Evidence] = ()
        if not reading.is_whole:
            shown = find_evidence(self._file.path, of_all_users=os.geteuid() == 0)

        table, notice, lost = settled(reading, shown, self._promise.leases)
        if notice:
            tell(f"{notice}, at {self.journal}")

        if self._promise.boot_id not in {"", self._boot_id}:
            lost = ""  # whoever had them has ended with that boot

        ids = {lease.id for lease in table.leases}
        beside = tuple(lease for lease in file_table.leases if lease.id not in ids)
        table = msgspec.structs.replace(table, leases=table.leases + beside)
        return KnownLeases(table, lost, b"" if reading.is_whole else text)

    def _reading(self) -> tuple[Reading, bytes]:
        """Return what the journal says, and its text.

        What was promised and is not there, or is no entry, counts as damage. Every agent has noted
        what it promised, so that without a note the end may be missing.

        Raises:
            InputError: it cannot be read.
        """
        text = b""
        inode = 0
        with (
            system_errors("cannot read the journal", self.journal),
            suppress(FileNotFoundError),
            os.fdopen(open_own(self.journal, os.O_RDONLY), "rb") as file,
        ):
            text = file.read(_LARGEST + 1)
            inode = os.fstat(file.fileno()).st_ino

        if len(text) > _LARGEST:
            raise InputError(
                f"the journal {self.journal} is larger than {_LARGEST} bytes: move it away, and "
                "start the agent again, which then looks for the leases of running processes"
            )

        if not inode:
            return Reading(LeaseTable(), (Damage(1, b""),)), b""

        reading = read_entries(text, str(self.journal))
        promise = self._promise
        reading = reading._replace(is_end_known=not promise.is_lost)
        end = len(text) - len(reading.torn)
        if promise.boot_id == self._boot_id and promise.inode == inode and promise.size > end:
            missing = Damage(text.count(b"\n") + 1, reading.torn)
            reading = reading._replace(damage=(*reading.damage, missing))

        return reading, text

    def _write(
        self, table: LeaseTable, damaged: bytes, lost: str, tell: Callable[[str], None]
    ) -> None:
        """Write the journal anew; a damaged one is kept beside it.

        Raises:
            InputError: it cannot be written.
        """
        if damaged:
            tell(f"the damaged journal is now {set_aside(self.journal, damaged)}")

        def note() -> None:
            status = self.journal.stat()
            promise = _Promise(self._boot_id, status.st_ino, status.st_size, len(table.leases))
            # without it, the next agent would miss it, or have that of an earlier journal
            with system_errors("cannot write a file", self._lock):
                self._write_note(promise)

        with system_errors("cannot write the journal", self.journal):
            write_journal(self.journal, table, lost, note)

        # a crash of the machine leaves a note as well: this one, or a later one in its place
        with system_errors("cannot write a file", self._lock):
            os.fsync(self._descriptor)

    def _read_note(self) -> str:
        return os.pread(self._descriptor, _NOTE, 0).decode("ascii", "replace")

    def _note(self, promise: _Promise) -> None:
        """Write down who has the leases, and what was promised, where that can be."""
        with suppress(OSError):  # without it, less is noticed
            self._write_note(promise)

    def _write_note(self, promise: _Promise) -> None:
        """Write down who has the leases, and what was promised.

        A note is as long as any, and so never torn.

        Raises:
            OSError: it cannot be written.
        """
        self._promise = promise
        note = str(os.getpid())
        if promise.boot_id:
            leases = "" if promise.leases is None else promise.leases
            note += f" {promise.boot_id} {promise.inode} {promise.size} {leases}"
        elif promise.is_lost:
            note += " lost"  # until it is known again what there is

        os.pwrite(self._descriptor, f"{note:<{_NOTE - 1}}\n".encode(), 0)

    def _tell_of_ended(self, ended: list[LeaseRecord], tell: Callable[[str], None]) -> None:
        """Say how many leases have ended while there was no agent."""
        of_this_boot = sum(lease.process.boot_id == self._boot_id for lease in ended)
        of_earlier_boots = len(ended) - of_this_boot
        if of_earlier_boots:
            tell(f"{counted(of_earlier_boots, 'lease')} ended with an earlier boot of this machine")
        if of_this_boot:
            tell(f"{counted(of_this_boot, 'lease')} ended while no agent ran")


def _promise_in(note: str) -> _Promise:
    """Return what a note says."""
    match = _NOTE_FORM.match(note)
    if match is None:
        return _Promise(is_lost=True)

    if match["boot_id"] is None:
        return _Promise()

    return _Promise(match["boot_id"], int(match["inode"]), int(match["size"]), int(match["leases"]))
