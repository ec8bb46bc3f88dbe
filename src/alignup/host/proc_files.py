"""Reads files of the kernel, and what `/proc/PID/stat` says of a process.

The fields of that file are counted from behind the command's name, which may hold blanks and
parentheses itself: field 3 of proc(5) is 0 here.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Final

PROC: Final = "/proc"

# Fields of `stat`.
STATE: Final = 0
PARENT: Final = 1
GROUP: Final = 2
FLAGS: Final = 6
THREADS: Final = 17
START_TIME: Final = 19

# Bytes: some fifty numbers, and a name of up to 64 bytes.
_LONGEST_STAT: Final = 4096


def stat_fields(pid: int, proc: str = PROC) -> list[str] | None:
    """Return the fields of a process; None: there is none of that id.

    Raises:
        OSError: they cannot be read now.
    """
    try:
        text = start_of(f"{proc}/{pid}/stat", _LONGEST_STAT)
    except (FileNotFoundError, ProcessLookupError):
        return None

    _, parenthesis, fields = text.rpartition(b")")
    return fields.decode("ascii", "replace").split() if parenthesis else None


def start_of(path: str, length: int) -> bytes:
    """Return up to so many bytes of a kernel's file.

    An agent reads many, and file objects take three times as long.

    Raises:
        OSError: it cannot be read.
    """
    with opened(path) as descriptor:
        return os.read(descriptor, length)


@contextmanager
def opened(path: str | Path, flags: int = os.O_RDONLY, folder: int | None = None) -> Iterator[int]:
    """Have a file or folder open while the block runs, by its descriptor.

    A relative path may be of an open folder.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
