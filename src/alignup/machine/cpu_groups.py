"""Builds core records from the groups of CPUs that a source found: cores, sockets and L3 caches.

How the groups are found is left to the sources, sysfs and hwloc. Groups are bit sets of CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.machine.bits import bit_numbers
from alignup.machine.numa_node import Core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def make_cores(groups: Iterable[int], sockets: Mapping[int, int], l3_groups: Iterable[int]) -> tuple[Core, ...]:
    """Return a core for each group of CPUs, by lowest CPU.

    The socket and the L3 cache of a core are those of its lowest CPU. A core whose CPU is in no socket is in
    socket 0; one whose CPU shares no L3 cache has none.

    Args:
        groups: the CPUs of each core; empty ones are ignored.
        sockets: the CPUs of each socket, by the number of the socket.
        l3_groups: the CPUs that share each L3 cache.
    """
    socket_of = _group_of_cpu(sockets.items())
    l3_of = _group_of_cpu(enumerate(l3_groups))
    cores = []
    for group in sorted(filter(None, groups), key=lambda group: (group & -group).bit_length()):
        first = (group & -group).bit_length() - 1
        cores.append(Core.of_bits(group, socket_of.get(first, 0), l3_of.get(first)))
    return tuple(cores)


def number_groups(groups: Iterable[tuple[int | None, int]]) -> dict[int, int]:
    """Return groups of CPUs by a number that is unique.

    A group that has no number, or one that an earlier group has, gets the lowest that no group has.

    Args:
        groups: the number of each group, as far as it has one, and its CPUs.
    """
    numbered: dict[int, int] = {}
    nameless: list[int] = []
    for number, group in groups:
        if number is None or number in numbered:
            nameless.append(group)
        else:
            numbered[number] = group
    free = 0
    for group in nameless:
        while free in numbered:
            free += 1
        numbered[free] = group
    return numbered


def _group_of_cpu(groups: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the number of the group that each CPU is in: of several, the last."""
    found: dict[int, int] = {}
    seen = 0
    for number, group in reversed(list(groups)):
        for cpu in bit_numbers(group & ~seen):
            found[cpu] = number
        seen |= group
    return found
