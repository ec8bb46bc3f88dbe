"""Lets one process at a time change a file: an exclusive lock on a second file that stays for good.

The lock is the kernel's (flock): it goes away with the process that has it, whatever ends that.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["locked"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which is made with its folders if need be; wait for it as long as it takes.

    Raises:
        InputError: the file cannot be made or locked.
    """
    try:
        descriptor = _lock(path)
    except OSError as error:
        raise InputError(
            f"expected a file that can be locked, got {(error.strerror or 'an error').lower()!r} at {path}"
        ) from error
    try:
        yield
    finally:
        # said in so many words: another thread's child may have a copy of the descriptor, and with it the lock
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(path: Path) -> int:
    """Return the descriptor of the locked file that `path` names, even if somebody removes it meanwhile."""
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
