"""Packs the kernel files that discovery reads into an archive, and reads such archives in memory.

`kernel_files` says which files those are; `alignup.machine.sysfs` reads a machine from them.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import posixpath
import tarfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Literal, Self

from alignup.errors import InputError
from alignup.machine.sysfs.files import PCI_NAMES, find_kernel_files, is_kernel_file, kept_text
from alignup.machine.sysfs.pci import PCI_FOLDER
from alignup.machine.sysfs.tree import DirectoryTree, MemoryTree, largest_size

__all__ = ["is_snapshot", "load_snapshot", "take_snapshot"]

_COMPRESSIONS: Final = {b"\x1f\x8b": gzip, b"\xfd7zXZ\x00": lzma, b"BZh": bz2}
_MAX_UNPACKED: Final = 64 << 20
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
_PLAIN_TYPES: Final = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)


def take_snapshot(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Pack the kernel files beneath `root` that discovery reads, and nothing else; return how many they were.

    Equal files make an equal archive. It is written beside `path` and then moved there, so that it is whole
    or not there.

    Args:
        root: A directory with `sys` and `proc` in it.
        path: The archive to write; its suffix (.tar.xz, .tar.gz or .tgz) says how it is compressed.

    Raises:
        InputError: the suffix is another, `root` cannot be read, there are no kernel files, or `path` cannot
            be written.
    """
    target = Path(path)
    mode = _write_mode(target)
    files = list(find_kernel_files(DirectoryTree(root)))
    if not files:
        raise InputError(f"expected kernel files to pack, got none at {os.fspath(root)}")
    packed = io.BytesIO()
    _write(packed, mode, files)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:  # somebody else's link of this name would be followed
            file.write(packed.getbuffer())
        beside.replace(target)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise InputError(
            f"expected a place to write a snapshot, got {error.strerror!r} at {target}"
        ) from error
    return len(files)


def _write_mode(path: Path) -> Literal["w:xz", "w:gz"]:
    """Return how tarfile spells the compression that the name of `path` asks for."""
    if path.name.endswith(".tar.xz"):
        return "w:xz"
    if path.name.endswith((".tar.gz", ".tgz")):
        return "w:gz"
    raise InputError.at("the name of the snapshot", "a suffix of .tar.xz, .tar.gz or .tgz", path.name)


def _write(packed: IO[bytes], mode: Literal["w:xz", "w:gz"], files: list[tuple[str, str]]) -> None:
    """Write the archive: names and texts, with no times, owners or rights of the machine in it."""
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for name, text in files:
            data = text.encode("ascii", "replace")
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def is_snapshot(head: bytes) -> bool:
    """Return whether a file is an archive, by its first bytes."""
    return head.startswith(tuple(_COMPRESSIONS)) or head[_TAR_MAGIC] == _USTAR


def load_snapshot(path: str | os.PathLike[str]) -> MemoryTree:
    """Return the kernel files that an archive holds, at its top or in one folder named after the machine.

    Other files are passed over, unread. A link in `sys/bus/pci/devices` stands for the files it leads to.

    Raises:
        InputError: the file is no archive, is damaged or too large, or has no kernel files in it.
    """
    source = os.fspath(path)
    try:
        files, links = _read_members(_unpacked(Path(path)))
    except InputError as error:
        raise type(error)(f"{error} at {source}") from None
    # ValueError: numbers in headers that are none
    except (tarfile.TarError, ValueError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"expected a snapshot, got a file that is damaged or no archive at {source}"
        ) from error
    except OSError as error:
        raise InputError(f"expected a snapshot, got {error.strerror or str(error)!r} at {source}") from error
    for link, folder in links.items():
        for name in PCI_NAMES:
            if f"{folder}/{name}" in files:
                files[f"{link}/{name}"] = files[f"{folder}/{name}"]
    kept = {name: kept_text(name, text) for name, text in files.items() if is_kernel_file(name)}
    if not kept:
        raise InputError(
            f"expected a snapshot with files of sys and proc, got none at {source}; "
            "`alignup machine --snapshot FILE` or `tar czf FILE -C / sys/devices/system` packs them"
        )
    return MemoryTree(source, kept)


def _unpacked(path: Path) -> bytes:
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
        raise InputError(f"expected a snapshot of up to {_MAX_UNPACKED} bytes, got more")
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
            return super().frombuf(buf, encoding, errors)
        if size < 0 or buf[_TYPE] not in _PLAIN_TYPES or buf[_TAR_MAGIC] != _USTAR:
            return super().frombuf(buf, encoding, errors)
        prefix = _text(buf[_PREFIX])
        header = cls(f"{prefix}/{_text(buf[_NAME])}" if prefix else _text(buf[_NAME]))
        header.size = size
        header.type = bytes(buf[_TYPE])
        header.linkname = _text(buf[_LINK])
        return header


def _text(field: bytes | bytearray) -> str:
    """Return a field of a header, which ends at its first NUL."""
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _read_members(data: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the files that may matter, and the links of PCI devices, by path from the root."""
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", tarinfo=_Header) as archive:
        last = -1
        for member in archive:
            # a negative size would lead back to where one was before
            if member.size < 0 or member.offset <= last:
                raise tarfile.ReadError("a member does not come after the one before it")
            last = member.offset
            name = _from_root(member.name)
            if member.issym() and posixpath.dirname(name) == PCI_FOLDER:
                links[name] = posixpath.normpath(posixpath.join(PCI_FOLDER, member.linkname))
            elif member.isreg() and (is_kernel_file(name) or _is_pci_target(name)):
                if member.size > largest_size(name):
                    raise tarfile.ReadError(f"{name} is larger than any kernel file")
                content = data[member.offset_data : member.offset_data + member.size]
                files[name] = content.decode("ascii", "replace")
    return files, links


def _from_root(name: str) -> str:
    """Return the path from the root: what follows a first folder that is not sys or proc."""
    name = name.removeprefix("./")
    first, _, rest = name.partition("/")
    return name if first in {"sys", "proc"} else rest


def _is_pci_target(name: str) -> bool:
    """Return whether a link in `sys/bus/pci/devices` may lead to the folder that this file is in."""
    return name.startswith("sys/devices/pci") and posixpath.basename(name) in PCI_NAMES
