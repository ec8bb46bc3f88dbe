"""Takes over the leases of a file for the agent, and gives them back to it; sees that there is one agent only.

The file then says which agent has its leases, so that no command gives anything beside it. At every moment either the
file or the journal has them: the journal is written first, and counts only once the file says so.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import msgspec

from alignup.agent.cgroups import remove_cgroup
from alignup.agent.journal import LostJournalError, read_journal, write_journal
from alignup.errors import InputError
from alignup.leases.lease_liveness import lease_liveness
from alignup.leases.private_file import make_folders, open_own
from alignup.leases.process import Liveness, identify, liveness
from alignup.leases.record import LeaseTable, holders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from alignup.leases.record import LeaseRecord, MachineIdentity
    from alignup.leases.store import LeaseFile

__all__ = ["Ownership"]


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
        self.journal = file.path.with_name(file.path.name + ".journal")
        """Where the leases are while an agent has them."""
        self.is_first = False
        """The file had no agent when this one took over."""
        self.left: tuple[str, ...] = ()
        """The cgroups of leases that ended before this agent took over: nobody else will remove them."""
        lock = self._lock = file.path.with_name(file.path.name + ".agent")
        try:
            make_folders(lock.parent)
            self._descriptor = open_own(lock, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            why = (error.strerror or "an error").lower()
            raise InputError(f"expected a file that can be locked, got {why!r} at {lock}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise InputError(
                f"expected a file that no agent has, got one that pid {pid} has at {file.path}"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let another agent have it; the file goes on to say that an agent has the leases."""
        os.close(self._descriptor)

    def take_over(self, machine: MachineIdentity, socket: Path, tell: Callable[[str], None]) -> LeaseTable:
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
            table = change.table()
            is_first = not change.agent
            if not is_first:
                table = self._of_journal(table, tell)
            table, left = _living(table, tell)
            if (
                table.leases
                and table.machine is not None
                and table.machine.fingerprint != machine.fingerprint
            ):
                raise InputError(
                    f"expected leases of this machine ({machine.description}), got leases of another one "
                    f"({table.machine.description}) held by {holders(table.leases)} at {self._file.path}"
                )
            if table.machine is not None and table.machine.description != machine.description:
                tell(
                    f"this machine has {machine.description} now, and had {table.machine.description} before"
                )
            table = LeaseTable(machine, table.leases, table.waiting)
            self._write_journal(table)
            change.leases, change.waiting = [], []
            change.machine, change.agent = machine, str(socket)
        self._socket, self.is_first, self.left = str(socket), is_first, left
        return table

    def look(self) -> tuple[LeaseRecord, ...]:
        """Make sure that the file still says that this agent has the leases; say so again if somebody removed it.

        Returns:
            The leases that commands have taken from the file meanwhile; they are the agent's from now on.

        Raises:
            InputError: the lock file was removed, so that another agent may have the leases, or a file cannot be used.
        """
        try:
            is_locked = os.path.samestat(os.fstat(self._descriptor), self._lock.lstat())
        except OSError:
            is_locked = False
        if not is_locked:
            raise InputError(f"expected the lock file to stay, got it removed at {self._lock}")
        if self._file.agent() == self._socket:
            return ()
        with self._file.change(by_agent=True) as change:
            found = tuple(change.leases)
            change.leases, change.waiting, change.agent = [], [], self._socket
        return found

    def hand_back(self, tell: Callable[[str], None]) -> LeaseTable:
        """Put the leases back into the file, and return them; commands then use the file again.

        Raises:
            InputError: a file cannot be read or written.
        """
        left: tuple[str, ...] = ()
        with self._file.change(by_agent=True) as change:
            table = change.table()
            if change.agent:
                table, left = _living(self._of_journal(table, tell), tell)
                change.leases, change.waiting, change.agent = list(table.leases), [], ""
                change.machine = table.machine
        self.journal.unlink(missing_ok=True)
        for cgroup in (*self.left, *left):
            remove_cgroup(cgroup)
        return table

    def _of_journal(self, found: LeaseTable, tell: Callable[[str], None]) -> LeaseTable:
        """Return the leases of the journal, and those beside them that running processes were found to show."""
        try:
            table, torn = read_journal(self.journal)
        except LostJournalError as lost:
            table, words = self._file.completed(found)
            known_of = f"what processes of user {os.geteuid()} show is all that is known"
            tell(f"{lost}; {known_of}: {words or 'they hold nothing'}")
            return table
        if torn:
            tell(torn)
        known = {lease.id for lease in table.leases}
        shown = tuple(lease for lease in found.leases if lease.id not in known)
        return msgspec.structs.replace(table, leases=table.leases + shown)

    def _write_journal(self, table: LeaseTable) -> None:
        try:
            write_journal(self.journal, table)
        except OSError as error:
            why = (error.strerror or "an error").lower()
            raise InputError(
                f"expected a journal that can be written, got {why!r} at {self.journal}"
            ) from error


def _living(table: LeaseTable, tell: Callable[[str], None]) -> tuple[LeaseTable, tuple[str, ...]]:
    """Return the leases and waiters whose processes are not gone, and the cgroups of the other leases."""

    def lives(lease: LeaseRecord) -> bool:
        return lease_liveness(lease) is not Liveness.GONE

    leases = tuple(lease for lease in table.leases if lives(lease))
    kept = {lease.id for lease in leases}
    ended = [lease for lease in table.leases if lease.id not in kept]
    boot_id = identify(os.getpid()).boot_id
    of_this_boot = sum(lease.process.boot_id == boot_id for lease in ended)
    for count, when in (
        (len(ended) - of_this_boot, "with an earlier boot of this machine"),
        (of_this_boot, "while no agent ran"),
    ):
        if count:
            tell(f"{count} lease{'s' if count > 1 else ''} ended {when}")
    waiting = tuple(one for one in table.waiting if liveness(one.process) is not Liveness.GONE)
    left = tuple(lease.cgroup for lease in ended if lease.cgroup)
    return LeaseTable(table.machine, leases, waiting), left
