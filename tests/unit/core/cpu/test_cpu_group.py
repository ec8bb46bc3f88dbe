"""The record of CPUs that belong together, and what the groups of any machine have in common."""

from __future__ import annotations

import pytest
from hypothesis import given

from alignup.core.cpu.cpu_group import CpuGroup
from alignup.providers.cpu.topology import cpu_topology
from inputs.cpu_machines import grid, odd_machines
from inputs.strategies import examples


def groups_below(group):
    """Return a group and all those that are part of it, of any kind."""
    return [group, *(below for part in group.parts for below in groups_below(part))]


def test_a_group_is_a_value() -> None:
    core = CpuGroup(id=0, cpus=0b11, size=2, whole=2)

    assert core == CpuGroup(0, 0b11, 2, 2)
    assert hash(core) == hash(CpuGroup(0, 0b11, 2, 2, (), ()))
    assert core != CpuGroup(0, 0b11, 2, 1)
    assert (core.parts, core.l3_groups) == ((), ())
    with pytest.raises((AttributeError, TypeError)):
        core.cpus = 0b1


@examples(80)
@given(odd_machines())
def test_groups_of_any_machine_are_made_of_their_parts(machine) -> None:
    """Parts lie in order of their ids, and have CPUs in the group; all of them are all of it."""
    topology = cpu_topology(machine)
    for outer in topology.outer:
        for group in groups_below(outer):
            assert group.size == group.cpus.bit_count() > 0
            for parts in (group.parts, group.l3_groups):
                assert [part.id for part in parts] == sorted({part.id for part in parts})
                assert all(part.cpus & group.cpus for part in parts)

            covered = 0
            for part in group.parts:
                covered |= part.cpus
            assert not group.parts or not group.cpus & ~covered


@pytest.mark.parametrize("sockets", [1, 2, 4])
def test_each_core_of_an_even_machine_is_in_one_group_of_a_kind(sockets: int) -> None:
    """Two NUMA nodes of 4 cores with 2 CPUs: from the outside in, sizes add up to the machine."""
    topology = cpu_topology(grid(2, 4, smt=2, sockets=sockets))
    levels = [list(topology.outer)]
    while levels[-1][0].parts:
        levels.append([part for group in levels[-1] for part in group.parts])

    assert [sum(group.size for group in level) for level in levels] == [16, 16, 16]
    assert [core.cpus for core in levels[-1]] == [0b11 << 2 * core for core in range(8)]
    assert all(group.whole == group.size for level in levels for group in level)
