"""What of a machine work may use: its CPUs and memory, and how memory is found near CPUs.

It goes by the kernel's word and the user's.
"""

from __future__ import annotations

import os

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, bit_set, union
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Machine, NumaNode, cores_within
from alignup.records import Record, replace

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

_MEMORY_NODES: Final = "Mems_allowed_list:"

MEMORY_FROM: Final = ("near", "cpus", "any")
MEMORY_KINDS: Final = ("dram", "hbm", "any")
_SAME_NODE: Final = 10
_UNKNOWN_DISTANCE: Final = 20

# The weight of a CPU where shares are counted: it can be halved, and divided by every number up to
# 16.
_WHOLE: Final = 720_720


def usable(machine: Machine, *, isolated: bool = False, reserve: int = 0) -> Machine:
    """Return the machine with each CPU in one node, without CPUs that are not for everybody's work.

    Args:
        machine: the machine.
        isolated: keep the CPUs that the kernel's scheduler leaves alone (isolcpus, nohz_full), and
            these only.
        reserve: a bit set of CPUs that are kept for something else.

    Raises:
        InputError: no CPU is left.
    """
    machine = machine.disjoint()
    isolated_cpus = bit_set(machine.isolated_cpus) | bit_set(machine.nohz_full_cpus)
    cpus = machine.cpus & ~reserve
    if isolated:
        cpus &= isolated_cpus
    else:
        cpus &= ~isolated_cpus

    if not cpus:
        place = "--isolated" if isolated else "the machine"
        raise InputError(
            f"no CPU is left for work by {place} "
            f"(isolated: {CPUSet.from_int(isolated_cpus) or 'none'}, "
            f"reserved: {CPUSet.from_int(reserve) or 'none'})"
        )

    return machine if cpus == machine.cpus else within(machine, cpus, -1)


def reachable(machine: Machine) -> Machine:
    """Return the machine with only the CPUs and memory that this process may use.

    A container, a batch system or `taskset` can allow a process less than there is.

    Args:
        machine: the machine that this process runs on.

    Raises:
        InputError: no CPU is left.
    """
    cpus = bit_set(os.sched_getaffinity(0)) | _bindable(machine)
    memory_nodes = _allowed_memory_nodes()
    if not machine.cpus & cpus:
        # some are reserved or isolated, or in no NUMA node
        reason = f"work is placed on CPUs {CPUSet.from_int(machine.cpus)} only"
        if cpus & bit_set(machine.isolated_cpus):
            reason = "they are isolated"
        raise InputError(f"this process may use CPUs {CPUSet.from_int(cpus)} only, and {reason}")

    if not machine.cpus & ~cpus and all(memory_nodes >> node.id & 1 for node in machine.numa_nodes):
        return machine

    return within(machine, cpus, memory_nodes)


def equal_cores(machine: Machine) -> Machine:
    """Return the machine with cores of one size only.

    That is the size that most CPUs have, of several the larger one.
    """
    cores = [core for node in machine.numa_nodes for core in node.cores]
    cpus_of_size: dict[int, int] = {}
    for core in cores:
        size = len(core.cpus)
        cpus_of_size[size] = cpus_of_size.get(size, 0) + size

    if len(cpus_of_size) == 1:
        return machine

    main_size = max(cpus_of_size, key=lambda size: (cpus_of_size[size], size))
    return within(machine, union(core.bits for core in cores if len(core.cpus) == main_size), -1)


def within(machine: Machine, cpus: int, memory_nodes: int) -> Machine:
    """Return the machine with some CPUs and the memory of some nodes.

    A node whose cores are gone keeps its kind.

    Args:
        machine: the machine.
        cpus: the CPUs, as a bit set.
        memory_nodes: kernel ids of the nodes, as a bit set; -1: all.
    """

    def cut(node: NumaNode) -> NumaNode:
        cores = cores_within(node.cores, cpus)
        node = replace(node, cores=cores, memory_kind=_memory_kind(node))
        if memory_nodes >> node.id & 1:
            return node
        return replace(node, memory=0, hugepages=())

    return replace(machine, numa_nodes=tuple(map(cut, machine.numa_nodes)))


