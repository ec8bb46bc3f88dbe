"""Writes tar archives, and reads chosen files out of tars, zips and folders.

Nothing is unpacked, and no link followed. A snapshot is such an archive of the kernel files that
discovery reads: `sysfs/kernel_files.json` lists them, and `alignup.machine.sysfs` reads a machine
from them. The tests check that the readers open nothing else. No file on the list holds a host
name, a serial number or a network address, with one exception: `proc/cpuinfo` has serial numbers on
some architectures, so only the lines in `CPUINFO_LINES` are kept of it. Other layouts have other
readers.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import posixpath
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final, Literal, Self

from alignup.errors import InputError, system_reason, warn
from alignup.machine.sysfs.tree import (
    PCI_FOLDER,
    DirectoryTree,
    KernelTree,
    MemoryTree,
    largest_size,
)
from alignup.records import Record
from alignup.text.counting import some_of
from alignup.text.output_files import write_output

_COMPRESSIONS: Final = {b"\x1f\x8b": gzip, b"\xfd7zXZ\x00": lzma, b"BZh": bz2}
_ZIP: Final = b"PK\x03\x04"
# Bytes that are looked through: of the whole cluster's files, as support asks for.
_MAX_UNPACKED: Final = 2 << 30
_MOST_KEPT: Final = 64 << 20
_MOST_NESTED: Final = 32 << 20
_NESTED: Final = re.compile(r"\.(?:tar\.[gx]z|tar|tgz|zip)$")
# Bytes of an extended header, which has a path that is long.
_MOST_EXTENSION: Final = 1 << 10
# Digits in a row: the time to read some grows with their square.
_LONG_NUMBER: Final = re.compile(rb"\d{21}")
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
# ValueError: numbers in headers that are none; RuntimeError: extended headers one after another, or
# a zip that is encrypted or of a later version
_DAMAGE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error),
    *(ValueError, OverflowError, RuntimeError, EOFError, struct.error),
)

# First names of paths from the root of a machine, as `read_archive` takes them.
ROOT_TOPS: Final = frozenset({"sys", "proc", "etc", "var"})

# The lines of `proc/cpuinfo` that are kept: the numbers of CPUs, and those that identify AMD's
# modules.
CPUINFO_LINES: Final = ("processor", "vendor_id", "cpu family")

_KEPT: Final = re.compile(
    rf"^[ \t]*(?:{'|'.join(CPUINFO_LINES)})[ \t]*(?::[^\r\n]*)?$", re.MULTILINE
)

_WILD: Final = re.compile(r"[*?\[]")


class Archive(Record):
    """The files and links that were read of an archive, by path from the root.

    Attributes:
        files: the contents of the files that were asked for.
        links: where the symbolic links that were asked for point to.
        folder: the name of the folder that they are in; empty: they are at the top.
    """

    files: dict[str, bytes]
    links: dict[str, str]
    folder: str = ""


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


def write_archive(
    path: str | os.PathLike[str], files: Iterable[tuple[str, bytes]], label: str
) -> None:
    """Write an archive: names and contents, with no times, owners or rights of the machine in it.

    Equal files make an equal archive. It is whole, or what was there before is: see `write_output`.

    Args:
        path: the archive.
        files: name and content of each.
        label: what the archive is, in an error.

    Raises:
        InputError: the suffix is unknown, or the archive cannot be written.
    """
    target = Path(path)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=check_suffix(target, f"the name of {label}")) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))

    try:
        write_output(target, packed.getvalue())
    except OSError as error:
        raise InputError(
            f"cannot write {label} {os.fspath(target)!r}: {system_reason(error)}"
        ) from error


def is_archive(head: bytes) -> bool:
    """Return whether a file is an archive, by its first bytes."""
    return head.startswith((*_COMPRESSIONS, _ZIP)) or head[_TAR_MAGIC] == _USTAR


def read_archive(
    path: str | os.PathLike[str],
    tops: Collection[str],
    most_bytes: Callable[[str], int | None],
    keeps_link: Callable[[str], bool],
    label: str = "a snapshot",
    node_name: str | None = None,
) -> Archive:
    """Return the files of one node that an archive or a folder holds, at its top or deeper.

    A path is from the root of a node from the first of its names on that is one of `tops`. What
    lies before it tells nodes apart; an archive within the archive counts as a folder. Files of
    folders above a node's belong to it too.

    Args:
        path: the archive, a tar or a zip; or a folder with the same in it.
        tops: the first names of paths from the root.
        most_bytes: returns how many bytes a file of this path may have; None: it is ignored,
            unread.
        keeps_link: returns whether the target of a link of this path is wanted.
        label: the words of an error for what the archive should be.
        node_name: the node, where there are several.

    Raises:
        InputError: the file is no archive, or is damaged or too large, or has several nodes.
    """
    source = os.fspath(path)
    selection = _Selection(tops, most_bytes, keeps_link)
    try:
        if Path(path).is_dir():
            selection.take(_folder_members(Path(path)))
        else:
            with Path(path).open("rb") as file:
                selection.take(_members(file, label))

        return _of_one_node(selection.nodes, node_name)
    except InputError as error:
        raise type(error)(f"{error} at {source}") from None
    except _DAMAGE as error:
        raise InputError(
            f"expected {label}, but the file is damaged or no archive at {source}"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {label} at {source}: {system_reason(error)}") from error


class _Member(Record):
    """A plain file or a symbolic link in an archive.

    Attributes:
        link: where it points to; None: it is a file.
    """

    path: str
    size: int
    link: str | None
    read: Callable[[], bytes]


class _Selection:
    """Picks the members that are wanted, by the folder that is the root of their node."""

    def __init__(
        self,
        tops: Collection[str],
        most_bytes: Callable[[str], int | None],
        keeps_link: Callable[[str], bool],
    ) -> None:
        self._tops = tops
        self._most_bytes = most_bytes
        self._keeps_link = keeps_link
        self._kept = 0
        self.nodes: defaultdict[str, Archive] = defaultdict(lambda: Archive({}, {}))

    def take(self, members: Iterable[_Member], within: str = "") -> None:
        """Keep what is wanted.

        `within` is the path of the archive that these are in, if it is in another one.
        """
        for member in members:
            names = [name for name in member.path.split("/") if name not in {"", "."}]
            if ".." in names or not names:
                continue

            place = next((place for place, name in enumerate(names) if name in self._tops), None)
            if place is None:
                is_small = member.link is None and member.size <= _MOST_NESTED
                if is_small and not within and _NESTED.search(names[-1]):
                    self._take_nested(member.read(), "/".join(names))
                continue

            path = "/".join(names[place:])
            root = within + "".join(f"{name}/" for name in names[:place])
            if member.link is not None:
                if self._keeps_link(path):
                    self.nodes[root].links[path] = member.link
                continue

            limit = self._most_bytes(path)
            if limit is None:
                continue

            self._kept += member.size
            if member.size > limit or self._kept > _MOST_KEPT:
                raise tarfile.ReadError(f"{path} is larger than such a file can be")
            self.nodes[root].files[path] = member.read()

    def _take_nested(self, data: bytes, path: str) -> None:
        """Take what an archive in the archive has, as must-gather packs a node's files.

        All of it is taken, or nothing.
        """
        root = f"{_NESTED.sub('', path).removesuffix('/sysinfo')}/"
        try:
            self.take(_members(io.BytesIO(data), path), root)
        except (*_DAMAGE, InputError):
            warn(f"passed over, since it is damaged: {path}")
            for node_root in [node_root for node_root in self.nodes if node_root.startswith(root)]:
                del self.nodes[node_root]


def _of_one_node(nodes: dict[str, Archive], node_name: str | None) -> Archive:
    """Return the files of a node, with those of the folders above its own.

    Raises:
        InputError: there are several nodes, or those that are there are named, and the name is that
            of none.
    """
    all_roots = sorted(nodes)
    above = {root for root, following in pairwise(all_roots) if following.startswith(root)}
    roots = [root for root in all_roots if root not in above]
    if not roots:
        return Archive({}, {})

    chosen_roots = roots
    if node_name is not None and (len(roots) > 1 or any("nodes/" in root for root in roots)):
        chosen_roots = _roots_of(roots, node_name)

    if len(chosen_roots) != 1:
        names = some_of([root.rstrip("/") or "its top" for root in roots])
        raise InputError(
            f"expected the files of one node, got those of {names}; --node-name NAME chooses one"
        )

    node_root = chosen_roots[0]
    archive = Archive({}, {}, node_root.rstrip("/").rpartition("/")[2])
    for root in all_roots:
        if node_root.startswith(root):
            archive.files.update(nodes[root].files)
            archive.links.update(nodes[root].links)

    return archive


def _roots_of(roots: list[str], node_name: str) -> list[str]:
    """Return the roots of a node: those with a folder of its name, else those named after it."""
    roots_with_name = [root for root in roots if node_name in root.split("/")]
    if roots_with_name:
        return roots_with_name

    # the first part of a host's name, or sosreport-NAME-CASE-DATE-WORD
    name = re.escape(node_name)
    alike = re.compile(
        rf"(?:^|/)(?:{name}\.|sosreport-{name}(?:\.[^/]*?)?-(?:\d+-)?\d{{4}}-\d\d-\d\d-)"
    )
    return [root for root in roots if alike.search(root)]


def _members(file: IO[bytes], label: str) -> Iterator[_Member]:
    """Yield the members of an archive, read to its checksum at the end.

    Raises:
        InputError: it is too long.
    """
    head = file.read(_HEAD)
    file.seek(0)
    if head.startswith(_ZIP):
        yield from _zip_members(file)
        return

    unpacked = file
    for magic, module in _COMPRESSIONS.items():
        if head.startswith(magic):
            unpacked = module.open(file)
            break

    stream = _Forward(unpacked, label)
    yield from _tar_members(stream)
    while stream.read(_CHUNK):
        pass


def _folder_members(folder: Path) -> Iterator[_Member]:
    """Yield the plain files and links beneath a folder; no link is followed."""
    for at, _, names in os.walk(folder):
        for path in (Path(at, name) for name in sorted(names)):
            within = path.relative_to(folder).as_posix()
            if path.is_symlink():
                yield _Member(within, 0, str(path.readlink()), bytes)
            elif path.is_file():
                yield _Member(within, path.stat().st_size, None, path.read_bytes)


def _zip_members(file: IO[bytes]) -> Iterator[_Member]:
    """Yield the members of a zip."""
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise zipfile.BadZipFile(
                    f"{info.filename} is compressed in another way than deflate"
                )
            if info.is_dir():
                continue

            read = partial(_zip_content, archive, info)
            link = None
            if stat.S_ISLNK(info.external_attr >> 16) and info.file_size <= _MOST_EXTENSION:
                link = read().decode("utf-8", "replace")
            yield _Member(info.filename, info.file_size, link, read)


def _zip_content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member, of the size that it says it has, at most."""
    with archive.open(info) as file:
        return file.read(min(info.file_size, _MOST_NESTED))


