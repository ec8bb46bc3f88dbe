"""Keeps the leases in one file for each user: changes it under a lock, as a whole or not at all.

A change is written to a second file, which then takes the place of the first; so a process that is killed
at any moment leaves the old leases or the new ones. Who may get what is not decided here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from alignup.errors import InputError
from alignup.leases.file_format import DamagedError, decode_table, encode_table
from alignup.leases.file_lock import locked
from alignup.leases.process import Liveness, liveness
from alignup.leases.record import LeaseRecord, LeaseTable, MachineIdentity, holders
from alignup.leases.recovery import find_evidence

__all__ = ["LeaseChange", "LeaseFile", "default_state"]

Tell = Callable[[str], None]

_FILE_NAME: Final = "leases.json"
_LARGEST: Final = 64 << 20


def default_state() -> Path:
    """Return where a user's leases are: `alignup/leases.json` in $XDG_STATE_HOME or ~/.local/state."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    # the specification has relative paths ignored
    base = Path(folder) if folder.startswith("/") else Path.home() / ".local" / "state"
    return base / "alignup" / _FILE_NAME


class LeaseChange:
    """The leases while they are being changed; nobody else changes them meanwhile."""

    __slots__ = ("leases", "machine")

    def __init__(self, table: LeaseTable) -> None:
        self.machine = table.machine
        self.leases = list(table.leases)

    def reclaim(self) -> list[LeaseRecord]:
        """Drop and return the leases whose processes are gone."""
        gone = [lease for lease in self.leases if liveness(lease.process) is Liveness.GONE]
        self.leases = [lease for lease in self.leases if lease not in gone]
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

    def table(self) -> LeaseTable:
        """Return what they have become."""
        return LeaseTable(self.machine, tuple(self.leases))


class LeaseFile:
    """The file of a user's leases.

    Args:
        path: the file; None: the default one. Beside it there are a lock and, while it is written, its next
            version.
        tell: called with a sentence when the file turned out to be damaged.
    """

    __slots__ = ("_tell", "path")

    def __init__(self, path: Path | None, tell: Tell) -> None:
        self.path = (path or default_state()).absolute()
        self._tell = tell

    def read(self) -> LeaseTable:
        """Return the leases as they are now, dead ones included.

        Raises:
            InputError: the file cannot be read, or is of a later release.
        """
        try:
            return self._read()
        except DamagedError:
            with self.change() as change:
                return change.table()

    @contextmanager
    def change(self) -> Iterator[LeaseChange]:
        """Let the leases be changed; if they are, they are written when the block ends without an error.

        Raises:
            InputError: the file cannot be read, locked or written, or is of a later release.
        """
        with locked(self.path.with_name(self.path.name + ".lock")):
            try:
                before = self._read()
            except DamagedError as damage:
                before = self._set_aside(damage)
            change = LeaseChange(before)
            yield change
            after = change.table()
            if after != before:
                self._write(after)

    def _read(self) -> LeaseTable:
        try:
            with self.path.open("rb") as file:
                text = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return LeaseTable()
        except OSError as error:
            raise self._failure("can be read", error) from error
        if len(text) > _LARGEST:
            raise InputError(f"expected a file of leases of up to {_LARGEST} bytes, got more at {self.path}")
        return decode_table(text, str(self.path))

    def _write(self, table: LeaseTable) -> None:
        # one name is enough: there is one writer, and what a killed one left is written over
        draft = self.path.with_name(self.path.name + ".new")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(encode_table(table))
                file.flush()
                os.fsync(file.fileno())
            # the folder needs no fsync: should the rename be lost with the power, so are all the processes
            draft.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise self._failure("can be written", error) from error

    def _set_aside(self, damage: DamagedError) -> LeaseTable:
        """Keep the damaged file under another name, say so, and start again with what running processes show.

        The new file takes the damaged one's place in one step; killed before that, one only has it set
        aside twice.
        """
        found = find_evidence(self.path)
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists():
            number += 1
        try:
            aside.write_bytes(self.path.read_bytes())
        except OSError as error:
            raise self._failure("can be set aside", error) from error
        machine = found[0].machine if found else None
        table = LeaseTable(
            machine, tuple(evidence.lease for evidence in found if evidence.machine == machine)
        )
        self._write(table)
        names = holders(table.leases)
        self._tell(
            f"the file of leases was damaged and is now {aside}: {damage}; "
            + (
                f"found again from running processes: {names}"
                if names
                else "no running process holds a lease of it"
            )
        )
        return table

    def _failure(self, what: str, error: OSError) -> InputError:
        why = (error.strerror or "an error").lower()
        return InputError(f"expected a file of leases that {what}, got {why!r} at {self.path}")