def _memory_kind(node: NumaNode) -> str:
    """Return the kind of a node's memory; where none is known, nodes with cores have DRAM."""
    return node.memory_kind or ("dram" if node.cores else "")


def _bindable(machine: Machine) -> int:
    """Return the isolated CPUs of a machine that this process may be bound to, as a bit set.

    The kernel leaves them out of every process's affinity, and tells by taking it whether a cpuset
    allows them.
    """
    isolated_cpus = machine.cpus & bit_set((*machine.isolated_cpus, *machine.nohz_full_cpus))
    if not isolated_cpus:
        return 0

    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, CPUSet.from_int(isolated_cpus))
        return bit_set(os.sched_getaffinity(0)) & isolated_cpus
    except OSError:
        return 0
    finally:
        os.sched_setaffinity(0, before)


def _allowed_memory_nodes(status: str = "/proc/self/status") -> int:
    """Return the bit set of the nodes that this process may have memory of.

    They are all if the kernel says nothing.
    """
    try:
        # pathlib is slow to import
        with open(status, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            allowed = next((line for line in lines if line.startswith(_MEMORY_NODES)), None)
    except OSError:
        return -1

    if allowed is None:
        return -1
    return int(CPUSet.parse(allowed.removeprefix(_MEMORY_NODES), _MEMORY_NODES))


class MemoryRule(Record):
    """Which NUMA nodes memory may come from.

    Attributes:
        source: one of `MEMORY_FROM`: first from the nodes of the CPUs, then from the nearest; from
            these only; from wherever most is free.
        nodes: kernel ids of the only nodes that it may come from; empty: any.
        kind: one of `MEMORY_KINDS`; empty: any but the memory of GPUs.
    """

    source: str = "near"
    nodes: CPUSet = CPUSet()
    kind: str = ""

    @classmethod
    def parse(cls, source: str | None, kind: str | None) -> MemoryRule:
        """Return the rule of the options `--memory-from` and `--memory-kind`.

        Raises:
            InputError: one of them is none.
        """
        if kind is not None and kind not in MEMORY_KINDS:
            raise InputError.at("--memory-kind", f"one of {', '.join(MEMORY_KINDS)}", kind)
        if source is None or source in MEMORY_FROM:
            return cls(source or "near", kind=kind or "")

        place = f"--memory-from ({', '.join(MEMORY_FROM)}, or NUMA nodes such as 0,2)"
        return cls("near", CPUSet.parse(source, place), kind or "any")

    def open_nodes(self, machine: Machine) -> int:
        """Return the positions of the nodes that memory may come from, as a bit set.

        Raises:
            InputError: none is left.
        """
        nodes = machine.numa_nodes
        positions = bit_set(position for position, node in enumerate(nodes) if self._opens(node))
        if not positions and machine.knows_memory and self != MemoryRule():
            memory_kinds = ", ".join(
                f"{node.id}: {node.memory_kind or 'dram'}" for node in nodes if node.memory
            )
            wish = self.kind
            if self.nodes:
                kind = "any memory" if self.kind == "any" else self.kind
                wish = f"{kind} of NUMA nodes {self.nodes}"
            raise InputError.at(
                "the memory that is asked for", f"some of the machine's ({memory_kinds})", wish
            )

        return positions

    def _opens(self, node: NumaNode) -> bool:
        """Return whether memory may come from a node."""
        if not node.memory_by_type["memory"]:
            return False
        if self.nodes and node.id not in self.nodes:
            return False

        kind = _memory_kind(node)
        if not self.kind:
            return kind != "gpu"
        return self.kind in {"any", kind}


def distance(machine: Machine, first: int, second: int) -> int:
    """Return the distance between two positions.

    Where none is known, all other nodes are equally far.
    """
    row = machine.numa_nodes[first].distances
    if row:
        return row[second]
    return _SAME_NODE if first == second else _UNKNOWN_DISTANCE


def take_near(
    machine: Machine, rule: MemoryRule, home: int, free: Sequence[int], size: int
) -> dict[int, int]:
    """Return how many bytes to take from which position, nearest first.

    They are fewer than asked for where there are no more. The nodes of the CPUs come first, then
    the others by their distance to the nearest of these; of those equally far, the one where most
    is free, then the lower one.

    Args:
        machine: the machine.
        rule: which nodes may give some.
        home: positions of the nodes of the CPUs, as a bit set; 0: every node is as near.
        free: bytes that are free, by position.
        size: bytes.
    """

    def order(position: int) -> tuple[bool, int, int, int]:
        is_away = bool(home) and not home >> position & 1
        if rule.source == "any" or not is_away:
            return False, 0, -free[position], position

        length = min(
            distance(machine, home_position, position) for home_position in bit_numbers(home)
        )
        return True, length, -free[position], position

    open_nodes = rule.open_nodes(machine)
    if rule.source == "cpus" and home:
        open_nodes &= home

    sizes: dict[int, int] = {}
    for position in sorted(bit_numbers(open_nodes), key=order):
        if size > 0 and free[position] > 0:
            sizes[position] = min(size, free[position])
            size -= sizes[position]

    return sizes


def memory_shares(
    machine: Machine, parts: Sequence[int], rule: MemoryRule
) -> list[tuple[tuple[int, int], ...]]:
    """Return (kernel node id, bytes) of the memory that each part has, in proportion to its CPUs.

    The memory of a node is shared by the parts with CPUs of it. Those on a node without memory have
    a share of the nearest nodes', and memory of nodes without CPUs, where the rule names it, is
    shared by the parts on the nearest.

    Args:
        machine: the machine.
        parts: the CPUs of each part, as bit sets.
        rule: which nodes may give some.
    """
    all_cpus = union(parts)
    claims = _memory_claims(machine, all_cpus, rule)

    def weight(source: int, cpus: int) -> int:
        return sum(
            (machine.node_cpus[node] & cpus).bit_count() * cpu_weight
            for node, cpu_weight in claims[source].items()
        )

    totals = {source: weight(source, all_cpus) for source in sorted(claims)}
    shares = []
    for cpus in parts:
        part_shares = []
        for source, total in totals.items():
            part_weight = weight(source, cpus)
            if part_weight:
                node = machine.numa_nodes[source]
                part_shares.append((node.id, node.memory * part_weight // total))
        shares.append(tuple(part_shares))

    return shares


def _memory_claims(machine: Machine, cpus: int, rule: MemoryRule) -> dict[int, dict[int, int]]:
    """Return by position of the memory the weight of a CPU of each node that shares it."""
    open_nodes = rule.open_nodes(machine)
    used_nodes = [i for i, node_cpus in enumerate(machine.node_cpus) if node_cpus & cpus]
    claims: dict[int, dict[int, int]] = {}
    for node in used_nodes:
        sources: list[int] = []
        if open_nodes >> node & 1:
            sources = [node]
        elif rule.source != "cpus":
            sources = _nearest(machine, node, bit_numbers(open_nodes))
        for source in sources:
            claims.setdefault(source, {})[node] = _WHOLE // len(sources)

    if rule != MemoryRule():
        for source in bit_numbers(open_nodes):
            if not machine.node_cpus[source] and source not in claims:
                claims[source] = dict.fromkeys(_nearest(machine, source, used_nodes), _WHOLE)

    return claims


def _nearest(machine: Machine, position: int, candidates: Iterable[int]) -> list[int]:
    """Return those of some positions that are closest to one."""
    lengths = {candidate: distance(machine, position, candidate) for candidate in candidates}
    shortest = min(lengths.values(), default=0)
    return [candidate for candidate, length in lengths.items() if length == shortest]
