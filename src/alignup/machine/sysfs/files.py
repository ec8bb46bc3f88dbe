"""Lists the patterns of the kernel files that discovery reads.

Snapshots are packed and loaded by this list, and the tests check that the readers open nothing else. No file on the
list holds a host name, a serial number or a network address, with one exception: `proc/cpuinfo` has serial numbers on
some architectures, so only the lines in `CPUINFO_LINES` are kept of it.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from alignup.machine.sysfs.tree import CPU_FOLDER, NODE_FOLDER, PCI_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.machine.sysfs.tree import KernelTree

_TOPOLOGY_NAMES: Final = (
    *("core_cpus", "core_cpus_list", "thread_siblings", "thread_siblings_list"),
    *("package_cpus", "package_cpus_list", "core_siblings", "core_siblings_list"),
    *("physical_package_id", "core_id"),
)
_CACHE_NAMES: Final = ("level", "type", "size", "shared_cpu_map", "shared_cpu_list")
_NODE_NAMES: Final = ("cpumap", "cpulist", "distance", "meminfo")
_HUGEPAGES: Final = "hugepages-*kB/nr_hugepages"

PCI_NAMES: Final = (
    *("class", "vendor", "device", "numa_node", "local_cpus", "local_cpulist"),
    *("secondary_bus_number", "subordinate_bus_number", "current_link_speed", "current_link_width"),
)
"""Files of a PCI device."""

PATTERNS: Final = (
    f"{CPU_FOLDER}/online",
    f"{CPU_FOLDER}/cpu[0-9]*/online",
    *(f"{CPU_FOLDER}/cpu[0-9]*/topology/{name}" for name in _TOPOLOGY_NAMES),
    *(f"{CPU_FOLDER}/cpu[0-9]*/cache/index[0-9]*/{name}" for name in _CACHE_NAMES),
    f"{NODE_FOLDER}/online",
    *(f"{NODE_FOLDER}/node[0-9]*/{name}" for name in _NODE_NAMES),
    f"{NODE_FOLDER}/node[0-9]*/hugepages/{_HUGEPAGES}",
    f"sys/kernel/mm/hugepages/{_HUGEPAGES}",
    *(f"{PCI_FOLDER}/*/{name}" for name in PCI_NAMES),
    "proc/cpuinfo",
    "proc/meminfo",
)
"""Paths from the root, with the shell's wildcards; a wildcard never spans a slash."""

CPUINFO_LINES: Final = ("processor", "vendor_id", "cpu family")
"""The lines of `proc/cpuinfo` that are kept: the numbers of CPUs, and those that identify AMD's modules."""

_KEPT: Final = re.compile(rf"^[ \t]*(?:{'|'.join(CPUINFO_LINES)})[ \t]*(?::[^\r\n]*)?$", re.MULTILINE)
_SPLIT_PATTERNS: Final = tuple(pattern.split("/") for pattern in PATTERNS)
_WILD: Final = re.compile(r"[*?\[]")


def _by_name() -> dict[str, list[re.Pattern[str]]]:
    """Return the patterns as regular expressions, by the name, without wildcards, that they all end in."""
    patterns: dict[str, list[re.Pattern[str]]] = {}
    for pattern in PATTERNS:
        expression = re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\[0\-9\]", "[0-9]")
        patterns.setdefault(pattern.rpartition("/")[2], []).append(re.compile(expression))
    return patterns


_BY_NAME: Final = _by_name()


def is_kernel_file(path: str) -> bool:
    """Return whether a path from the root is one that discovery reads."""
    # by name first, since an archive has thousands of paths
    return any(pattern.fullmatch(path) for pattern in _BY_NAME.get(path.rpartition("/")[2], ()))


def find_kernel_files(tree: KernelTree) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every file in `tree` that discovery reads, in the order of the patterns."""
    for pattern in _SPLIT_PATTERNS:
        for path in sorted(_matches(tree, pattern)):
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
