"""Puts a machine into one line of words: how many NUMA nodes, sockets, cores, CPUs and L3 caches, and its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.text.byte_sizes import short_bytes
from alignup.text.wording import counted

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

__all__ = ["summary"]


def summary(machine: Machine) -> str:
    """Return the machine in one line."""
    l3_groups = {core.l3 for node in machine.numa_nodes for core in node.cores if core.l3 is not None}
    parts = [
        counted(len(machine.numa_nodes), "NUMA node"),
        counted(len(machine.sockets), "socket"),
        counted(machine.core_count, "core"),
        counted(machine.cpu_count, "CPU"),
    ]
    if l3_groups:
        parts.append(counted(len(l3_groups), "L3 cache"))
    parts.append(f"{short_bytes(sum(node.memory for node in machine.numa_nodes))} memory")
    return ", ".join(parts)
