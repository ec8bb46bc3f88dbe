"""Keeps the leases in one file for each user: changes it under a lock, as a whole or not at all.

A change is written to a second file, which then takes the place of the first; so a process that is
killed at any moment leaves the old leases or the new ones. The lock is the kernel's (flock), on a
third file that stays for good; it says which process had it last, and the checksum of the leases.

A file that is damaged, missing, or not the one that was written last (somebody removed it, or put
an old copy back) is completed by what running processes show of their leases; if the journal of an
agent is beside it, that agent has the leases. A file that was never one of leases is left alone.
The file, and every folder above it, must belong to root or to this user: see
`alignup.host.trusted_files`.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from alignup.errors import InputError, system_errors
from alignup.host.leases.evidence import find_evidence, with_evidence
from alignup.host.leases.record import (
    LeaseTable,
    MachineIdentity,
    check_amounts,
    encode_leases,
    holders,
    lease_decoder,
)
from alignup.host.proc_files import STATE, stat_fields
from alignup.host.trusted_files import (
    check_trusted,
    is_at,
    make_folders,
    open_own,
    open_plain,
    replace_file,
    set_aside,
)
from alignup.text.json_text import decode_json

VERSION: Final = 1
# The version of a file whose leases an agent keeps: releases without an agent refuse it, and grant
# no leases.
AGENT_VERSION: Final = 2
_BEGINNING: Final = re.compile(rb'\{"version":[0-9]+,"checksum":"')
_FILE_NAME: Final = "leases.json"
_LARGEST: Final = 64 << 20
_UNKNOWN_AGENT: Final = "a socket that is not known"
_LONGEST_NOTES: Final = 1 << 13
_NOBODY: Final = "no running process holds a lease of it"
_NOTE: Final = re.compile(rb"alignup-lock +(?P<pid>[0-9]{1,10}) (?P<checksum>[0-9a-f ]{8})\n")
_LONGEST_NOTE: Final = 64
# Of a process, in its `stat`.
_STOPPED_STATES: Final = frozenset("Tt")
_SAID_AFTER: Final = 5.0
# Seconds that one waits at most; a change takes milliseconds, so whoever takes longer is stopped.
_LIMIT: Final = 60.0
_LONGEST_PAUSE: Final = 0.02
_T = TypeVar("_T")


class DamagedError(InputError):
    """Raised when a text is not what was once written."""


class AgentOwnsError(InputError):
    """Raised when an agent keeps the leases of a file, which are not to be changed beside it."""

    def __init__(self, where: str, socket: str) -> None:
        self.socket = socket
        super().__init__(
            f"the agent at {socket} keeps the leases of {where}: start the agent again, or take "
            "the leases back with "
            f"`alignup agent --state {where} --hand-back`"
        )


class _Envelope(msgspec.Struct):
    """The text of the file.

    Attributes:
        checksum: CRC-32 of the bytes of `table`, in hex: it finds torn and half-written files, and
            is no protection against forgery.
    """

    version: int
    checksum: str
    table: msgspec.Raw


_DECODE_ENVELOPE: Final = msgspec.json.Decoder(_Envelope).decode
_DECODE_TABLE: Final = lease_decoder(LeaseTable).decode


def encode_table(table: LeaseTable) -> bytes:
    """Return the text of a file with these leases."""
    inner = encode_leases(table)
    version = AGENT_VERSION if table.agent else VERSION
    return msgspec.json.encode(_Envelope(version, checksum(inner), msgspec.Raw(inner))) + b"\n"


def is_lease_text(text: bytes) -> bool:
    """Return whether a text is a lease file's, perhaps damaged.

    It then begins like one, or the disk lost all of it.
    """
    return bool(_BEGINNING.match(text)) or not text.strip(b"\0")


def decode_table(text: bytes, where: str) -> LeaseTable:
    """Return the leases in the text of a file.

    The checksum is over the very bytes of the table, so that no two ways to write JSON can
    disagree.

    Args:
        text: what the file holds.
        where: what an error calls the file.

    Raises:
        DamagedError: the text is not as it was written.
        InputError: it was written by a later release of alignup, or has amounts that no machine
            has.
    """
    envelope = _decoded(text, where, _DECODE_ENVELOPE)
    if envelope.version > AGENT_VERSION:
        raise InputError.at(
            where, f"leases in the form of version {AGENT_VERSION}", envelope.version
        )

    inner = bytes(envelope.table)
    if checksum(inner) != envelope.checksum:
        raise DamagedError.at(
            where, f"leases with the checksum {envelope.checksum}", checksum(inner)
        )

    table = _decoded(inner, where, _DECODE_TABLE)
    check_amounts(table.leases, where)
    return table


def _decoded(text: bytes, where: str, decode: Callable[[str | bytes], _T]) -> _T:
    """Return the value in a JSON text; one that cannot be read is damage."""
    try:
        return decode_json(text, "leases", where, decode=decode)
    except InputError as error:
        raise DamagedError(str(error)) from None


def checksum(data: bytes) -> str:
    """Return the CRC-32 of some bytes, in hex."""
    return f"{zlib.crc32(data):08x}"


def default_state() -> Path:
    """Return where a user's leases are.

    That is `alignup/leases.json` in $XDG_STATE_HOME or ~/.local/state.
    """
    folder = os.environ.get("XDG_STATE_HOME", "")
    # the specification has relative paths ignored
    base = Path(folder) if folder.startswith("/") else Path.home() / ".local" / "state"
    return base / "alignup" / _FILE_NAME


def is_default_state(state: str) -> bool:
    """Return whether some user's leases are in a file where nobody said otherwise."""
    return Path(state).parts[-2:] == ("alignup", _FILE_NAME)


