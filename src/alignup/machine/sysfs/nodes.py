"""Reads `sys/devices/system/node`: which NUMA nodes there are, their CPUs, memory and hugepages, and their distances.

Sets of CPUs and of nodes are ints as bit sets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.machine.bits import bit_numbers
from alignup.machine.numa_node import HugePages
from alignup.machine.sysfs.tree import KernelTree, first_number, number_list, number_mask, number_row

if TYPE_CHECKING:
    from collections.abc import Sequence


NODE_FOLDER: Final = "sys/devices/system/node"

_NODE_NAME: Final = re.compile(r"node(\d{1,5})")


def node_ids(tree: KernelTree) -> list[int]:
    """Return the ids of the NUMA nodes, ascending; none on kernels that were built without NUMA.

    They have gaps, and 0 may be missing. A node counts if it is `online` and has a folder; kernels that have
    no `online` have folders for the nodes they use.
    """
    present = 0
    for name in tree.names(NODE_FOLDER):
        matched = _NODE_NAME.fullmatch(name)
        if matched:
            present |= 1 << int(matched[1])
    online = number_list(tree.read(f"{NODE_FOLDER}/online"))
    return list(bit_numbers(present & online if online and present & online else present))


def node_cpus(tree: KernelTree, numa_id: int) -> int:
    """Return the CPUs that a node lists, offline ones too; empty for a node of memory only."""
    folder = f"{NODE_FOLDER}/node{numa_id}"
    listed = number_mask(tree.read(f"{folder}/cpumap"))
    return (number_list(tree.read(f"{folder}/cpulist")) if listed is None else listed) or 0


def distances(tree: KernelTree, ids: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the row of distances of each node in `ids`, in that order; no rows if one makes no sense.

    `distance` has a column for each node that was online, ascending, not for each number. A row that is
    missing, holds zeros, or is longer or shorter than the nodes there are leaves all distances unknown, since
    the columns of one cannot be told from those of another.
    """
    online = list(bit_numbers(number_list(tree.read(f"{NODE_FOLDER}/online")) or 0))
    rows: list[tuple[int, ...]] = []
    for numa_id in ids:
        row = number_row(tree.read(f"{NODE_FOLDER}/node{numa_id}/distance"))
        chosen = _columns(row, ids, online)
        if not chosen or 0 in chosen:
            return []
        rows.append(chosen)
    return rows


def _columns(row: list[int] | None, ids: Sequence[int], online: list[int]) -> tuple[int, ...]:
    """Return the columns of `row` that belong to `ids`; none if they cannot be told."""
    if row is None:
        return ()
    if len(row) == len(ids):
        return tuple(row)
    if len(row) == len(online):
        by_id = dict(zip(online, row, strict=True))
        return tuple(by_id[numa_id] for numa_id in ids if numa_id in by_id)
    return ()


_HUGEPAGES: Final = re.compile(r"hugepages-(\d{1,15})kB")


def hugepages(tree: KernelTree, folder: str) -> tuple[HugePages, ...]:
    """Return the pages of each size that `folder` has a `hugepages-<KiB>kB` for, by size.

    A node without the folder has none: the kernel has kept pages by node for as long as there are such
    folders, and the machine's total does not tell which node they are in.
    """
    sizes = sorted(int(found[1]) << 10 for found in map(_HUGEPAGES.fullmatch, tree.names(folder)) if found)
    # a file that cannot be read is no pages
    counts = (first_number(tree.read(f"{folder}/hugepages-{size >> 10}kB/nr_hugepages")) or 0 for size in sizes)
    return tuple(HugePages.of_bytes(size, max(count, 0)) for size, count in zip(sizes, counts, strict=True) if size)
