"""Cuts a machine to the CPUs and memory that work may be placed on: by the kernel's word, and by the user's."""

from __future__ import annotations

import os

from alignup.errors import InputError
from alignup.machine.bits import bit_set, union
from alignup.machine.cpuset import CPUSet
from alignup.machine.numa_node import cores_within
from alignup.records import replace

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Final

    from alignup.machine.machine import Machine
    from alignup.machine.numa_node import NumaNode

_MEMORY_NODES: Final = "Mems_allowed_list:"


def usable(machine: Machine, *, isolated: bool = False, reserve: int = 0) -> Machine:
    """Return the machine with each CPU in one node, without CPUs that are not for everybody's work.

    Args:
        machine: the machine.
        isolated: keep the CPUs that the kernel's scheduler leaves alone (isolcpus, nohz_full), and these only.
        reserve: a bit set of CPUs that are kept for something else.

    Raises:
        InputError: no CPU is left.
    """
    machine = machine.disjoint()
    alone = bit_set(machine.isolated_cpus) | bit_set(machine.nohz_full_cpus)
    cpus = machine.cpus & ~reserve & (alone if isolated else ~alone)
    if not cpus:
        asked = "--isolated" if isolated else "the machine"
        kept = f"isolated: {CPUSet.from_int(alone) or 'none'}, reserved: {CPUSet.from_int(reserve) or 'none'}"
        raise InputError(f"no CPU is left for work by {asked} ({kept})")
    return machine if cpus == machine.cpus else _within(machine, cpus, -1)


def reachable(machine: Machine, cpus: int | None = None, memory_nodes: int | None = None) -> Machine:
    """Return the machine with only the CPUs and memory that this process may use.

    A container, a batch system or `taskset` can allow a process less than there is.

    Args:
        machine: the machine that this process runs on.
        cpus: bit set of the allowed CPUs; None: what the kernel says.
        memory_nodes: bit set of the kernel's ids of the nodes with allowed memory; None: what the kernel
            says.

    Raises:
        InputError: no CPU is left.
    """
    if cpus is None:
        cpus = bit_set(os.sched_getaffinity(0)) | _bindable(machine)
    if memory_nodes is None:
        memory_nodes = _allowed_memory_nodes()
    if not machine.cpus & cpus:
        raise InputError(f"this process may use CPUs {CPUSet.from_int(cpus)} only, and none of them is in a NUMA node")
    if not machine.cpus & ~cpus and all(memory_nodes >> node.id & 1 for node in machine.numa_nodes):
        return machine
    return _within(machine, cpus, memory_nodes)


def equal_cores(machine: Machine) -> Machine:
    """Return the machine with cores of one size only: of the size that most CPUs have, of several the larger one."""
    sizes: dict[int, int] = {}
    for node in machine.numa_nodes:
        for core in node.cores:
            sizes[len(core.cpus)] = sizes.get(len(core.cpus), 0) + len(core.cpus)
    if len(sizes) == 1:
        return machine
    size = max(sizes, key=lambda size: (sizes[size], size))
    kept = union(core.bits for node in machine.numa_nodes for core in node.cores if len(core.cpus) == size)
    return _within(machine, kept, -1)


def _within(machine: Machine, cpus: int, memory_nodes: int) -> Machine:
    """Return the machine with some CPUs and the memory of some nodes; of one whose cores are gone the kind is kept."""

    def cut(node: NumaNode) -> NumaNode:
        kind = node.memory_kind or ("dram" if node.cores else "")
        node = replace(node, cores=cores_within(node.cores, cpus), memory_kind=kind)
        return node if memory_nodes >> node.id & 1 else replace(node, memory=0, hugepages=())

    return replace(machine, numa_nodes=tuple(map(cut, machine.numa_nodes)))


def _bindable(machine: Machine) -> int:
    """Return the isolated CPUs of a machine that this process may be bound to, as a bit set.

    The kernel leaves them out of every process's affinity, and tells by taking it whether a cpuset allows them.
    """
    alone = machine.cpus & bit_set((*machine.isolated_cpus, *machine.nohz_full_cpus))
    if not alone:
        return 0
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, CPUSet.from_int(alone))
        return bit_set(os.sched_getaffinity(0)) & alone
    except OSError:
        return 0
    finally:
        os.sched_setaffinity(0, before)


def _allowed_memory_nodes(status: str = "/proc/self/status") -> int:
    """Return the bit set of the nodes that this process may have memory of; all if the kernel says nothing."""
    try:
        with open(status, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123  # pathlib is slow to import
            found = next((line for line in lines if line.startswith(_MEMORY_NODES)), None)
    except OSError:
        found = None
    return -1 if found is None else int(CPUSet.parse(found.removeprefix(_MEMORY_NODES), _MEMORY_NODES))