def check_machine(table: LeaseTable, machine: MachineIdentity, where: Path) -> None:
    """Make sure that leases are of a machine.

    Raises:
        InputError: they are of another one.
    """
    if (
        table.leases
        and table.machine is not None
        and table.machine.fingerprint != machine.fingerprint
    ):
        raise InputError(
            f"the leases are not of this machine ({machine.description}) but of another one "
            f"({table.machine.description}) held by {holders(table.leases)} at {where}; "
            "use --state to keep this machine's leases elsewhere"
        )


class Lock:
    """A lock that is held.

    Args:
        path: the file.
        descriptor: of the file.
    """

    __slots__ = ("_descriptor", "_path", "checksum")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        # Of the guarded file when it was last written; empty: not known.
        self.checksum = _note(descriptor)[1]
        self.note(self.checksum)

    def is_valid(self) -> bool:
        """Return whether nobody else can have the lock, since the file has not been removed."""
        return is_at(self._path, self._descriptor)

    def note(self, checksum: str) -> None:
        """Write down who has the lock, and the checksum of the guarded file."""
        self.checksum = checksum
        # without the note, one only looks again at what processes hold
        with suppress(OSError):
            os.pwrite(self._descriptor, f"alignup-lock {os.getpid():10} {checksum:8}\n".encode(), 0)


@contextmanager
def locked(path: Path, tell: Callable[[str], None] | None = None) -> Iterator[Lock]:
    """Hold the lock on a file; wait a minute for it at most.

    The file is made if need be, with its folders.

    Args:
        path: the file.
        tell: called with a sentence if it takes longer than some seconds.

    Raises:
        InputError: the file cannot be made or locked, or another process keeps the lock.
    """
    with system_errors("cannot lock a file", path):
        descriptor = _lock(path, tell)

    try:
        yield Lock(path, descriptor)
    finally:
        # said in so many words: another thread's child may have a copy of the descriptor, and with
        # it the lock
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(path: Path, tell: Callable[[str], None] | None) -> int:
    """Return the descriptor of the locked file that `path` names.

    Somebody may remove the file meanwhile: then it is made again.
    """
    while True:
        make_folders(path.parent)
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            text = os.pread(descriptor, _LONGEST_NOTE, 0)
            if text and not _NOTE.fullmatch(text):
                # somebody's work, which would be written over; the descriptor is closed below
                raise InputError(f"{path} is no lock file of alignup")  # noqa: TRY301

            _wait(descriptor, path, tell)
            if Lock(path, descriptor).is_valid():
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise

        os.close(descriptor)


