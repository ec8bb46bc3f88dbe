"""Reads memory: `meminfo` and `hugepages` of a NUMA node, or of a machine whose kernel knows no nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.machine.numa_node import HugePages
from alignup.machine.sysfs.text import first_number, meminfo_bytes

if TYPE_CHECKING:
    from alignup.machine.sysfs.tree import KernelTree

__all__ = ["hugepages", "machine_hugepages", "machine_memory", "node_memory"]

_HUGEPAGES: Final = re.compile(r"hugepages-(\d{1,15})kB")


def node_memory(tree: KernelTree, folder: str) -> int:
    """Return `MemTotal` of the node in `folder`, in bytes; 0: it has no memory."""
    return meminfo_bytes(tree.read(f"{folder}/meminfo"))


def machine_memory(tree: KernelTree) -> int:
    """Return `MemTotal` of `proc/meminfo`, in bytes."""
    return meminfo_bytes(tree.read("proc/meminfo"))


def machine_hugepages(tree: KernelTree) -> tuple[HugePages, ...]:
    """Return the pages of `sys/kernel/mm/hugepages`, which are those of all nodes together."""
    return hugepages(tree, "sys/kernel/mm/hugepages")


def hugepages(tree: KernelTree, folder: str) -> tuple[HugePages, ...]:
    """Return the pages of each size that `folder` has a `hugepages-<KiB>kB` for, by size.

    A node without the folder has none: the kernel has kept pages by node for as long as there are such
    folders, and the machine's total does not tell which node they are in.
    """
    sizes = sorted(int(found[1]) << 10 for found in map(_HUGEPAGES.fullmatch, tree.names(folder)) if found)
    return tuple(HugePages.of_bytes(size, _count(tree, folder, size)) for size in sizes if size)


def _count(tree: KernelTree, folder: str, size_bytes: int) -> int:
    """Return `nr_hugepages`; a file that cannot be read is no pages."""
    return max(first_number(tree.read(f"{folder}/hugepages-{size_bytes >> 10}kB/nr_hugepages")) or 0, 0)
