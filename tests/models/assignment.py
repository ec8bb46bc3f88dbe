"""How CPUs are chosen on any machine and with every option.

It is said with Python's ints, sorted lists and generators.

Written after the kubelet's cpu_assignment.go; `model_cpus.pack` says it once more, with sets, for
machines of equal sockets and cores.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from alignup.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from alignup.core.cpu.cpu_group import CpuGroup
    from alignup.core.cpu.topology import CpuTopology


class Pick:
    """CPUs that are being picked: what is still free, how many are still needed, what was taken.

    `barred` are CPUs that must not be taken, not even as part of a group that counts as wholly
    free.
    """

    __slots__ = ("barred", "free", "needed", "taken")

    def __init__(self, free: int, needed: int, barred: int) -> None:
        self.free = free
        self.needed = needed
        self.barred = barred
        self.taken = 0

    def take(self, cpus: int, count: int) -> None:
        """Take these CPUs, `count` in number."""
        self.taken |= cpus
        self.free &= ~cpus
        self.barred |= cpus
        self.needed -= count


def pack(
    topology: CpuTopology,
    free: int,
    count: int,
    barred: int,
    *,
    spread: bool = False,
    in_turns: bool = False,
    by_l3: bool = False,
    whole_l3_first: bool = False,
    once: bool = False,
) -> int:
    """Return `count` of the free CPUs, on as few groups as possible; 0 when there are not so many.

    Where groups count as wholly free by the average size, the result may include CPUs that are not
    free: a group larger than the average is taken whole when as many of its CPUs are free as an
    average group has. This follows the kubelet, which may thereby give away reserved CPUs or
    another container's, or count CPUs twice and give too few. Here the result may include reserved
    CPUs at most, and what is missing is asked for once more.

    Args:
        topology: the machine.
        free: the CPUs to choose from.
        count: how many.
        barred: the CPUs that must not be taken whatever happens.
        spread: single CPUs only, by ascending number within a socket
            (distribute-cpus-across-cores).
        in_turns: with `spread`, one CPU of each core in turn.
        by_l3: after sockets and nodes, prefer L3 groups (prefer-align-cpus-by-uncorecache).
        whole_l3_first: with `by_l3`, whole groups before one gives a part.
        once: ask once only.
    """
    taken = _packed(topology, free, count, barred, spread, in_turns, by_l3, whole_l3_first)
    while taken and taken.bit_count() < count and not once:
        taken |= _packed(
            topology,
            free & ~taken,
            count - taken.bit_count(),
            barred | taken,
            spread,
            in_turns,
            by_l3,
            whole_l3_first,
        )

    return taken


def _packed(
    topology: CpuTopology,
    free: int,
    count: int,
    barred: int,
    spread: bool,
    in_turns: bool,
    by_l3: bool,
    whole_l3_first: bool,
) -> int:
    """Return what is taken at a time."""
    if not 0 < count <= free.bit_count():
        return 0

    pick = Pick(free, count, barred)
    if pick.needed >= min(group.size for group in topology.outer):
        _take_whole(pick, _outer_order(topology, free))

    if pick.needed >= min(part.size for group in topology.outer for part in group.parts):
        _take_whole(pick, _inner_order(topology, pick.free))

    if by_l3 and whole_l3_first:
        _take_l3_groups_by_kind(pick, topology)
    elif by_l3 and pick.needed > 0:
        _take_l3_groups(pick, topology)

    if spread and in_turns:
        _take_cpus_in_turns(pick, topology)
        return pick.taken
    if spread:
        _take_cpus_by_number(pick, topology)
        return pick.taken
    if pick.needed >= min(cpus.bit_count() for cpus in topology.core_cpus):
        _take_whole_cores(pick, topology)

    if pick.needed > 0:
        _take_cpus_by_core(pick, topology)

    return pick.taken


def node_order(topology: CpuTopology, free: int) -> Iterable[CpuGroup]:
    """Return the NUMA nodes that have free CPUs, fewest free first.

    Socket by socket if these are larger.
    """
    if topology.sockets_outer:
        return _inner_order(topology, free)
    return _outer_order(topology, free)


def _socket_order(topology: CpuTopology, free: int) -> Iterable[CpuGroup]:
    if topology.sockets_outer:
        return _outer_order(topology, free)
    return _inner_order(topology, free)


def _lowest(cpus: int, count: int) -> int:
    """Return the `count` lowest of the CPUs; there must be so many."""
    rest = cpus
    for _ in range(count):
        rest &= rest - 1
    return cpus ^ rest


def _fewest_free_first(groups: Iterable[CpuGroup], free: int, within: int) -> list[CpuGroup]:
    """Return the groups that have free CPUs within `within`: fewest free first, then lowest id.

    The groups must come by ascending id.
    """
    ranked = [
        ((free & group.cpus).bit_count(), group.id, group)
        for group in groups
        if within & group.cpus
    ]
    if len(ranked) > 1:
        ranked.sort()
    return [group for _, _, group in ranked]


def _outer_order(topology: CpuTopology, free: int) -> list[CpuGroup]:
    return _fewest_free_first(topology.outer, free, free)


def _inner_order(topology: CpuTopology, free: int) -> Iterator[CpuGroup]:
    for group in _outer_order(topology, free):
        yield from _fewest_free_first(group.parts, free, free & group.cpus)


def _l3_order(topology: CpuTopology, free: int) -> Iterator[CpuGroup]:
    for node in node_order(topology, free):
        yield from _fewest_free_first(node.l3_groups, free, free & node.cpus)


def _take_whole(pick: Pick, groups: Iterable[CpuGroup]) -> None:
    """Take every group that is wholly free and not larger than what is needed."""
    for group in groups:
        if pick.needed < group.size or group.cpus & pick.barred:
            continue
        if (pick.free & group.cpus).bit_count() == group.whole:
            pick.take(group.cpus, group.size)


def _take_whole_cores(pick: Pick, topology: CpuTopology) -> None:
    free = pick.free
    for group in _inner_order(topology, free):
        _take_whole(pick, _fewest_free_first(group.parts, free, free))
        if pick.needed < min(cpus.bit_count() for cpus in topology.core_cpus):
            return


def _take_cpus_by_core(pick: Pick, topology: CpuTopology) -> None:
    """Take single CPUs, from the cores with the fewest free ones first."""
    free = pick.free
    for group in _inner_order(topology, free):
        for core in _fewest_free_first(group.parts, free, free):
            _take_lowest(pick, pick.free & core.cpus)
            if pick.needed < 1:
                return


def _take_cpus_by_number(pick: Pick, topology: CpuTopology) -> None:
    """Take single CPUs, socket by socket in ascending order.

    Siblings are numbered apart on most machines.
    """
    for socket in _socket_order(topology, pick.free):
        if pick.needed < 1:
            return
        _take_lowest(pick, pick.free & socket.cpus)


def _take_cpus_in_turns(pick: Pick, topology: CpuTopology) -> None:
    """Take the lowest free CPU of each core of a socket, then the next one of each, and so on.

    The core with the fewest free ones comes first.
    """
    free = pick.free
    for socket in _socket_order(topology, free):
        cores = [cpus for cpus in topology.core_cpus if cpus & free & socket.cpus]
        cores.sort(key=lambda cpus: ((cpus & free).bit_count(), cpus & -cpus))
        numbers = [list(CPUSet.from_int(cpus & free)) for cpus in cores]
        turns = zip_longest(*numbers)
        for cpu in (cpu for turn in turns for cpu in turn if cpu is not None):
            if pick.needed and pick.free >> cpu & 1:
                pick.take(1 << cpu, 1)


def _take_lowest(pick: Pick, cpus: int) -> None:
    count = cpus.bit_count()
    if count > pick.needed:
        count = pick.needed
        cpus = _lowest(cpus, count)
    pick.take(cpus, count)


def _take_l3_groups(pick: Pick, topology: CpuTopology) -> None:
    """Take whole L3 groups while they fit, and the rest from one group that can hold all of it."""
    for group in _l3_order(topology, pick.free):
        if pick.needed >= topology.cpus_per_l3_group:
            _take_each_time(pick, list(_l3_order(topology, pick.free)))
        if pick.needed < 1:
            return
        cpus = _rest_in_l3_group(pick, group, topology)
        if cpus.bit_count() == pick.needed:
            pick.take(cpus, pick.needed)
            return


def _take_each_time(pick: Pick, groups: Iterable[CpuGroup]) -> None:
    """Take whole groups; one that comes again counts again."""
    free, barred = pick.free, pick.barred
    for group in groups:
        if pick.needed >= group.size and not group.cpus & (barred | ~free):
            pick.take(group.cpus, group.size)


def _take_l3_groups_by_kind(pick: Pick, topology: CpuTopology) -> None:
    """Take whole L3 groups while they fit, then the rest from one group that can hold all of it."""
    groups = list(_l3_order(topology, pick.free))
    _take_whole(pick, groups)
    for group in groups:
        cpus = _rest_in_l3_group(pick, group, topology)
        if pick.needed and cpus.bit_count() == pick.needed:
            pick.take(cpus, pick.needed)


def _rest_in_l3_group(pick: Pick, group: CpuGroup, topology: CpuTopology) -> int:
    """Return the free CPUs of as many cores as are needed, the lowest cores of the group first.

    Where an odd number is needed and cores have several CPUs, one CPU too many is left out; no more
    than one.
    """
    cores = -(-pick.needed // topology.cpus_per_core)
    cpus = 0
    for core in group.parts:
        free = pick.free & core.cpus
        if free and cores:
            cpus |= free
            cores -= 1

    if pick.needed % 2 and topology.cpus_per_core > 1 and cpus.bit_count() > pick.needed:
        cpus ^= 1 << (cpus.bit_length() - 1)

    return cpus
