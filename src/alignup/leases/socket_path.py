"""Looks after the paths of unix sockets: what may be one, whether somebody serves it, and what may be removed there.

Nothing but a socket that nobody serves is ever removed: an option may name any file by mistake.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError
from alignup.leases.private_file import check_text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LONGEST_PATH", "check_free", "check_path", "clear", "is_served", "remove"]

LONGEST_PATH: Final = 107
"""Bytes of a unix socket's path."""
_PATIENCE: Final = 1.0
_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
}


def check_path(path: Path, where: str) -> None:
    """Refuse what cannot be the path of a socket; `where` is the place that an error names.

    Raises:
        InputError: it is too long, or not UTF-8.
    """
    check_text(path, where)
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        got = f"{str(path)[:40]}... of {length} bytes"
        raise InputError.at(where, f"a path of up to {LONGEST_PATH} bytes for a socket", got)


def check_free(path: Path, where: str) -> None:
    """Make sure that a socket can be made at a path: nothing is there, or one that nobody serves.

    Args:
        path: the path.
        where: the option that says so, for an error.

    Raises:
        InputError: something else is there, somebody serves it, or the path cannot be, or not be looked at.
    """
    check_path(path, where)
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failure(path, error) from error
    if not stat.S_ISSOCK(found):
        kind = _KINDS.get(stat.S_IFMT(found), "a device")
        raise InputError(f"expected a socket or nothing at {path}, got {kind} at {where}")
    if is_served(path):
        raise InputError(f"expected a socket that nobody serves, got {str(path)!r} at {where}")


def clear(path: Path, where: str) -> None:
    """Remove what is left of a socket at a path, so that one can be made there; see `check_free`.

    Raises:
        InputError: as there, or it cannot be removed.
    """
    check_free(path, where)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _failure(path, error) from error


def remove(path: Path) -> None:
    """Remove a socket that is served no longer; anything else, and what cannot be removed, stays."""
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


def _failure(path: Path, error: OSError) -> InputError:
    why = (error.strerror or "an error").lower()
    return InputError(f"expected a socket that can be served, got {why!r} at {path}")
