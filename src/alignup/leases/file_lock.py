"""Lets one process at a time change a file: an exclusive lock on a second file that stays for good.

The lock is the kernel's (flock): it goes away with the process that has it, whatever ends that. The second file
says which process had the lock last, and carries the checksum of the first, so that one that was removed or put
back behind everybody's back is noticed.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError
from alignup.leases.private_file import make_folders, open_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Lock", "locked"]

_NOTE: Final = re.compile(rb"alignup-lock +(?P<pid>[0-9]{1,10}) (?P<checksum>[0-9a-f ]{8})\n")
_LONGEST: Final = 64
_SAID_AFTER: Final = 5.0
_LIMIT: Final = 60.0
"""Seconds that one waits at most; a change takes milliseconds, so whoever takes longer is stopped."""
_LONGEST_PAUSE: Final = 0.02


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
        self.checksum = _note(descriptor)[1]
        """Of the guarded file when it was last written; empty: not known."""
        self.note(self.checksum)

    def is_valid(self) -> bool:
        """Return whether nobody else can have the lock, since the file has not been removed."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except FileNotFoundError:
            return False

    def note(self, checksum: str) -> None:
        """Write down who has the lock, and the checksum of the guarded file."""
        self.checksum = checksum
        # without the note, one only looks again at what processes hold
        with suppress(OSError):
            os.pwrite(self._descriptor, f"alignup-lock {os.getpid():10} {checksum:8}\n".encode(), 0)


@contextmanager
def locked(path: Path, tell: Callable[[str], None] | None = None) -> Iterator[Lock]:
    """Hold the lock on a file, which is made with its folders if need be; wait a minute for it at most.

    Args:
        path: the file.
        tell: called with a sentence if it takes longer than some seconds.

    Raises:
        InputError: the file cannot be made or locked, or another process keeps the lock.
    """
    try:
        descriptor = _lock(path, tell)
    except OSError as error:
        raise InputError(
            f"expected a file that can be locked, got {(error.strerror or 'an error').lower()!r} at {path}"
        ) from error
    try:
        yield Lock(path, descriptor)
    finally:
        # said in so many words: another thread's child may have a copy of the descriptor, and with it the lock
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(path: Path, tell: Callable[[str], None] | None) -> int:
    """Return the descriptor of the locked file that `path` names, even if somebody removes it meanwhile."""
    while True:
        make_folders(path.parent)
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            _check_note(descriptor, path)
            _wait(descriptor, path, tell)
            if Lock(path, descriptor).is_valid():
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _check_note(descriptor: int, path: Path) -> None:
    """Refuse a file that is somebody's work and no lock: it would be written over."""
    text = os.pread(descriptor, _LONGEST, 0)
    if text and not _NOTE.fullmatch(text):
        raise InputError(f"expected a lock file of alignup or none, got another file at {path}")


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
            holder = _holder(descriptor)
            raise InputError(f"expected the lock within {_LIMIT:.0f} s, got none: {holder} has it at {path}")
        if tell is not None and waited > _SAID_AFTER:
            tell(f"waiting for the lock that {_holder(descriptor)} has at {path}")
            tell = None
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _note(descriptor: int) -> tuple[int, str]:
    """Return the process that had the lock last and the checksum; 0 and an empty one if there is no note."""
    found = _NOTE.fullmatch(os.pread(descriptor, _LONGEST, 0))
    return (int(found["pid"]), found["checksum"].decode().strip()) if found else (0, "")


def _holder(descriptor: int) -> str:
    """Return in words which process has the lock."""
    pid, _ = _note(descriptor)
    if not pid:
        return "another process"
    with suppress(OSError):
        _, _, rest = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")
        if rest.startswith((b"T", b"t")):
            return f"pid {pid}, which is stopped,"
    return f"pid {pid}"