def _wait(descriptor: int, path: Path, tell: Callable[[str], None] | None) -> None:
    """Get the lock; say that one waits, and for which process, if it takes long."""
    start = time.monotonic()
    pause = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - start
        else:
            return

        if waited > _LIMIT:
            raise InputError(
                f"{_holder(descriptor)} has kept the lock for {_LIMIT:.0f} s at {path}"
            )

        if tell is not None and waited > _SAID_AFTER:
            tell(f"waiting for the lock that {_holder(descriptor)} has at {path}")
            tell = None

        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _note(descriptor: int) -> tuple[int, str]:
    """Return the process that had the lock last and the checksum.

    They are 0 and an empty text if there is no note.
    """
    match = _NOTE.fullmatch(os.pread(descriptor, _LONGEST_NOTE, 0))
    if match is None:
        return 0, ""
    return int(match["pid"]), match["checksum"].decode().strip()


def _holder(descriptor: int) -> str:
    """Return in words which process has the lock."""
    pid, _ = _note(descriptor)
    if not pid:
        return "another process"

    with suppress(OSError):
        fields = stat_fields(pid)
        if fields is not None and fields[STATE] in _STOPPED_STATES:
            return f"pid {pid}, which is stopped,"

    return f"pid {pid}"


class Change:
    """The leases while they are being changed; nobody else changes them meanwhile."""

    __slots__ = ("table",)

    def __init__(self, table: LeaseTable) -> None:
        # As they were found; as they are to be, when the change ends.
        self.table = table

    def drop(self, lease_id: str) -> None:
        """Remove a lease, or who waits for it, if it is there."""
        leases = tuple(lease for lease in self.table.leases if lease.id != lease_id)
        waiting = tuple(waiter for waiter in self.table.waiting if waiter.id != lease_id)
        self.table = msgspec.structs.replace(self.table, leases=leases, waiting=waiting)


class _Content(NamedTuple):
    """The content of the file as it was found.

    Attributes:
        checksum: of the file's text; empty if there is no whole file.
        text: of a damaged file.
    """

    table: LeaseTable
    checksum: str = ""
    damage: DamagedError | None = None
    text: bytes = b""


