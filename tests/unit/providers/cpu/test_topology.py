"""How a machine's CPUs are grouped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alignup.errors import ConfigError
from alignup.kubernetes.versions import VersionProfile
from alignup.machine.machine import Core
from alignup.providers.cpu.topology import _irregular_size, cpu_topology
from inputs.cpu_machines import grid, machine_of


def test_sockets_are_outer_when_they_are_fewer():
    topology = cpu_topology(grid(4, 2, smt=2, sockets=2))
    assert topology.sockets_outer
    assert [group.cpus for group in topology.outer] == [0xFF, 0xFF00]
    assert [part.cpus for part in topology.outer[1].parts] == [0xF00, 0xF000]
    assert [core.cpus for core in topology.outer[0].parts[0].parts] == [0b11, 0b1100]


@pytest.mark.parametrize("sockets", [2, 4])
def test_numa_nodes_are_outer_when_sockets_are_not_fewer(sockets):
    topology = cpu_topology(grid(2, 2, sockets=sockets))
    assert not topology.sockets_outer
    assert [group.cpus for group in topology.outer] == [0b11, 0b1100]
    assert sum(len(group.parts) for group in topology.outer) == sockets


def test_nodes_keep_their_position_when_some_have_no_cpus():
    topology = cpu_topology(machine_of([[Core((0, 1), 0)], [], [Core((2, 3), 5)]], ids=[0, 4, 9]))
    assert topology.node_cpus == (0b11, 0, 0b1100)
    assert topology.numa_nodes == 2
    assert topology.socket_cpus == (0b11, 0b1100)
    assert topology.node_sockets == (0b11, 0, 0b1100)


def test_cores_go_by_their_lowest_cpu():
    topology = cpu_topology(machine_of([[Core((3, 7), 0), Core((1, 9), 0)]]))
    assert [core.id for core in topology.outer[0].parts[0].parts] == [1, 3]
    assert topology.core_cpus == (1 << 1 | 1 << 9, 1 << 3 | 1 << 7)


def test_sizes_of_sockets_and_cores_are_averages_rounded_down():
    uneven = machine_of(
        [[Core((0, 1), 0), Core((2, 3), 0)], [Core((4,), 1), Core((5,), 1), Core((6,), 1)]]
    )
    topology = cpu_topology(uneven)
    assert topology.cpus_per_core == 1
    sockets = [part for node in topology.outer for part in node.parts]
    assert [(socket.size, socket.whole) for socket in sockets] == [(4, 3), (3, 3)]
    assert [(node.size, node.whole) for node in topology.outer] == [(4, 4), (3, 3)]


def test_from_1_38_on_sockets_and_cores_have_their_own_size():
    uneven = machine_of(
        [[Core((0, 1), 0), Core((2, 3), 0)], [Core((4,), 1), Core((5,), 1), Core((6,), 1)]]
    )
    topology = cpu_topology(uneven, VersionProfile(groups_free_by_own_size=True))
    sockets = [part for node in topology.outer for part in node.parts]
    cores = [core for socket in sockets for core in socket.parts]
    assert [socket.whole for socket in sockets] == [4, 3]
    assert [core.whole for core in cores] == [2, 2, 1, 1, 1]
    assert topology.cpus_per_core == 1
    assert topology is not cpu_topology(uneven)


@pytest.mark.parametrize(
    ("reserved", "largest", "profile"),
    [
        (0b1, 3, None),  # socket 0 has 4 CPUs, and counts as free while 3 of them are
        (0b10000, None, None),  # socket 1 is smaller than the average
        (0b1, None, VersionProfile(groups_free_by_own_size=True)),
    ],
)
def test_requests_that_can_take_cpus_that_were_not_counted_are_known(reserved, largest, profile):
    uneven = machine_of([[Core((cpu,), 0) for cpu in range(4)], [Core((4,), 1), Core((5,), 1)]])
    assert _irregular_size(cpu_topology(uneven, profile), reserved) == (largest and largest + 1)


def test_without_known_caches_a_socket_is_one_l3_group():
    topology = cpu_topology(grid(4, 2, sockets=2))
    nodes = [node for socket in topology.outer for node in socket.parts]
    assert [[group.id for group in node.l3_groups] for node in nodes] == [[0], [0], [1], [1]]
    assert topology.cpus_per_l3_group == 4


def test_machines_that_are_equal_share_one_topology():
    assert cpu_topology(grid(2, 2)) is cpu_topology(grid(2, 2))


def test_a_machine_without_cpus_is_refused():
    with pytest.raises(ConfigError, match="at least one CPU"):
        cpu_topology(machine_of([[], []]))


def test_machines_that_differ_elsewhere_share_one_topology():
    machine = grid(2, 2)
    larger = replace(
        machine, numa_nodes=tuple(replace(node, memory=1 << 40) for node in machine.numa_nodes)
    )
    assert cpu_topology(larger) is cpu_topology(machine)
    assert cpu_topology(grid(2, 2, sockets=2)) is not cpu_topology(machine)


def test_fewer_cpus_than_cores_are_refused():
    with pytest.raises(ConfigError, match="expected a CPU for each of its 2 cores, got 1"):
        cpu_topology(machine_of([[Core((0,), 0), Core((0,), 1)]]))
