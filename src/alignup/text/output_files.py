"""Writes the files that a user asks for, whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final

from alignup.text.digits import number_of

# Where a file cannot be put in the place of another one: a folder that is not ours, one that is
# read-only, a file that is mounted by itself.
_STUCK: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV})
_OPEN_NAMES: Final = {"/dev/stdout": 1, "/dev/stderr": 2}
_OPEN_FOLDERS: Final = ("/dev/fd", "/proc/self/fd")
_MOST_DESCRIPTORS: Final = 1 << 20


def write_output(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file: a new one beside it takes its name once it is whole.

    No link is followed, a file keeps its mode, and a new one gets that of the umask. What is open
    already, such as `/dev/stdout`, and devices and pipes are written to as they are. Where the
    folder takes no new file, or the file cannot be replaced, it is written in its place.

    Args:
        path: of the file.
        data: what is to be in it.

    Raises:
        OSError: it cannot be written; a pipe that nobody reads is such an error, too.
    """
    name = os.fspath(path)
    descriptor = _open_descriptor(name)
    if descriptor is not None:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return

    kind = _kind_of(name)
    if kind is not None and not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        _write_into(name, data, os.O_NONBLOCK)
        return

    mode = stat.S_IMODE(kind) if kind is not None and stat.S_ISREG(kind) else None
    try:
        _replace(name, data, mode)
    except OSError as error:
        if mode is None or error.errno not in _STUCK:
            raise
        _write_into(name, data, os.O_TRUNC | os.O_NOFOLLOW)


def _open_descriptor(name: str) -> int | None:
    """Return the descriptor that a name stands for; None: it stands for a file."""
    if name in _OPEN_NAMES:
        return _OPEN_NAMES[name]

    folder, base = os.path.split(name)
    if folder in _OPEN_FOLDERS:
        return number_of(base, _MOST_DESCRIPTORS)
    return None


def _kind_of(name: str) -> int | None:
    """Return the kind and the mode of what is there; None: there is nothing."""
    try:
        return os.lstat(name).st_mode
    except FileNotFoundError:
        return None


def _replace(name: str, data: bytes, mode: int | None) -> None:
    """Write a file beside and let it take the name."""
    folder, base = os.path.split(name)
    draft = os.path.join(folder, f".{base}.{os.getpid()}")  # noqa: PTH118  # pathlib is slow
    # somebody else's link of this name would be followed
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
        os.replace(draft, name)  # noqa: PTH105  # as above
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)  # noqa: PTH108  # as above
        raise


def _write_into(name: str, data: bytes, flags: int) -> None:
    """Write to what is there; a pipe without a reader is an error, and is not waited for."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC | flags)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
