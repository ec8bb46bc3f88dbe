"""Memory near CPUs: which NUMA nodes it comes from, in which order, and what share of it a part of a machine has."""

from __future__ import annotations

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, bit_set, union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

    from alignup.machine.machine import Machine

MEMORY_FROM: Final = ("near", "cpus", "any")
MEMORY_KINDS: Final = ("dram", "hbm", "any")
_SAME_NODE: Final = 10
_UNKNOWN_DISTANCE: Final = 20
_WHOLE: Final = 720_720
"""The weight of a CPU where shares are counted: it can be halved, and divided by every number up to 16."""


class MemoryRule(Record):
    """Which NUMA nodes memory may come from."""

    source: str = "near"
    """One of `MEMORY_FROM`: first from the nodes of the CPUs, then from the nearest; from these only; from wherever
    most is free."""
    nodes: CPUSet = CPUSet()
    """Kernel ids of the only nodes that it may come from; empty: any."""
    kind: str = ""
    """One of `MEMORY_KINDS`; empty: any but the memory of GPUs."""

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
            known = ", ".join(f"{node.id}: {node.memory_kind or 'dram'}" for node in machine.numa_nodes if node.memory)
            wanted = f"NUMA nodes {self.nodes}" if self.nodes else self.kind
            raise InputError.at("the memory that is asked for", f"some of the machine's ({known})", wanted)
        return found

    def _is_of_kind(self, kind: str) -> bool:
        return kind != "gpu" if not self.kind else self.kind in {"any", kind}


def distance(machine: Machine, one: int, other: int) -> int:
    """Return the distance between two positions; where none is known, all other nodes are equally far."""
    row = machine.numa_nodes[one].distances
    if row:
        return row[other]
    return _SAME_NODE if one == other else _UNKNOWN_DISTANCE


def take_near(machine: Machine, rule: MemoryRule, home: int, free: Sequence[int], size: int) -> dict[int, int]:
    """Return how many bytes to take from which position, nearest first; fewer than asked for where there are no more.

    The nodes of the CPUs come first, then the others by their distance to the nearest of these; of those equally far,
    the one where most is free, then the lower one.

    Args:
        machine: the machine.
        rule: which nodes may give some.
        home: positions of the nodes of the CPUs, as a bit set; 0: every node is as near.
        free: bytes that are free, by position.
        size: bytes.
    """

    def order(position: int) -> tuple[bool, int, int, int]:
        is_away = bool(home) and not home >> position & 1
        length = min((distance(machine, one, position) for one in bit_numbers(home)), default=0) if is_away else 0
        return is_away and rule.source != "any", 0 if rule.source == "any" else length, -free[position], position

    places = rule.open_nodes(machine)
    if rule.source == "cpus" and home:
        places &= home
    taken: dict[int, int] = {}
    for position in sorted(bit_numbers(places), key=order):
        if size > 0 and free[position] > 0:
            taken[position] = min(size, free[position])
            size -= taken[position]
    return taken


def memory_shares(machine: Machine, parts: Sequence[int], rule: MemoryRule) -> list[tuple[tuple[int, int], ...]]:
    """Return (kernel node id, bytes) of the memory that each part has, in proportion to its CPUs.

    The memory of a node is shared by the parts with CPUs of it. Those on a node without memory have a share of the
    nearest nodes', and memory of nodes without CPUs, where the rule names it, is shared by the parts on the nearest.

    Args:
        machine: the machine.
        parts: the CPUs of each part, as bit sets.
        rule: which nodes may give some.
    """
    given, places = union(parts), rule.open_nodes(machine)
    used = [position for position, own in enumerate(machine.node_cpus) if own & given]
    claims: dict[int, dict[int, int]] = {}  # by place of the memory, the weight of a CPU of each node
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
        return sum((machine.node_cpus[node] & cpus).bit_count() * each for node, each in claims[place].items())

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
