"""Packs the kernel files that discovery reads into an archive, and finds them in such archives.

Which files those are is said in `alignup.machine.sysfs.files`; `alignup.machine.sysfs` reads a machine from them.
"""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import Final

from alignup.errors import InputError
from alignup.machine.archive import Archive, check_suffix, read_archive, write_archive
from alignup.machine.sysfs.files import find_kernel_files, is_kernel_file, kept_text, pci_names
from alignup.machine.sysfs.tree import PCI_FOLDER, DirectoryTree, KernelTree, MemoryTree, largest_size

ROOT_TOPS: Final = frozenset({"sys", "proc", "etc", "var"})
"""First names of paths from the root of a machine, as `read_archive` takes them."""


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
    check_suffix(path, "the name of the snapshot")
    files = list(find_kernel_files(DirectoryTree(root)))
    if not files:
        raise InputError(f"no kernel files to pack at {os.fspath(root)}")
    write_archive(path, ((name, text.encode("ascii", "replace")) for name, text in files), "a snapshot")
    return len(files)


def load_snapshot(path: str | os.PathLike[str], node_name: str | None = None) -> KernelTree:
    """Return the kernel files that an archive or a folder holds, as `read_archive` finds those of a node.

    Other files are ignored, unread. A link in `sys/bus/pci/devices` stands for the files it leads to.

    Raises:
        InputError: the file is no archive, is damaged or too large, or has no kernel files in it, or those of several
            machines, of which none has that name.
    """
    source = os.fspath(path)
    tree = kernel_tree(read_archive(path, ROOT_TOPS, kernel_file_size, is_pci_link, node_name=node_name), source)
    if tree is None:
        if Path(path).is_dir():
            return DirectoryTree(path)
        raise InputError(
            f"no files of sys and proc in the snapshot {source}; "
            "`alignup machine --snapshot FILE` or `tar czf FILE -C / sys/devices/system` packs them"
        )
    return tree


def kernel_file_size(name: str) -> int | None:
    """Return how many bytes a file may have by its path from the root; None: discovery does not read it."""
    # a link in `sys/bus/pci/devices` may lead to the folder that it is in
    is_target = name.startswith("sys/devices/pci") and posixpath.basename(name) in pci_names()
    return largest_size(name) if is_kernel_file(name) or is_target else None


def is_pci_link(name: str) -> bool:
    """Return whether a path is the link of a PCI device."""
    return posixpath.dirname(name) == PCI_FOLDER


def kernel_tree(archive: Archive, source: str) -> MemoryTree | None:
    """Return the kernel files of an archive that was read with `kernel_file_size`; None if it has none."""
    files = {name: data.decode("ascii", "replace") for name, data in archive.files.items()}
    for link, target in archive.links.items():
        folder = posixpath.normpath(posixpath.join(PCI_FOLDER, target))
        for name in pci_names():
            if f"{folder}/{name}" in files:
                files[f"{link}/{name}"] = files[f"{folder}/{name}"]
    kept = {name: kept_text(name, text) for name, text in files.items() if is_kernel_file(name)}
    return MemoryTree(source, kept) if kept else None