class LeaseFile:
    """The file of a user's leases.

    Args:
        path: the file; None: the default one. Beside it there are a lock and, while it is written,
            its next version.
        tell: called with a sentence when the file turned out to be damaged or not the last one, or
            when one waits long for the lock.
    """

    __slots__ = ("_lock", "agent_lock", "journal", "path", "tell")

    def __init__(self, path: Path | None, tell: Callable[[str], None]) -> None:
        self.path = (path or default_state()).absolute()
        if not self.path.name:
            raise InputError.at("--state", "the name of a file", str(path))
        self._lock = self.path.with_name(f"{self.path.name}.lock")
        # Where the leases are while an agent has them.
        self.journal = self.path.with_name(f"{self.path.name}.journal")
        # The file that the agent has locked as long as it runs; its second line is the agent's
        # socket.
        self.agent_lock = self.path.with_name(f"{self.path.name}.agent")
        self.tell = tell

    def read(self) -> LeaseTable:
        """Return the leases as they are now, dead ones included; nothing is written.

        Any user's file may be read.

        Raises:
            InputError: the file cannot be read, is none of leases, or is of a later release.
        """
        content = self._look(open_plain)
        if content.checksum:
            return content.table

        table, notice = with_evidence(content.table, find_evidence(self.path))
        if content.damage is not None:
            self.tell(f"the file of leases is damaged: {content.damage}; {notice or _NOBODY}")

        return table

    def agent(self) -> str:
        """Return the socket of the agent that keeps the leases.

        It is empty if the file has them, or there is no file.

        Raises:
            InputError: as for `read`, or the file names an agent, and may be the work of other
                users.
        """
        agent = self._agent_of_journal(self._look(open_plain))
        if agent:
            hint = (
                f"; to ask the agent at {agent}, which it names, all the same, name its socket "
                "in ALIGNUP_AGENT"
            )
            check_trusted(self.path, "the lease file", hint)

        return agent

    @contextmanager
    def change(self, *, by_agent: bool = False) -> Iterator[Change]:
        """Let the leases be changed; write them when the block ends without an error.

        They are written only if they have changed.

        Args:
            by_agent: also where an agent keeps the leases.

        Raises:
            AgentOwnsError: an agent keeps the leases.
            InputError: the file cannot be read, locked or written, other users can replace it, it
                is none of leases, or of a later release.
        """
        check_trusted(self.path, "the lease file")
        with locked(self._lock, self.tell) as lock:
            content = self._look(open_own)
            before = content.table
            if not content.checksum or content.checksum != lock.checksum:
                before = self._recovered(content, lock)
            if before.agent and not by_agent:
                raise AgentOwnsError(str(self.path), before.agent)

            change = Change(before)
            yield change

            after = change.table
            if after != before:
                self._write(after, lock)
            if len(after.leases) > len(before.leases) and not lock.is_valid():
                # another process may have been given the same, by a lock of its own
                raise InputError(f"the lock file was removed at {self.path}.lock; try again")

    def _agent_of_journal(self, content: _Content, lock: Lock | None = None) -> str:
        """Return the socket of the agent whose journal is beside a file that names none.

        It is empty where the file counts. It does if there is no journal, or if the file is the one
        that was written last: nobody removed it, or put an old one back.
        """
        if content.table.agent or not self.journal.exists():
            return content.table.agent or ""

        last_checksum = ""
        if lock is not None:
            last_checksum = lock.checksum
        else:
            with suppress(OSError), os.fdopen(open_plain(self._lock), "rb") as lock_file:
                last_checksum = _note(lock_file.fileno())[1]

        if content.checksum and content.checksum == last_checksum:
            return ""

        with suppress(OSError), os.fdopen(open_plain(self.agent_lock), "rb") as agent_file:
            _, _, after_note = agent_file.read(_LONGEST_NOTES).partition(b"\n")
            socket, _, _ = after_note.partition(b"\n")
            return os.fsdecode(socket) or _UNKNOWN_AGENT

        return _UNKNOWN_AGENT

    def _look(self, opener: Callable[[Path, int], int]) -> _Content:
        """Read the file as it is."""
        text: bytes | None = None
        with (
            system_errors("cannot read the file of leases", self.path),
            suppress(FileNotFoundError),
            os.fdopen(opener(self.path, os.O_RDONLY), "rb") as file,
        ):
            text = file.read(_LARGEST + 1)

        if text is None:
            return _Content(LeaseTable())
        if len(text) > _LARGEST:
            raise InputError(f"the file of leases {self.path} is larger than {_LARGEST} bytes")

        try:
            return _Content(decode_table(text, str(self.path)), checksum(text))
        except DamagedError as damage:
            if is_lease_text(text) or self.path == default_state():
                return _Content(LeaseTable(), damage=damage, text=text)
            raise InputError(f"{self.path} is no file of leases; it is left as it is") from None

    def _write(self, table: LeaseTable, lock: Lock) -> None:
        text = encode_table(table)
        with system_errors("cannot write the file of leases", self.path):
            # the folder needs no fsync: should the rename be lost with the power, so are all the
            # processes
            replace_file(self.path, text)
        lock.note(checksum(text))

    def _recovered(self, content: _Content, lock: Lock) -> LeaseTable:
        """Complete the leases of a file that is not the one that was written last; say so.

        It may be damaged or missing. A damaged file is kept under another name. The new file takes
        its place in one step; killed before that, one only has it set aside twice.
        """
        table, notice = with_evidence(content.table, find_evidence(self.path))
        agent = self._agent_of_journal(content, lock)
        if agent and not table.agent:
            table = msgspec.structs.replace(table, agent=agent)
            notices = [f"the agent at {agent} has its leases", notice]
            notice = "; ".join(filter(None, notices))

        if content.damage is not None:
            aside = set_aside(self.path, content.text)
            self._write(table, lock)
            self.tell(
                f"the file of leases was damaged and is now {aside}: {content.damage}; "
                f"{notice or _NOBODY}"
            )
        elif notice:
            self._write(table, lock)
            self.tell(f"the file of leases was removed or replaced at {self.path}; {notice}")
        else:
            lock.note(content.checksum)

        return table
