"""Opens, makes and checks files and sockets that other users cannot have put there.

A path is trusted if everything on the way to it belongs to root or to this user, and nobody else
may write to the folders on the way, except to those with the sticky bit, such as /tmp: there others
cannot replace what is not theirs. Nothing but a socket that nobody serves is ever removed: an
option may name any file by mistake.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import stat
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from alignup.errors import InputError, system_errors, system_reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Bytes of a unix socket's path.
LONGEST_PATH: Final = 107
_CAREFUL: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MOST_LINKS: Final = 40
_PATIENCE: Final = 1.0
_CREDENTIALS: Final = struct.Struct("3i")
_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
}


def distrust(path: Path) -> str:
    """Return why others may have put something at a path; empty if only root and this user can.

    A path at which there is nothing yet is judged by the folders above it.
    """
    names = list(reversed(path.absolute().parts[1:]))
    folder = "/"
    links = 0
    while names:
        place = os.path.join(folder, names.pop())  # noqa: PTH118  # of text
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{place} cannot be looked at: {system_reason(error)}"

        if status.st_uid not in {0, os.geteuid()}:
            return f"{place} belongs to user {status.st_uid}"

        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                return f"there are too many links at {place}"

            target = os.readlink(place)  # noqa: PTH115  # as above
            names += [name for name in reversed(target.split("/")) if name]
            if target.startswith("/"):
                folder = "/"
            continue

        if _is_open_to_others(status):
            return f"other users may write to {place}"

        folder = place

    return ""


def _is_open_to_others(status: os.stat_result) -> bool:
    """Return whether other users may write to a file, or may replace what is in a folder."""
    mode = status.st_mode
    if mode & stat.S_ISVTX or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return False
    if mode & stat.S_IWOTH:
        return True
    return bool(mode & stat.S_IWGRP) and not _is_private_group(status.st_gid)


def check_trusted(path: Path, subject: str, hint: str = "") -> None:
    """Refuse a path at which others may have put something; see `distrust`.

    Args:
        path: the path.
        subject: what should be there, such as `the lease file`.
        hint: what an error ends with.

    Raises:
        InputError: they may.
    """
    trouble = distrust(path)
    if trouble:
        raise InputError(f"{subject} {path} is not trusted: {trouble}{hint}")


def _is_private_group(gid: int) -> bool:
    """Return whether a group is root's, or has this user only.

    Many systems make such a one for each user.
    """
    if gid == 0:
        return True

    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False

    is_of_user = user.pw_gid == gid and group.gr_name == user.pw_name
    return is_of_user and set(group.gr_mem) <= {user.pw_name}


class Connection(Protocol):
    """What is asked of a socket."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Return an option of the socket."""


def peer(connection: Connection) -> tuple[int, int]:
    """Return pid and user at the other end of a unix socket.

    Of a server they are those who began to listen.
    """
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, uid


def check_text(path: Path, where: str) -> None:
    """Reject a path that no record can hold; `where` is the place that an error names.

    Raises:
        InputError: it is not UTF-8, or has a null character.
    """
    try:
        name = str(path).encode()
    except UnicodeEncodeError:
        name = b"\0"

    if b"\0" in name:
        raise InputError.at(where, "a path of UTF-8", str(path))


def make_folders(folder: Path, mode: int = 0o700) -> None:
    """Make a folder and the missing ones above it, with a mode that no umask changes.

    Raises:
        OSError: one of them cannot be made.
    """
    if folder.is_dir():
        return

    make_folders(folder.parent, mode)
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return

    folder.chmod(mode)


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
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and status.st_nlink <= 1:
        return descriptor

    os.close(descriptor)
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"a file of user {status.st_uid}, not of user {os.geteuid()}")
    raise OSError(errno.EMLINK, "a file with more than one name")


def is_at(path: Path, descriptor: int) -> bool:
    """Return whether a path still names an open file; False too if that cannot be seen."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


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


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in the place of an earlier one, which at every moment is whole.

    There is one writer.

    Raises:
        OSError: it cannot be written; the earlier one is still there.
    """
    # one name is enough: what a killed writer left is removed
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    try:
        write_new(draft, data)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()

        raise


def set_aside(path: Path, text: bytes) -> Path:
    """Keep a damaged text beside its file under a name that is free, and return that.

    Raises:
        InputError: it cannot be written.
    """
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.damaged-{number}")
        with system_errors("cannot keep the damaged file", aside), suppress(FileExistsError):
            write_new(aside, text)
            return aside

        number += 1


@contextmanager
def mode_of_new_files(mode: int) -> Iterator[None]:
    """Let sockets that a library makes have a mode from the beginning.

    The umask is that of the whole process.
    """
    earlier = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(earlier)


def _check_plain(status: os.stat_result) -> None:
    """Reject what is no regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link, which is not followed")
    raise OSError(errno.EINVAL, "a device, pipe or socket")


def check_path(path: Path, where: str) -> None:
    """Reject what cannot be the path of a socket; `where` is the place that an error names.

    Raises:
        InputError: it is too long, or not UTF-8.
    """
    check_text(path, where)
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        text = f"{str(path)[:40]}... of {length} bytes"
        raise InputError.at(where, f"a path of up to {LONGEST_PATH} bytes for a socket", text)


def check_free(path: Path, where: str) -> None:
    """Make sure that a socket can be made at a path: nothing is there, or one that nobody serves.

    Args:
        path: the path.
        where: the option that says so, for an error.

    Raises:
        InputError: something else is there, somebody serves it, or the path cannot be, or not be
            looked at.
    """
    check_path(path, where)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot serve a socket: {system_reason(error)} at {path}") from error

    if not stat.S_ISSOCK(mode):
        raise InputError(
            f"{path} is {_KINDS.get(stat.S_IFMT(mode), 'a device')}, not a socket, at {where}"
        )

    if is_served(path):
        raise InputError(f"somebody serves the socket {str(path)!r} already at {where}")


def clear(path: Path, where: str) -> None:
    """Remove what is left of a socket at a path, so that one can be made there; see `check_free`.

    Raises:
        InputError: as there, or it cannot be removed.
    """
    check_free(path, where)
    with system_errors("cannot serve a socket", path):
        path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a socket that is served no longer.

    Anything else, and what cannot be removed, stays.
    """
    with suppress(OSError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not is_served(path):
            path.unlink()


def is_served(path: Path) -> bool:
    """Return whether somebody listens at a unix socket, as far as can be known."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True
