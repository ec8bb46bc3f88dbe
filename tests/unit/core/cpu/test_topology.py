"""The compiled topology: ints by the kernel's numbers in and out, whatever the numbers are."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.cpu.topology import CpuTopology
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Core
from alignup.providers.cpu.topology import cpu_topology
from inputs.cpu_machines import grid, machine_of, odd_machines
from inputs.strategies import examples

SPARSE = machine_of(
    [[Core((3, 70), 0), Core((4, 64), 0)], [Core((1000, 65535), 1), Core((1001, 40000), 1)]]
)


@given(odd_machines(), st.data())
@examples(100)
def test_as_many_as_are_free_are_the_free_ones(machine, data):
    topology = cpu_topology(machine)
    numbers = list(CPUSet.from_int(topology.cpus))
    free = int(CPUSet(data.draw(st.sets(st.sampled_from(numbers), min_size=1))))
    unavailable = topology.cpus & ~free
    assert topology.pack(free, free.bit_count(), unavailable) == free


class TestNumbers:
    def test_sparse_numbers_keep_their_order(self):
        assert (
            cpu_topology(SPARSE).pack(1 << 70 | 1 << 64 | 1 << 65535, 2, 0) == 1 << 65535 | 1 << 70
        )
        assert cpu_topology(SPARSE).pack(cpu_topology(SPARSE).cpus, 5, 0, spread=True) == sum(
            1 << cpu for cpu in (3, 4, 64, 70, 1000)
        )

    @pytest.mark.parametrize("machine", [grid(2, 2), SPARSE])
    def test_cpus_that_the_machine_lacks_are_left_out(self, machine):
        topology = cpu_topology(machine)
        for strange in (1 << 4999, 1 << 70000, 1 << 200000 | 1 << 5):
            assert topology.pack(topology.cpus | strange, 4, strange) == topology.pack(
                topology.cpus, 4, 0
            )
            assert topology.pack(strange & ~topology.cpus, 1, 0) == 0

    def test_numbers_may_be_sparse_and_more_than_a_word_has_bits(self):
        topology = cpu_topology(machine_of([[Core((3 * core,), 0) for core in range(70)]]))
        assert topology.pack(topology.cpus, 70, 0) == topology.cpus

    @pytest.mark.parametrize("machine", [grid(2, 2), SPARSE])
    def test_numbers_between_those_of_the_machine_add_no_cpus(self, machine):
        topology = cpu_topology(machine)
        all_but_the_lowest = topology.cpus & (topology.cpus - 1)
        assert topology.pack(all_but_the_lowest | 1 << 40, topology.cpus.bit_count(), 0) == 0

    @pytest.mark.parametrize("machine", [grid(2, 2), SPARSE])
    def test_a_negative_set_is_refused(self, machine):
        with pytest.raises(OverflowError):
            cpu_topology(machine).pack(-1, 1, 0)
        with pytest.raises(OverflowError):
            cpu_topology(machine).pack(1, 1, -(1 << 80000))

    @pytest.mark.parametrize("count", [-1, 0, 9, 1 << 80])
    def test_any_count_is_an_answer(self, count):
        assert cpu_topology(SPARSE).pack(cpu_topology(SPARSE).cpus, count, 0) == 0


@pytest.mark.parametrize("machine", [grid(4, 2, smt=2, sockets=2), SPARSE])
def test_a_pickled_or_copied_topology_answers_alike(machine):
    topology = cpu_topology(machine)
    assert copy.deepcopy(topology) is topology
    pickled = pickle.loads(pickle.dumps(topology))  # noqa: S301  # our own
    assert pickled.node_cpus == topology.node_cpus
    assert pickled.pack(topology.cpus, 3, 1) == topology.pack(topology.cpus, 3, 1)


def test_a_node_in_two_sockets_comes_once():
    shared = machine_of([[Core((0,), 0), Core((1,), 1)], [Core((2,), 0)], [Core((3,), 1)]])
    assert [node.id for node in cpu_topology(shared).node_order(0b1111)] == [1, 0, 2]


def test_nodes_with_as_many_free_cpus_come_by_id_though_another_socket_has_some_of_them():
    parts = [[Core((0,), 0)], [Core((1,), 1)], [Core((2,), 0), Core((3,), 1)]]
    assert [node.id for node in cpu_topology(machine_of(parts)).node_order(0b1010)] == [1, 2]


def test_threads_can_share_a_topology():
    topology = cpu_topology(grid(8, 16, smt=2, sockets=2, split=True))
    free = topology.cpus & ~0xF0F0F0F
    with ThreadPoolExecutor(4) as pool:
        chosen = set(pool.map(lambda _: topology.pack(free, 13, 0), range(200)))
    assert chosen == {topology.pack(free, 13, 0)}


@pytest.mark.parametrize("averages", [(0, 1), (1, 0)])
def test_averages_of_nothing_are_refused(averages):
    topology = cpu_topology(grid(1, 2))
    with pytest.raises(ValueError, match="expected CPUs"):
        CpuTopology(
            topology.outer,
            sockets_outer=topology.sockets_outer,
            node_cpus=topology.node_cpus,
            node_sockets=topology.node_sockets,
            socket_cpus=topology.socket_cpus,
            cpus_per_core=averages[0],
            cpus_per_l3_group=averages[1],
        )
