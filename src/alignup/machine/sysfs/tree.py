"""Reads the kernel's files beneath a root.

They are those of mounted file systems, a copy of them, or an archive in memory. A file that is
missing, or that the kernel refuses to read, is None.
"""

from __future__ import annotations

import os  # evaluated by whoever asks for the types of the options
from collections.abc import Mapping, Sequence

from alignup.errors import InputError, system_reason

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Final, Protocol
else:
    Protocol = object

CPU_FOLDER: Final = "sys/devices/system/cpu"
NODE_FOLDER: Final = "sys/devices/system/node"
PCI_FOLDER: Final = "sys/bus/pci/devices"
_CHUNK: Final = 65536
_LARGEST: Final = 1 << 20
_LARGEST_CPUINFO: Final = 16 << 20


def largest_size(path: str) -> int:
    """Return how many bytes a kernel file may have; a larger one is none, such as a device."""
    return _LARGEST_CPUINFO if path == "proc/cpuinfo" else _LARGEST


class KernelTree(Protocol):
    """Kernel files by their path from the root, such as `sys/devices/system/cpu/online`.

    There is no slash before a path.

    Attributes:
        source: the name of the tree in errors.
    """

    source: str

    def read(self, path: str, *, whole: bool = True) -> str | None:
        """Return the text of a file, or None.

        Unless `whole`, it is at least the first few hundred lines of it.
        """

    def names(self, path: str) -> Sequence[str]:
        """Return the names in a folder, in no order; none if there is no such folder."""


class DirectoryTree:
    """The kernel files beneath a directory."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Look at `root`.

        Raises:
            InputError: it is no directory, or may not be read.
        """
        self.source = os.fspath(root)
        self._prefix = self.source.rstrip("/") + "/"
        try:
            os.scandir(self.source).close()
        except OSError as error:
            message = (
                f"cannot read {self.source} as a directory with sys and proc in it: "
                f"{system_reason(error)}"
            )
            if isinstance(error, NotADirectoryError):
                message += "; read_machine reads files"
            raise InputError(message) from error

    def read(self, path: str, *, whole: bool = True) -> str | None:
        """See `KernelTree`; unless `whole`, it is the first 64 KiB."""
        # os.open, since a file object costs three times the read; O_NONBLOCK for pipes in a copied
        # tree
        try:
            descriptor = os.open(self._prefix + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None

        try:
            data = os.read(descriptor, _CHUNK)
            chunk = data
            limit = largest_size(path)
            while chunk and whole:
                chunk = os.read(descriptor, _CHUNK)
                data += chunk
                if len(data) > limit:
                    return None
        except OSError:
            return None
        finally:
            os.close(descriptor)

        return data.decode("ascii", "replace")

    def names(self, path: str) -> Sequence[str]:
        """See `KernelTree`."""
        try:
            # a Path object for each costs more
            return os.listdir(self._prefix + path)  # noqa: PTH208
        except (OSError, ValueError):
            return ()


class MemoryTree:
    """Kernel files that are held in memory, such as those of a snapshot."""

    def __init__(self, source: str, files: Mapping[str, str]) -> None:
        """Hold `files`, texts by path; `source` is their name in errors."""
        self.source = source
        self._files = files
        folders: dict[str, dict[str, None]] = {}
        for path in files:
            child = path
            while child:
                folder, _, name = child.rpartition("/")
                if name in folders.setdefault(folder, {}):
                    break
                folders[folder][name] = None
                child = folder

        self._folders = folders

    # all of it is there at no cost
    def read(self, path: str, *, whole: bool = True) -> str | None:  # noqa: ARG002
        """See `KernelTree`."""
        return self._files.get(path)

    def names(self, path: str) -> Sequence[str]:
        """See `KernelTree`."""
        return tuple(self._folders.get(path, ()))
