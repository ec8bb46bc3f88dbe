"""Packs the kernel files that discovery reads into an archive, and reads such archives in memory.

`kernel_files` says which files those are. What they mean is for `sysfs` to say.
"""

from __future__ import annotations

import io
import lzma
import os
import posixpath
import tarfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal

from alignup.discovery.kernel_files import PCI_NAMES, find_kernel_files, is_kernel_file, kept_text
from alignup.discovery.kernel_tree import DirectoryTree, MemoryTree
from alignup.discovery.pci_files import PCI_FOLDER
from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_snapshot", "load_snapshot", "take_snapshot"]

_MAGIC: Final = (b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh")
_TAR_MAGIC: Final = slice(257, 262)
_MAX_FILE: Final = 1 << 20
_MAX_TOTAL: Final = 64 << 20
_MAX_MEMBERS: Final = 500_000
_MAX_UNPACKED: Final = 1 << 30


def take_snapshot(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Pack the kernel files beneath `root` that discovery reads, and nothing else; return how many they were.

    Equal files make an equal archive. It is written beside `path` and then moved there, so that it is whole
    or not there.

    Args:
        root: A directory with `sys` and `proc` in it.
        path: The archive to write; its suffix (.tar.xz, .tar.gz or .tgz) says how it is compressed.

    Raises:
        InputError: The suffix is another, `root` cannot be read, there are no kernel files, or `path` cannot
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
        beside.write_bytes(packed.getbuffer())
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
    """Tell from the first bytes of a file whether it is an archive."""
    return head.startswith(_MAGIC) or head[_TAR_MAGIC] == b"ustar"


def load_snapshot(path: str | os.PathLike[str]) -> MemoryTree:
    """Return the kernel files that an archive holds, at its top or in one folder named after the machine.

    Other files are passed over, unread. A link in `sys/bus/pci/devices` stands for the files it leads to.

    Raises:
        InputError: The file is no archive, is damaged or too large, or has no kernel files in it.
    """
    source = os.fspath(path)
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    try:
        with tarfile.open(source, "r:*") as archive:
            _read_members(archive, source, files, links)
            _read_rest(archive, source)
    except OSError as error:
        raise InputError(f"expected a snapshot, got {error.strerror or str(error)!r} at {source}") from error
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(
            f"expected a snapshot, got a file that is damaged or no archive at {source}"
        ) from error
    for link, folder in links.items():
        for name in PCI_NAMES:
            if f"{folder}/{name}" in files:
                files[f"{link}/{name}"] = files[f"{folder}/{name}"]
    kept = {name: kept_text(name, text) for name, text in files.items() if is_kernel_file(name)}
    if not kept:
        raise InputError(f"expected a snapshot with files of sys and proc, got none at {source}")
    return MemoryTree(source, kept)


def _read_members(
    archive: tarfile.TarFile, source: str, files: dict[str, str], links: dict[str, str]
) -> None:
    """Collect the texts of the files that may matter, and the links of PCI devices, by path from the root."""
    total = 0
    for name, member in _members(archive, source):
        if member.issym() and posixpath.dirname(name) == PCI_FOLDER:
            links[name] = posixpath.normpath(posixpath.join(PCI_FOLDER, member.linkname))
        if not member.isreg() or not (is_kernel_file(name) or _is_pci_target(name)):
            continue
        total += member.size
        if member.size > _MAX_FILE or total > _MAX_TOTAL:
            raise InputError.at(source, f"kernel files of up to {_MAX_TOTAL} bytes together", total)
        content = archive.extractfile(member)
        if content is not None:
            files[name] = content.read(_MAX_FILE).decode("ascii", "replace")


def _read_rest(archive: tarfile.TarFile, source: str) -> None:
    """Read on to the end of the file, where the checksum is: tarfile stops where the last member ends."""
    left = _MAX_TOTAL
    while archive.fileobj is not None and (chunk := archive.fileobj.read(_MAX_FILE)):
        left -= len(chunk)
        if left < 0:
            raise InputError.at(source, "the end of a snapshot after its last file", "more")


def _members(archive: tarfile.TarFile, source: str) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield the members by path from the root: what follows a first folder that is not sys or proc."""
    total = 0
    for number, member in enumerate(archive):
        total += member.size
        if number >= _MAX_MEMBERS or total > _MAX_UNPACKED:
            raise InputError.at(
                source, f"up to {_MAX_MEMBERS} files of {_MAX_UNPACKED} bytes together", "more"
            )
        name = posixpath.normpath(member.name).lstrip("/")
        first, _, rest = name.partition("/")
        yield (name if first in {"sys", "proc"} else rest), member


def _is_pci_target(name: str) -> bool:
    """Tell whether a link in `sys/bus/pci/devices` may lead to the folder that this file is in."""
    return name.startswith("sys/devices/pci") and posixpath.basename(name) in PCI_NAMES
