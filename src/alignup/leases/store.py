"""Keeps the leases in one file for each user: changes it under a lock, as a whole or not at all.

A change is written to a second file, which then takes the place of the first; so a process that is killed
at any moment leaves the old leases or the new ones. `alignup.leases.placement` decides what each request gets.

A file that is damaged, missing, or not the one that was written last (somebody removed it, or put an old copy back)
is completed by what running processes show of their leases. A file that was never one of leases is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from alignup.errors import InputError
from alignup.leases.file_format import DamagedError, checksum, decode_table, encode_table, is_lease_text
from alignup.leases.file_lock import Lock, locked
from alignup.leases.lease_liveness import lease_liveness
from alignup.leases.private_file import open_own, open_plain, write_new
from alignup.leases.process import Liveness, liveness
from alignup.leases.record import LeaseRecord, LeaseTable, MachineIdentity, Waiter, holders
from alignup.leases.recovery import find_evidence

__all__ = ["AgentOwnsError", "LeaseChange", "LeaseFile", "default_state"]

Tell = Callable[[str], None]

_FILE_NAME: Final = "leases.json"
_LARGEST: Final = 64 << 20
_NOBODY: Final = "no running process holds a lease of it"


class AgentOwnsError(InputError):
    """Raised when the leases of a file are kept by an agent, and are not to be changed beside it."""

    def __init__(self, where: str, socket: str) -> None:
        self.socket = socket
        super().__init__(
            f"expected a file that has leases, got one whose leases the agent at {socket} keeps, at {where}: start "
            f"the agent again, or take the leases back with `alignup agent --state {where} --hand-back`"
        )


def default_state() -> Path:
    """Return where a user's leases are: `alignup/leases.json` in $XDG_STATE_HOME or ~/.local/state."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    # the specification has relative paths ignored
    base = Path(folder) if folder.startswith("/") else Path.home() / ".local" / "state"
    return base / "alignup" / _FILE_NAME


class LeaseChange:
    """The leases while they are being changed; nobody else changes them meanwhile."""

    __slots__ = ("agent", "leases", "machine", "waiting")

    def __init__(self, table: LeaseTable) -> None:
        self.machine = table.machine
        self.leases = list(table.leases)
        self.waiting = list(table.waiting)
        self.agent = table.agent or ""
        """The socket of the agent that keeps the leases; empty: the file has them."""

    def reclaim(self) -> list[LeaseRecord]:
        """Drop and return the leases whose processes are gone; drop such waiters too."""
        gone = [lease for lease in self.leases if lease_liveness(lease) is Liveness.GONE]
        self.leases = [lease for lease in self.leases if lease not in gone]
        self.waiting = [one for one in self.waiting if liveness(one.process) is not Liveness.GONE]
        return gone

    def use_for(self, machine: MachineIdentity, where: str) -> None:
        """Make sure that the leases are of this machine.

        Raises:
            InputError: there are leases of another one.
        """
        if self.machine is not None and self.machine.fingerprint != machine.fingerprint and self.leases:
            raise InputError(
                f"expected leases of this machine ({machine.description}), got leases of another one "
                f"({self.machine.description}) held by {holders(self.leases)} at {where}; "
                "use --state to keep this machine's leases elsewhere"
            )
        self.machine = machine

    def named(self, name: str) -> LeaseRecord | None:
        """Return the lease of that name, if there is one."""
        return next((lease for lease in self.leases if lease.name == name), None)

    def drop(self, lease_id: str) -> None:
        """Drop a lease, if it is there."""
        self.leases = [lease for lease in self.leases if lease.id != lease_id]

    def join(self, waiter: Waiter) -> None:
        """Put somebody at the end of the queue, if they are not in it yet."""
        if waiter not in self.waiting:
            self.waiting.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Take somebody out of the queue, if they are in it."""
        self.waiting = [one for one in self.waiting if one.id != waiter.id]

    def ahead_of(self, waiter: Waiter) -> list[Waiter]:
        """Return those who came before and ask for something of the same kind; the waiter need not be in the queue."""
        position = next((i for i, one in enumerate(self.waiting) if one.id == waiter.id), len(self.waiting))
        return [one for one in self.waiting[:position] if set(one.kinds) & set(waiter.kinds)]

    def table(self) -> LeaseTable:
        """Return what they have become."""
        agent = self.agent or msgspec.UNSET
        return LeaseTable(self.machine, tuple(self.leases), tuple(self.waiting), agent)


@dataclass(frozen=True, slots=True)
class _Found:
    """The content of the file as it was found."""

    table: LeaseTable
    """The leases that there are, wherever it is known from."""
    checksum: str = ""
    """Of the file's text; empty if there is no whole file."""
    damage: DamagedError | None = None
    text: bytes = b""
    """Of a damaged file."""


