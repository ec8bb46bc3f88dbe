"""What of a machine work may use: its CPUs and memory by the kernel's word and the user's, and memory near CPUs."""

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

    from alignup.machine.machine import Machine

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
    alone = bit_set(machine.isolated_cpus) | bit_set(machine.nohz_full_cpus)
    cpus = machine.cpus & ~reserve & (alone if isolated else ~alone)
    if not cpus:
        asked = "--isolated" if isolated else "the machine"
        kept = (
            f"isolated: {CPUSet.from_int(alone) or 'none'}, reserved: "
            f"{CPUSet.from_int(reserve) or 'none'}"
        )
        raise InputError(f"no CPU is left for work by {asked} ({kept})")

    return machine if cpus == machine.cpus else _within(machine, cpus, -1)


def reachable(
    machine: Machine, cpus: int | None = None, memory_nodes: int | None = None
) -> Machine:
    """Return the machine with only the CPUs and memory that this process may use.

    A container, a batch system or `taskset` can allow a process less than there is.

    Args:
        machine: the machine that this process runs on.
        cpus: bit set of the allowed CPUs; None: what the kernel says.
        memory_nodes: bit set of the kernel's ids of the nodes with allowed memory; None: what the
            kernel says.

    Raises:
        InputError: no CPU is left.
    """
    if cpus is None:
        cpus = bit_set(os.sched_getaffinity(0)) | _bindable(machine)

    if memory_nodes is None:
        memory_nodes = _allowed_memory_nodes()

    if not machine.cpus & cpus:
        why = (
            "they are isolated"
            if cpus & bit_set(machine.isolated_cpus)
            else "none of them is in a NUMA node"
        )
        raise InputError(f"this process may use CPUs {CPUSet.from_int(cpus)} only, and {why}")

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
    kept = union(
        core.bits for node in machine.numa_nodes for core in node.cores if len(core.cpus) == size
    )
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

    The kernel leaves them out of every process's affinity, and tells by taking it whether a cpuset
    allows them.
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
    return (
        -1 if found is None else int(CPUSet.parse(found.removeprefix(_MEMORY_NODES), _MEMORY_NODES))
    )


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
        found = bit_set(
            position
            for position, node in enumerate(machine.numa_nodes)
            if node.memory_by_type["memory"]
            and (node.id in self.nodes if self.nodes else True)
            and self._is_of_kind(node.memory_kind or ("dram" if node.cores else ""))
        )
        if not found and machine.knows_memory and self != MemoryRule():
            known = ", ".join(
                f"{node.id}: {node.memory_kind or 'dram'}"
                for node in machine.numa_nodes
                if node.memory
            )
            wanted = f"NUMA nodes {self.nodes}" if self.nodes else self.kind
            raise InputError.at(
                "the memory that is asked for", f"some of the machine's ({known})", wanted
            )

        return found

    def _is_of_kind(self, kind: str) -> bool:
        return kind != "gpu" if not self.kind else self.kind in {"any", kind}


def distance(machine: Machine, one: int, other: int) -> int:
    """Return the distance between two positions; where none is known, all other nodes are equally far."""
    row = machine.numa_nodes[one].distances
    if row:
        return row[other]
    return _SAME_NODE if one == other else _UNKNOWN_DISTANCE


def take_near(
    machine: Machine, rule: MemoryRule, home: int, free: Sequence[int], size: int
) -> dict[int, int]:
    """Return how many bytes to take from which position, nearest first; fewer than asked for where there are no more.

    The nodes of the CPUs come first, then the others by their distance to the nearest of these; of
    those equally far, the one where most is free, then the lower one.

    Args:
        machine: the machine.
        rule: which nodes may give some.
        home: positions of the nodes of the CPUs, as a bit set; 0: every node is as near.
        free: bytes that are free, by position.
        size: bytes.
    """

    def order(position: int) -> tuple[bool, int, int, int]:
        is_away = bool(home) and not home >> position & 1
        length = (
            min((distance(machine, one, position) for one in bit_numbers(home)), default=0)
            if is_away
            else 0
        )
        return (
            is_away and rule.source != "any",
            0 if rule.source == "any" else length,
            -free[position],
            position,
        )

    places = rule.open_nodes(machine)
    if rule.source == "cpus" and home:
        places &= home

    taken: dict[int, int] = {}
    for position in sorted(bit_numbers(places), key=order):
        if size > 0 and free[position] > 0:
            taken[position] = min(size, free[position])
            size -= taken[position]

    return taken


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
    given, places = union(parts), rule.open_nodes(machine)
    used = [position for position, own in enumerate(machine.node_cpus) if own & given]
    # by place of the memory, the weight of a CPU of each node
    claims: dict[int, dict[int, int]] = {}
    for node in used:
        near = [node] if places >> node & 1 else []
        if not near and rule.source != "cpus":
            near = _nearest(machine, node, bit_numbers(places))
        for place in near:
            claims.setdefault(place, {})[node] = _WHOLE // len(near)

    if rule != MemoryRule():
        for place in bit_numbers(places):
            if not machine.node_cpus[place] and place not in claims:
                claims[place] = dict.fromkeys(_nearest(machine, place, used), _WHOLE)

    def weight(place: int, cpus: int) -> int:
        return sum(
            (machine.node_cpus[node] & cpus).bit_count() * each
            for node, each in claims[place].items()
        )

    nodes = machine.numa_nodes
    total = {place: weight(place, given) for place in sorted(claims)}
    return [
        tuple(
            (nodes[place].id, nodes[place].memory * mine // everybody)
            for place, everybody in total.items()
            if (mine := weight(place, cpus))
        )
        for cpus in parts
    ]


def _nearest(machine: Machine, one: int, others: Iterable[int]) -> list[int]:
    """Return those of some positions that are closest to one."""
    far = {other: distance(machine, one, other) for other in others}
    return [other for other, length in far.items() if length == min(far.values())]
