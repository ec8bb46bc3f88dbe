"""Takes over the leases of a file for the agent, and gives them back to it; sees that there is one agent only.

The file then says which agent has its leases, so that no command gives anything beside it. At every
moment either the file or the journal has them: the journal is written first, and counts only once
the file says so.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

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
    from collections.abc import Callable
    from pathlib import Path


# Bytes of the first line of the lock file; the second line is the socket.
_NOTE = 121
_REPAIR = "nothing is given until `alignup agent --repair` has been used"


class Known(NamedTuple):
    """The leases of an agent, as far as they are known.

    Attributes:
        lost: why there may be others; empty: there are none.
        damaged: the text of a journal with lines that cannot be read.
    """

    table: LeaseTable
    lost: str = ""
    damaged: bytes = b""


class _Promise(NamedTuple):
    """What the agent before this one wrote down about its journal, after each write."""

    boot_id: str = ""
    inode: int = 0
    size: int = 0
    leases: int | None = None


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
        self.left: tuple[str, ...] = ()
        # Why there may be leases that are not known, and nothing is to be given; empty: all are
        # known.
        self.lost = ""
        check_trusted(file.path, "the lease file")
        lock = self._lock = file.agent_lock
        with system_errors("cannot lock a file", lock):
            make_folders(lock.parent)
            self._descriptor = open_own(lock, os.O_RDWR | os.O_CREAT)

        text = os.pread(self._descriptor, 200, 0).decode("ascii", "replace").split()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise InputError(
                f"pid {text[0] if text else 'unknown'} is the agent of {file.path} already"
            ) from None

        self._promise = _Promise()
        with suppress(ValueError, IndexError):
            self._promise = _Promise(text[1], int(text[2]), int(text[3]), int(text[4]))

        self._boot_id = identify(os.getpid()).boot_id
        self._note(self._promise)

    def close(self) -> None:
        """Let another agent have it; the file goes on to say that an agent has the leases."""
        os.close(self._descriptor)

    def wrote(self, descriptor: int, leases: int) -> None:
        """Write down how far the journal is on the disk, so that one that is cut off later is noticed."""
        found = os.fstat(descriptor)
        self._note(_Promise(self._boot_id, found.st_ino, found.st_size, leases))

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
            known = Known(change.table) if is_first else self._known(change.table, tell)
            table, gone = living(known.table)
            self._tell_of_ended(gone, tell)
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
            with system_errors("cannot write a file", self._lock):
                os.pwrite(self._descriptor, f"{socket}\n".encode(), _NOTE)
                os.truncate(self._descriptor, _NOTE + len(f"{socket}\n".encode()))

            self._write(table, known, known.lost, tell)
            change.table = LeaseTable(machine, agent=str(socket))

        if known.lost:
            tell(f"{known.lost}: {_REPAIR}")

        self.lost = f"{known.lost}: {_REPAIR}" if known.lost else ""
        self._socket, self.is_first = str(socket), is_first
        self.left = tuple(lease.cgroup for lease in gone if lease.cgroup)
        return table

    def look(self) -> tuple[LeaseRecord, ...]:
        """Make sure that the file still says that this agent has the leases; say so again if somebody removed it.

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
            found = living(change.table)[0].leases  # what the dead had may be others' by now
            change.table = LeaseTable(change.table.machine, agent=self._socket)

        return found

    def hand_back(self, tell: Callable[[str], None]) -> LeaseTable:
        """Put the leases back into the file, and return them; commands then use the file again.

        Raises:
            InputError: a file cannot be read or written, or some leases may not be known.
        """
        gone: list[LeaseRecord] = []
        with self._file.change(by_agent=True) as change:
            table = change.table
            if table.agent:
                known = self._known(table, tell)
                if known.lost:
                    raise InputError(f"{known.lost}: see `alignup agent --repair`")
                table, gone = living(known.table)
                self._tell_of_ended(gone, tell)
                table = change.table = LeaseTable(table.machine, table.leases)

        self.journal.unlink(missing_ok=True)
        for cgroup in (*self.left, *(lease.cgroup for lease in gone if lease.cgroup)):
            remove_cgroup(cgroup)

        return table

    def repair(self, tell: Callable[[str], None], *, writes: bool) -> Known:
        """Return the leases that are known, and why there may be others; if it `writes`, from now on there are none.

        Raises:
            InputError: no agent has the leases, or a file cannot be read or written.
        """
        with self._file.change(by_agent=True) as change:
            if not change.table.agent:
                raise InputError(
                    f"no agent keeps the leases of {self._file.path}: there is no journal"
                )

            known = self._known(change.table, tell)
            known = known._replace(table=living(known.table)[0])
            if writes:
                self._write(known.table, known, "", tell)

        return known

    def _known(self, found: LeaseTable, tell: Callable[[str], None]) -> Known:
        """Return the leases of the journal, and those beside them that running processes were found to show.

        Raises:
            InputError: it cannot be read.
        """
        reading, text = self._reading()
        shown = (
            find_evidence(self._file.path, of_all_users=os.geteuid() == 0) if reading.damage else ()
        )
        table, words, lost = settled(reading, shown, self._promise.leases)
        if words:
            tell(f"{words}, at {self.journal}")

        if self._promise.boot_id not in {"", self._boot_id}:
            lost = ""  # whoever had them has ended with that boot

        known = {lease.id for lease in table.leases}
        beside = tuple(lease for lease in found.leases if lease.id not in known)
        table = msgspec.structs.replace(table, leases=table.leases + beside)
        return Known(table, lost, text if reading.damage else b"")

    def _reading(self) -> tuple[Reading, bytes]:
        """Return what the journal says, and its text; what was promised and is not there counts as damage.

        Raises:
            InputError: it cannot be read.
        """
        text, inode = b"", 0
        with (
            system_errors("cannot read the journal", self.journal),
            suppress(FileNotFoundError),
            os.fdopen(open_own(self.journal, os.O_RDONLY), "rb") as file,
        ):
            text, inode = file.read(), os.fstat(file.fileno()).st_ino

        if not inode:
            return Reading(LeaseTable(), (Damage(1, b""),)), b""

        reading = read_entries(text, str(self.journal))
        promise = self._promise
        if promise.boot_id == self._boot_id and promise.inode == inode and promise.size > len(text):
            reading = reading._replace(damage=(*reading.damage, Damage(text.count(b"\n") + 1, b"")))

        return reading, text

    def _write(
        self, table: LeaseTable, known: Known, lost: str, tell: Callable[[str], None]
    ) -> None:
        """Write the journal anew; a damaged one is kept beside it.

        Raises:
            InputError: it cannot be written.
        """
        if known.damaged:
            tell(f"the damaged journal is now {set_aside(self.journal, known.damaged)}")
        with system_errors("cannot write the journal", self.journal):
            size = write_journal(self.journal, table, lost)
            inode = self.journal.stat().st_ino
        self._note(_Promise(self._boot_id, inode, size, len(table.leases)))

    def _note(self, promise: _Promise) -> None:
        """Write down who has the leases, and what was promised; a note is as long as any, and so never torn."""
        self._promise = promise
        words = f"{os.getpid()} {promise.boot_id} {promise.inode} {promise.size} "
        words += "" if promise.leases is None else str(promise.leases)
        with suppress(OSError):  # without it, less is noticed
            os.pwrite(
                self._descriptor,
                f"{words if promise.boot_id else os.getpid():<{_NOTE - 1}}\n".encode(),
                0,
            )

    def _tell_of_ended(self, gone: list[LeaseRecord], tell: Callable[[str], None]) -> None:
        """Say how many leases have ended while there was no agent."""
        of_this_boot = sum(lease.process.boot_id == self._boot_id for lease in gone)
        for count, when in (
            (len(gone) - of_this_boot, "with an earlier boot of this machine"),
            (of_this_boot, "while no agent ran"),
        ):
            if count:
                tell(f"{counted(count, 'lease')} ended {when}")
