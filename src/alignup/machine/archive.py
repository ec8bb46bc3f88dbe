"""Writes tar archives, and reads chosen files out of them in memory: nothing is unpacked to disk, no link followed.

Which files matter, and what is in them, is left to `alignup.machine.snapshot` and to readers of other layouts.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Literal, Self

from alignup.errors import InputError, system_reason
from alignup.records import Record

_COMPRESSIONS: Final = {b"\x1f\x8b": gzip, b"\xfd7zXZ\x00": lzma, b"BZh": bz2}
_MAX_UNPACKED: Final = 64 << 20
_MOST_EXTENSION: Final = 1 << 10
"""Bytes of an extended header, which has a path that is long."""
_LONG_NUMBER: Final = re.compile(rb"\d{21}")
"""Digits in a row: the time to read some grows with their square."""
_HEAD: Final = 512
_CHUNK: Final = 1 << 20

# fields of a member's header, by POSIX's ustar format
_NAME: Final = slice(0, 100)
_SIZE: Final = slice(124, 136)
_TYPE: Final = slice(156, 157)
_LINK: Final = slice(157, 257)
_TAR_MAGIC: Final = slice(257, 262)
_PREFIX: Final = slice(345, 500)
_USTAR: Final = b"ustar"
_EXTENSIONS: Final = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_PLAIN_TYPES: Final = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
# ValueError: numbers in headers that are none; RecursionError: extended headers one after another
_DAMAGE: Final = (tarfile.TarError, ValueError, RecursionError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


class Archive(Record):
    """The files and links that were read of an archive, by path from the root."""

    files: dict[str, bytes]
    """The contents of the files that were asked for."""
    links: dict[str, str]
    """Where the symbolic links that were asked for point to."""


def check_suffix(path: str | os.PathLike[str], where: str) -> Literal["w:xz", "w:gz"]:
    """Return how tarfile spells the compression that a name asks for.

    Args:
        path: the archive to be written.
        where: what the path is, for an error.

    Raises:
        InputError: the name has another suffix than .tar.xz, .tar.gz or .tgz.
    """
    name = Path(path).name
    if name.endswith(".tar.xz"):
        return "w:xz"
    if name.endswith((".tar.gz", ".tgz")):
        return "w:gz"
    raise InputError.at(where, "a suffix of .tar.xz, .tar.gz or .tgz", name)


def write_archive(path: str | os.PathLike[str], files: Iterable[tuple[str, bytes]], what: str) -> None:
    """Write an archive: names and contents, with no times, owners or rights of the machine in it.

    Equal files make an equal archive. It is written beside `path` and then moved there, so that it is whole or missing.

    Args:
        path: the archive.
        files: name and content of each.
        what: what the archive is, in an error.

    Raises:
        InputError: the suffix is unknown, or the archive cannot be written.
    """
    target = Path(path)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=check_suffix(target, f"the name of {what}")) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:  # somebody else's link of this name would be followed
            file.write(packed.getbuffer())
        beside.replace(target)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise InputError(f"cannot write {what} {os.fspath(target)!r}: {system_reason(error)}") from error


def is_archive(head: bytes) -> bool:
    """Return whether a file is an archive, by its first bytes."""
    return head.startswith(tuple(_COMPRESSIONS)) or head[_TAR_MAGIC] == _USTAR


def read_archive(
    path: str | os.PathLike[str],
    tops: Collection[str],
    most_bytes: Callable[[str], int | None],
    keeps_link: Callable[[str], bool],
    what: str = "a snapshot",
) -> Archive:
    """Return the files that an archive holds, at its top or in one folder named after the machine.

    Args:
        path: the archive.
        tops: the first names of paths from the root; a first folder of another name is left out of the paths.
        most_bytes: returns how many bytes a file of this path may have; None: it is ignored, unread.
        keeps_link: returns whether the target of a link of this path is wanted.
        what: the words of an error for what the archive should be.

    Raises:
        InputError: the file is no archive, or is damaged or too large.
    """
    source = os.fspath(path)
    try:
        return _read_members(_unpacked(Path(path), what), tops, most_bytes, keeps_link)
    except InputError as error:
        raise type(error)(f"{error} at {source}") from None
    except _DAMAGE as error:
        raise InputError(f"expected {what}, but the file is damaged or no archive at {source}") from error
    except OSError as error:
        raise InputError(f"cannot read {what} at {source}: {system_reason(error)}") from error


def _unpacked(path: Path, what: str) -> bytes:
    """Return the archive without its compression, read to its checksum at the end.

    Raises:
        InputError: it is too long.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
    opened: IO[bytes]
    for magic, module in _COMPRESSIONS.items():
        if head.startswith(magic):
            opened = module.open(path, "rb")
            break
    else:
        opened = path.open("rb")
    unpacked = io.BytesIO()
    with opened:
        while unpacked.tell() <= _MAX_UNPACKED and (chunk := opened.read(_CHUNK)):
            unpacked.write(chunk)
    if unpacked.tell() > _MAX_UNPACKED:
        raise InputError(f"{what} may have up to {_MAX_UNPACKED} bytes, and this has more")
    return unpacked.getvalue()


class _Header(tarfile.TarInfo):
    """The header of a member, read without what a snapshot does not use.

    tarfile reads owners, times and checksums of each, which makes thousands of small files slow.
    """

    __slots__ = ()

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header in a block; blocks that are no plain file, folder or link are left to tarfile."""
        try:
            size = int(buf[_SIZE].strip(b" \0") or b"0", 8)
        except ValueError:
            size = -1
        if size < 0 or buf[_TYPE] not in _PLAIN_TYPES or buf[_TAR_MAGIC] != _USTAR:
            return super().frombuf(buf, encoding, errors)
        prefix = _text(buf[_PREFIX])
        header = cls(f"{prefix}/{_text(buf[_NAME])}" if prefix else _text(buf[_NAME]))
        header.size = size
        header.type = bytes(buf[_TYPE])
        header.linkname = _text(buf[_LINK])
        return header

    def _proc_member(self, archive: tarfile.TarFile) -> Self | None:
        """Go on to the member that an extended header is about; tarfile says that subclasses may override this."""
        if self.type in _EXTENSIONS:
            file: Any = archive.fileobj
            data = file.read(_MOST_EXTENSION + 1)
            file.seek(-len(data), os.SEEK_CUR)
            if self.size > _MOST_EXTENSION or _LONG_NUMBER.search(data, 0, self.size):
                raise tarfile.ReadError("an extended header is larger, or has a longer number, than a path needs")
        found: Self | None = super()._proc_member(archive)  # type: ignore[misc]  # the stubs leave it out
        return found


def _text(field: bytes | bytearray) -> str:
    """Return a field of a header, which ends at its first NUL."""
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _read_members(
    data: bytes, tops: Collection[str], most_bytes: Callable[[str], int | None], keeps_link: Callable[[str], bool]
) -> Archive:
    """Return the files and links that are wanted."""
    read = Archive({}, {})
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", tarinfo=_Header) as archive:
        last = -1
        for member in archive:
            # a negative size would lead back to where one was before
            if member.size < 0 or member.offset <= last:
                raise tarfile.ReadError("a member does not come after the one before it")
            last = member.offset
            name = member.name.removeprefix("./")
            first, _, rest = name.partition("/")
            name = name if first in tops else rest
            if member.issym() and keeps_link(name):
                read.links[name] = member.linkname
            elif member.isreg() and (most := most_bytes(name)) is not None:
                if member.size > most:
                    raise tarfile.ReadError(f"{name} is larger than such a file can be")
                read.files[name] = data[member.offset_data : member.offset_data + member.size]
    return read