class _Forward:
    """A stream that tarfile reads forward, and back by less than a chunk; of bounded length."""

    def __init__(self, stream: IO[bytes], label: str) -> None:
        self._stream = stream
        self._label = label
        self._kept = b""
        self._start = 0
        self._at = 0

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        target = offset
        if whence == os.SEEK_CUR:
            target += self._at

        if target < self._start:
            raise tarfile.ReadError("a member does not come after the one before it")
        while target > self._at and self.read(min(target - self._at, _CHUNK)):
            pass

        self._at = min(target, self._at)
        return self._at

    def read(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            InputError: it is too long.
        """
        missing_bytes = self._at + size - self._start - len(self._kept)
        while missing_bytes > 0 and (chunk := self._stream.read(max(missing_bytes, _CHUNK))):
            missing_bytes -= len(chunk)
            dropped = max(0, self._at - self._start - _CHUNK)
            self._kept = self._kept[dropped:] + chunk
            self._start += dropped
            if self._start + len(self._kept) > _MAX_UNPACKED:
                raise InputError(
                    f"{self._label} may have up to {_MAX_UNPACKED} bytes, and this has more"
                )

        place = self._at - self._start
        data = self._kept[place : place + size]
        self._at += len(data)
        return data


class _Header(tarfile.TarInfo):
    """The header of a member, read without what a snapshot does not use.

    tarfile reads owners, times and checksums of each, which makes thousands of small files slow.
    """

    __slots__ = ()

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header in a block.

        Blocks that are no plain file, folder or link are left to tarfile.
        """
        try:
            size = int(buf[_SIZE].strip(b" \0") or b"0", 8)
        except ValueError:
            size = -1

        if size < 0 or buf[_TYPE] not in _PLAIN_TYPES or buf[_TAR_MAGIC] != _USTAR:
            return super().frombuf(buf, encoding, errors)

        prefix = _text(buf[_PREFIX])
        name = _text(buf[_NAME])
        header = cls(f"{prefix}/{name}" if prefix else name)
        header.size = size
        header.type = bytes(buf[_TYPE])
        header.linkname = _text(buf[_LINK])
        return header

    def _proc_member(self, archive: tarfile.TarFile) -> Self | None:
        """Go on to the member that an extended header is about.

        tarfile says that subclasses may override this.
        """
        if self.type in _EXTENSIONS:
            file: Any = archive.fileobj
            data = file.read(_MOST_EXTENSION + 1)
            file.seek(-len(data), os.SEEK_CUR)
            if self.size > _MOST_EXTENSION or _LONG_NUMBER.search(data, 0, self.size):
                raise tarfile.ReadError(
                    "an extended header is larger, or has a longer number, than a path needs"
                )

        # the stubs leave it out
        member: Self | None = super()._proc_member(archive)  # type: ignore[misc]
        return member


def _text(field: bytes | bytearray) -> str:
    """Return a field of a header, which ends at its first NUL."""
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _tar_members(stream: _Forward) -> Iterator[_Member]:
    """Yield the members of a tar."""
    fileobj: Any = stream
    with tarfile.open(fileobj=fileobj, mode="r:", tarinfo=_Header) as archive:
        last_offset = -1
        for member in archive:
            # a negative size would lead back to where one was before
            if member.size < 0 or member.offset <= last_offset:
                raise tarfile.ReadError("a member does not come after the one before it")

            last_offset = member.offset
            read = partial(_tar_content, stream, member)
            if member.issym():
                yield _Member(member.name, member.size, member.linkname, read)
            elif member.isreg() and not member.issparse():
                yield _Member(member.name, member.size, None, read)


def _tar_content(stream: _Forward, member: tarfile.TarInfo) -> bytes:
    """Return the content of a member that was reached just now."""
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    if len(data) < member.size:
        raise tarfile.ReadError("unexpected end of data")
    return data


def take_snapshot(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Pack the kernel files beneath `root` that discovery reads, and nothing else.

    Equal files make an equal archive. It is written beside `path` and then moved there, so that it
    is whole or not there.

    Args:
        root: A directory with `sys` and `proc` in it.
        path: The archive to write; its suffix (.tar.xz, .tar.gz or .tgz) says how it is compressed.

    Returns:
        How many files they were.

    Raises:
        InputError: the suffix is another, `root` cannot be read, there are no kernel files, or
            `path` cannot be written.
    """
    check_suffix(path, "the name of the snapshot")
    files = list(find_kernel_files(DirectoryTree(root)))
    if not files:
        raise InputError(f"no kernel files to pack at {os.fspath(root)}")

    write_archive(
        path, ((name, text.encode("ascii", "replace")) for name, text in files), "a snapshot"
    )
    return len(files)


def load_snapshot(path: str | os.PathLike[str], node_name: str | None = None) -> KernelTree:
    """Return the kernel files that an archive or a folder holds of one node.

    `read_archive` finds them. Other files are ignored, unread. A link in `sys/bus/pci/devices`
    stands for the files it leads to.

    Raises:
        InputError: the file is no archive, is damaged or too large, or has no kernel files in it,
            or those of several machines, of which none has that name.
    """
    source = os.fspath(path)
    archive = read_archive(path, ROOT_TOPS, kernel_file_size, is_pci_link, node_name=node_name)
    tree = kernel_tree(archive, source)
    if tree is not None:
        return tree
    if Path(path).is_dir():
        return DirectoryTree(path)

    raise InputError(
        f"no files of sys and proc in the snapshot {source}; `alignup machine --snapshot FILE` or "
        "`tar czf FILE -C / sys/devices/system` packs them"
    )


def kernel_file_size(name: str) -> int | None:
    """Return how many bytes a file may have by its path from the root.

    None: discovery does not read it.
    """
    # a link in `sys/bus/pci/devices` may lead to the folder that it is in
    is_target = name.startswith("sys/devices/pci") and posixpath.basename(name) in pci_names()
    if is_target or is_kernel_file(name):
        return largest_size(name)
    return None


def is_pci_link(name: str) -> bool:
    """Return whether a path is the link of a PCI device."""
    return posixpath.dirname(name) == PCI_FOLDER


def kernel_tree(archive: Archive, source: str) -> MemoryTree | None:
    """Return the kernel files of an archive, read with `kernel_file_size`; None if it has none."""
    files = {name: data.decode("ascii", "replace") for name, data in archive.files.items()}
    for link, target in archive.links.items():
        folder = posixpath.normpath(posixpath.join(PCI_FOLDER, target))
        for name in pci_names():
            if f"{folder}/{name}" in files:
                files[f"{link}/{name}"] = files[f"{folder}/{name}"]

    kernel_files = {
        name: kept_text(name, text) for name, text in files.items() if is_kernel_file(name)
    }
    if not kernel_files:
        return None
    return MemoryTree(source, kernel_files)


@cache
def patterns() -> tuple[str, ...]:
    """Return the paths from the root, with the shell's wildcards, which never span a slash."""
    path = Path(__file__).with_name("sysfs") / "kernel_files.json"
    return tuple(json.loads(path.read_bytes()))


@cache
def pci_names() -> frozenset[str]:
    """Return the names of the files of a PCI device."""
    return frozenset(
        pattern.rpartition("/")[2] for pattern in patterns() if pattern.startswith(PCI_FOLDER)
    )


@cache
def _by_name() -> dict[str, list[re.Pattern[str]]]:
    """Return the patterns as regular expressions, by the name that they end in.

    That name has no wildcards.
    """
    expressions: dict[str, list[re.Pattern[str]]] = {}
    for pattern in patterns():
        expression = re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\[0\-9\]", "[0-9]")
        _, _, name = pattern.rpartition("/")
        expressions.setdefault(name, []).append(re.compile(expression))

    return expressions


def is_kernel_file(path: str) -> bool:
    """Return whether a path from the root is one that discovery reads."""
    # by name first, since an archive has thousands of paths
    _, _, name = path.rpartition("/")
    return any(expression.fullmatch(path) for expression in _by_name().get(name, ()))


def find_kernel_files(tree: KernelTree) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each file in `tree` that discovery reads, in the order of patterns."""
    for pattern in patterns():
        for path in sorted(_matches(tree, pattern.split("/"))):
            text = tree.read(path)
            if text is not None:
                yield path, kept_text(path, text)


def _matches(tree: KernelTree, pattern: list[str]) -> list[str]:
    """Return the paths that may match; those without wildcards may not exist."""
    paths = [""]
    for part in pattern:
        folders, paths = paths, []
        for folder in folders:
            prefix = f"{folder}/" if folder else ""
            names: Iterable[str] = (part,)
            if _WILD.search(part):
                names = (name for name in tree.names(folder) if fnmatchcase(name, part))
            paths += [prefix + name for name in names]

    return paths


def kept_text(path: str, text: str) -> str:
    """Return the text that a snapshot keeps of a file: all of it, except for `proc/cpuinfo`."""
    if path != "proc/cpuinfo":
        return text
    # not line by line: there may be millions
    return "".join(f"{line[0]}\n" for line in _KEPT.finditer(text))
