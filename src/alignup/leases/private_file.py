"""Opens, makes and checks files that must be this user's own: no links, no devices, no files of other users.

It does not look at their contents. Other users may be able to write to the folder that such a file is in, and could
put a link to some other file there.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_text", "make_folders", "open_own", "open_plain", "write_new"]

_CAREFUL: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def check_text(path: Path, where: str) -> None:
    """Refuse a path that no record can hold; `where` is the place that an error names.

    Raises:
        InputError: it is not UTF-8, or has a null character.
    """
    try:
        name = str(path).encode()
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise InputError.at(where, "a path of UTF-8", str(path))


def make_folders(folder: Path) -> None:
    """Make a folder and the missing ones above it, for this user only, whatever the umask.

    Raises:
        OSError: one of them cannot be made.
    """
    if folder.is_dir():
        return
    make_folders(folder.parent)
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    folder.chmod(0o700)


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, never through a link; return its descriptor.

    Raises:
        FileNotFoundError: there is none, and `flags` do not have it made.
        OSError: it is something else, or cannot be opened.
    """
    # looked at before it is opened: to open some devices is to use them
    with suppress(FileNotFoundError):
        _check_plain(path.lstat())
    descriptor = os.open(path, flags | _CAREFUL, 0o600)
    try:
        _check_plain(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_own(path: Path, flags: int) -> int:
    """Open a regular file of this user that has one name only, as `open_plain` does.

    Raises:
        OSError: it is another user's, has a second name, or is what `open_plain` refuses.
    """
    descriptor = open_plain(path, flags)
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"a file of user {found.st_uid}, not of user {os.geteuid()}")
    raise OSError(errno.EMLINK, "a file with more than one name")


def write_new(path: Path, data: bytes) -> None:
    """Write a file that was not there before, for this user only, to the disk.

    Raises:
        FileExistsError: something of this name is there; a link to nothing too.
        OSError: it cannot be written; nothing of it stays.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _check_plain(found: os.stat_result) -> None:
    """Refuse what is no regular file."""
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link, which is not followed")
    raise OSError(errno.EINVAL, "a device, pipe or socket")