class LeaseFile:
    """The file of a user's leases.

    Args:
        path: the file; None: the default one. Beside it there are a lock and, while it is written, its next
            version.
        tell: called with a sentence when the file turned out to be damaged or not the last one, or when one waits
            long for the lock.
    """

    __slots__ = ("path", "tell")

    def __init__(self, path: Path | None, tell: Tell) -> None:
        self.path = (path or default_state()).absolute()
        self.tell = tell

    def read(self) -> LeaseTable:
        """Return the leases as they are now, dead ones included; nothing is written.

        Raises:
            InputError: the file cannot be read, is none of leases, or is of a later release.
        """
        found = self._look(must_be_own=False)
        if found.checksum:
            return found.table
        table, words = self.completed(found.table)
        if found.damage is not None:
            self.tell(f"the file of leases is damaged: {found.damage}; {words or _NOBODY}")
        return table

    def agent(self) -> str:
        """Return the socket of the agent that keeps the leases; empty if the file has them, or there is no file.

        Raises:
            InputError: as for `read`.
        """
        return self._look(must_be_own=False).table.agent or ""

    @contextmanager
    def change(self, *, by_agent: bool = False) -> Iterator[LeaseChange]:
        """Let the leases be changed; if they are, they are written when the block ends without an error.

        Args:
            by_agent: also where an agent keeps the leases.

        Raises:
            AgentOwnsError: an agent keeps the leases.
            InputError: the file cannot be read, locked or written, is another user's, is none of leases, or is of
                a later release.
        """
        with locked(self.path.with_name(self.path.name + ".lock"), self.tell) as lock:
            found = self._look(must_be_own=True)
            before = found.table
            if not found.checksum or found.checksum != lock.checksum:
                before = self._recovered(found, lock)
            if before.agent and not by_agent:
                raise AgentOwnsError(str(self.path), before.agent)
            change = LeaseChange(before)
            yield change
            after = change.table()
            if after != before:
                self._write(after, lock)
            if len(after.leases) > len(before.leases) and not lock.is_valid():
                # another process may have been given the same, by a lock of its own
                raise InputError(
                    f"expected the lock file to stay, got it removed at {self.path}.lock; try again"
                )

    def _look(self, *, must_be_own: bool) -> _Found:
        """Read the file as it is."""
        opener = open_own if must_be_own else open_plain
        try:
            with os.fdopen(opener(self.path, os.O_RDONLY), "rb") as file:
                text = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return _Found(LeaseTable())
        except OSError as error:
            raise self._failure("can be read", error) from error
        if len(text) > _LARGEST:
            raise InputError(f"expected a file of leases of up to {_LARGEST} bytes, got more at {self.path}")
        try:
            return _Found(decode_table(text, str(self.path)), checksum(text))
        except DamagedError as damage:
            if is_lease_text(text) or self.path == default_state():
                return _Found(LeaseTable(), damage=damage, text=text)
            raise InputError(
                f"expected a file of leases or none, got another file at {self.path}; it is left as it is"
            ) from None

    def _write(self, table: LeaseTable, lock: Lock) -> None:
        # one name is enough: there is one writer, and what a killed one left is removed
        draft = self.path.with_name(self.path.name + ".new")
        text = encode_table(table)
        try:
            with suppress(FileNotFoundError):
                draft.unlink()
            write_new(draft, text)
            # the folder needs no fsync: should the rename be lost with the power, so are all the processes
            draft.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise self._failure("can be written", error) from error
        lock.note(checksum(text))

    def completed(self, table: LeaseTable) -> tuple[LeaseTable, str]:
        """Return leases with those beside them that running processes of this user show, and words about these."""
        known = {lease.id for lease in table.leases}
        shown = [evidence for evidence in find_evidence(self.path) if evidence.lease.id not in known]
        machine = table.machine if table.leases or not shown else shown[0].machine
        added = tuple(evidence.lease for evidence in shown if evidence.machine == machine)
        words = f"found again from running processes: {holders(added)}" if added else ""
        return LeaseTable(machine, table.leases + added, table.waiting, table.agent), words

    def _recovered(self, found: _Found, lock: Lock) -> LeaseTable:
        """Complete the leases of a file that is damaged, missing, or not the one that was written last; say so.

        A damaged file is kept under another name. The new file takes its place in one step; killed before that, one
        only has it set aside twice.
        """
        table, words = self.completed(found.table)
        if found.damage is not None:
            aside = self._set_aside(found.text)
            self._write(table, lock)
            self.tell(
                f"the file of leases was damaged and is now {aside}: {found.damage}; {words or _NOBODY}"
            )
        elif words:
            self._write(table, lock)
            self.tell(f"the file of leases was removed or replaced at {self.path}; {words}")
        else:
            lock.note(found.checksum)
        return table

    def _set_aside(self, text: bytes) -> Path:
        """Keep a damaged text under a name that is free, and return that."""
        number = 1
        while True:
            aside = self.path.with_name(f"{self.path.name}.damaged-{number}")
            try:
                write_new(aside, text)
            except FileExistsError:
                number += 1
            except OSError as error:
                raise self._failure("can be set aside", error) from error
            else:
                return aside

    def _failure(self, what: str, error: OSError) -> InputError:
        why = (error.strerror or "an error").lower()
        return InputError(f"expected a file of leases that {what}, got {why!r} at {self.path}")
