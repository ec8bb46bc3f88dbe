"""Finds the kernel files that discovery reads, by the patterns of `kernel_files.json`.

Snapshots are packed and loaded by that list, and the tests check that the readers open nothing else. No file on the
list holds a host name, a serial number or a network address, with one exception: `proc/cpuinfo` has serial numbers on
some architectures, so only the lines in `CPUINFO_LINES` are kept of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

from alignup.machine.sysfs.tree import PCI_FOLDER, KernelTree

# The lines of `proc/cpuinfo` that are kept: the numbers of CPUs, and those that identify AMD's modules.
CPUINFO_LINES: Final = ("processor", "vendor_id", "cpu family")

_KEPT: Final = re.compile(rf"^[ \t]*(?:{'|'.join(CPUINFO_LINES)})[ \t]*(?::[^\r\n]*)?$", re.MULTILINE)
_WILD: Final = re.compile(r"[*?\[]")


@cache
def patterns() -> tuple[str, ...]:
    """Return the paths from the root, with the shell's wildcards; a wildcard never spans a slash."""
    return tuple(json.loads(Path(__file__).with_name("kernel_files.json").read_bytes()))


@cache
def pci_names() -> frozenset[str]:
    """Return the names of the files of a PCI device."""
    return frozenset(pattern.rpartition("/")[2] for pattern in patterns() if pattern.startswith(PCI_FOLDER))


@cache
def _by_name() -> dict[str, list[re.Pattern[str]]]:
    """Return the patterns as regular expressions, by the name, without wildcards, that they all end in."""
    found: dict[str, list[re.Pattern[str]]] = {}
    for pattern in patterns():
        expression = re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\[0\-9\]", "[0-9]")
        found.setdefault(pattern.rpartition("/")[2], []).append(re.compile(expression))
    return found


def is_kernel_file(path: str) -> bool:
    """Return whether a path from the root is one that discovery reads."""
    # by name first, since an archive has thousands of paths
    return any(pattern.fullmatch(path) for pattern in _by_name().get(path.rpartition("/")[2], ()))


def find_kernel_files(tree: KernelTree) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every file in `tree` that discovery reads, in the order of the patterns."""
    for pattern in patterns():
        for path in sorted(_matches(tree, pattern.split("/"))):
            text = tree.read(path)
            if text is not None:
                yield path, kept_text(path, text)


def _matches(tree: KernelTree, pattern: list[str]) -> list[str]:
    """Return the paths that may match; those without wildcards may not exist."""
    paths = [""]
    for part in pattern:
        if _WILD.search(part):
            paths = [f"{folder}/{name}" for folder in paths for name in tree.names(folder) if fnmatchcase(name, part)]
        else:
            paths = [f"{folder}/{part}" if folder else part for folder in paths]
    return paths


def kept_text(path: str, text: str) -> str:
    """Return the text that a snapshot keeps of a file: all of it, except for `proc/cpuinfo`."""
    if path != "proc/cpuinfo":
        return text
    # not line by line: there may be millions
    return "".join(f"{found[0]}\n" for found in _KEPT.finditer(text))
