"""Reads a machine from the kernel's files, of this machine or of a copy.

Each folder of sysfs has a module that reads it; this one combines their results into a `Machine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, union
from alignup.machine.cpu_groups import make_cores
from alignup.machine.cpuset import CPU_COUNT_LIMIT
from alignup.machine.machine import Machine, check_node_count
from alignup.machine.numa_node import Core, NumaNode, cores_within
from alignup.machine.sysfs.cpus import cores, cpu_numbers, l3_groups, sockets, with_uncore_caches
from alignup.machine.sysfs.nodes import NODE_FOLDER, distances, hugepages, node_cpus, node_ids
from alignup.machine.sysfs.pci import pci_devices
from alignup.machine.sysfs.tree import DirectoryTree, KernelTree, meminfo_bytes

if TYPE_CHECKING:
    import os


def read_machine(root: str | os.PathLike[str] = "/") -> Machine:
    """Return the machine that `sys/` and `proc/` beneath `root` describe; see `Machine.from_sysfs`.

    Raises:
        InputError: `root` is no directory, or no CPU is described there, or more than 64 NUMA nodes are.
    """
    return describe(DirectoryTree(root))


def _hint(tree: KernelTree) -> str:
    """Return what probably went wrong where a tree describes no CPU."""
    inside = next((name for name in ("devices", "system", "cpu") if tree.names(name)), "")
    return f"; {inside} lies at its top, so a folder above it is probably meant" if inside else ""


def describe(tree: KernelTree) -> Machine:
    """Return the machine that the files in `tree` describe.

    A kernel that knows no NUMA nodes has one node 0 with everything in it. Where the lists of two nodes name
    the same CPU, both have it, as the kernel says: see `Machine.disjoint`.

    Raises:
        InputError: no CPU is described there, or more than 64 NUMA nodes are.
    """
    online, offline = cpu_numbers(tree)
    if not online:
        expected = "kernel files that describe CPUs, such as sys/devices/system/cpu/cpu0"
        raise InputError(f"expected {expected}, got none at {tree.source}{_hint(tree)}")
    count = online.bit_count()
    if count > CPU_COUNT_LIMIT:
        raise InputError(f"expected at most {CPU_COUNT_LIMIT} CPUs that are online, got {count} at {tree.source}")
    groups = cores(tree, online)
    found = make_cores(groups, sockets(tree, online), l3_groups(tree, online, groups))
    ids = node_ids(tree)
    check_node_count(len(ids))
    if not ids:
        seen = with_uncore_caches(tree, found)
        pages = hugepages(tree, "sys/kernel/mm/hugepages")  # those of all nodes together
        nodes = [NumaNode(0, meminfo_bytes(tree.read("proc/meminfo")), seen, pages)]
        listed = [online]
    else:
        listed = [node_cpus(tree, numa_id) & online for numa_id in ids]
        nodes = _numa_nodes(tree, ids, listed, found)
    assigned = union(listed)
    if not assigned:
        raise InputError(f"expected a NUMA node with CPUs that are online, got none at {tree.source}")
    return Machine(
        numa_nodes=tuple(nodes),
        offline_cpus=tuple(bit_numbers(offline)),
        pci_devices=pci_devices(tree, [node.id for node in nodes], listed),
        unassigned_cores=cores_within(found, online & ~assigned),
    )


def _numa_nodes(tree: KernelTree, ids: list[int], listed: list[int], found: tuple[Core, ...]) -> list[NumaNode]:
    """Return the records of the nodes; `listed` holds the CPUs of each, `found` the cores of the machine."""
    rows = distances(tree, ids) or [()] * len(ids)
    nodes = []
    for numa_id, cpus, row in zip(ids, listed, rows, strict=True):
        folder = f"{NODE_FOLDER}/node{numa_id}"
        seen = with_uncore_caches(tree, cores_within(found, cpus))
        memory, pages = meminfo_bytes(tree.read(f"{folder}/meminfo")), hugepages(tree, f"{folder}/hugepages")
        nodes.append(NumaNode(numa_id, memory, seen, pages, row))
    return nodes
