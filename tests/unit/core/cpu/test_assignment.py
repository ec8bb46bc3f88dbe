"""Which CPUs are taken: examples, the plain models, and what must hold on any machine."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.kubernetes.versions import VersionProfile
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Core
from alignup.providers.cpu.topology import cpu_topology
from inputs.cpu_machines import grid, machine_of, machines, odd_machines
from inputs.strategies import examples, seeds
from models import assignment as model_assignment
from models import cpus as model_cpus

OWN_SIZE = VersionProfile(groups_free_by_own_size=True)
IN_TURNS = {"spread": True, "in_turns": True}

# Two NUMA nodes that share three L3 caches: 0-1 and 6-7, 2-3 and 8-9, 4-5 and 10-11.
ACROSS = machine_of(
    [Core((6 * node + core,), node, core // 2) for core in range(6)] for node in range(2)
)
ACROSS_FREE = "0-1,3-7,9-10"


def bits(cpus: str) -> int:
    return int(CPUSet.parse(cpus))


def taken(machine, free, count, **options):
    return str(CPUSet.from_int(cpu_topology(machine).pack(bits(free), count, 0, **options)))


class TestPacking:
    def test_a_whole_socket_comes_before_nodes(self):
        assert taken(grid(4, 2, sockets=2), "1-7", 4) == "4-7"

    def test_a_whole_node_comes_before_cores(self):
        assert taken(grid(4, 4, sockets=2), "1-15", 4) == "4-7"

    def test_a_whole_node_is_taken_though_sockets_are_smaller(self):
        assert taken(grid(2, 4, sockets=4), "1-7", 4) == "4-7"

    def test_a_whole_socket_inside_a_node(self):
        assert taken(grid(2, 4, sockets=4), "1-5", 2) == "4-5"
        assert taken(grid(2, 4, sockets=4), "0-2,4-7", 2) == "0-1"

    def test_whole_cores_come_before_single_cpus(self):
        assert taken(grid(1, 4, smt=2), "1,3-7", 2) == "4-5"

    def test_the_fullest_node_gives_first(self):
        assert taken(grid(2, 4), "0-2,4-5", 2) == "4-5"

    def test_the_fullest_core_gives_single_cpus(self):
        assert taken(grid(1, 3, smt=4), "0-3,5-7,10-11", 1) == "10"

    def test_siblings_that_are_numbered_apart(self):
        assert taken(grid(1, 4, smt=2, split=True), "0-7", 3) == "0-1,4"

    def test_no_cpu_is_taken_twice_by_groups_of_which_one_is_larger_than_the_average(self):
        """Socket 0 is taken as a whole.

        Node 0 then has as many free CPUs as the average node, and counts as whole.
        """
        machine = machine_of([[Core((0,), 0), Core((1,), 1), Core((2,), 2)], [Core((3,), 0)]])
        assert taken(machine, "0-1,3", 3) == "0-1,3"

    def test_smt_of_four(self):
        assert taken(grid(1, 3, smt=4), "1-11", 5) == "1,4-7"

    def test_the_node_of_the_fullest_socket_gives_first(self):
        # node 3 has fewer free CPUs than node 2, but more than any of the other socket
        assert taken(grid(4, 4, sockets=2), "0,4,8-11,12-13", 1) == "0"

    @pytest.mark.parametrize("count", [0, 5])
    def test_nothing_is_taken_when_nothing_is_asked_or_too_much(self, count):
        assert taken(grid(1, 4), "0-3", count) in ("", "0-3")
        assert cpu_topology(grid(1, 4)).pack(0b111, 4, 0) == 0


class TestSpread:
    def test_cpus_come_by_number_within_the_fullest_socket(self):
        assert taken(grid(2, 2, smt=2, sockets=2, split=True), "0-6", 2, spread=True) == "2-3"

    def test_more_than_a_socket_has(self):
        assert taken(grid(2, 2, smt=2, sockets=2, split=True), "1-7", 6, spread=True) == "1-4,6-7"
        assert (
            taken(grid(2, 2, smt=2, sockets=2, split=True), "0-2,4-6", 4, spread=True) == "0-1,4-5"
        )
        assert taken(grid(2, 2, smt=2, sockets=2, split=True), "1-6", 4, spread=True) == "1-2,4-5"

    def test_the_fullest_of_the_sockets_in_a_node_gives_first(self):
        assert taken(grid(1, 4, sockets=2), "0-1,3", 1, spread=True) == "3"

    def test_whole_groups_are_still_taken_whole(self):
        assert taken(grid(2, 2, sockets=2), "0-3", 3, spread=True) == "0-2"


class TestSpreadInTurns:
    def test_one_cpu_of_each_core_before_a_second_of_any(self):
        assert taken(grid(1, 3, smt=2), "2-5", 2, **IN_TURNS) == "2,4"
        assert taken(grid(1, 3, smt=2), "2-5", 3, **IN_TURNS) == "2-4"

    def test_the_fullest_core_gives_first(self):
        assert taken(grid(1, 3, smt=2), "0-1,3-5", 1, **IN_TURNS) == "3"
        assert taken(grid(1, 3, smt=2), "0-1,3-5", 3, **IN_TURNS) == "0,3-4"

    def test_cores_of_a_socket_count_whichever_node_they_are_in(self):
        # node 0 has fewer free CPUs, but the core with the fewest is in node 1
        assert taken(grid(2, 2, smt=2, sockets=1), "0-1,4-5,7", 1, **IN_TURNS) == "7"

    def test_sockets_come_one_after_the_other(self):
        assert taken(grid(2, 2, smt=2, sockets=2), "0-7", 5, **IN_TURNS) == "0-4"
        assert taken(grid(2, 2, smt=2, sockets=2), "1-7", 4, **IN_TURNS) == "4-7"


class TestL3Groups:
    def test_whole_groups_while_they_fit_and_the_rest_from_one(self):
        assert taken(grid(1, 8, smt=2, l3_groups=4), "1-15", 6, by_l3=True) == "4-9"

    def test_the_rest_comes_from_a_group_that_holds_all_of_it(self):
        assert taken(grid(1, 8, l3_groups=2), "3,5-7", 2, by_l3=True) == "5-6"
        assert taken(grid(1, 8, l3_groups=2), "3,5-7", 2) == "3,5"

    def test_without_such_a_group_cores_are_taken_from_several(self):
        assert taken(grid(1, 8, l3_groups=4), "1,3,5,7", 2, by_l3=True) == "1,3"

    def test_an_odd_number_leaves_out_one_sibling(self):
        assert taken(grid(1, 8, smt=2, l3_groups=2), "2-15", 3, by_l3=True) == "2-4"

    def test_an_odd_number_of_larger_cores_leaves_out_no_more_than_one(self):
        assert taken(grid(1, 4, smt=4, l3_groups=2), "1-15", 5, by_l3=True) == "1,4-7"

    def test_an_even_number_too_many_is_no_fit(self):
        assert taken(grid(1, 4, smt=4, l3_groups=2), "1-7,8-15", 2, by_l3=True) == "1-2"

    def test_whole_groups_smaller_than_the_average_come_first(self):
        """Groups of 8, 2 and 2 CPUs: three CPUs fit into the first, and are more than the others.

        Taken by the average of four, no whole group fits.
        """
        machine = machine_of([[Core((cpu,), 0, max(0, cpu // 2 - 3)) for cpu in range(12)]])
        assert taken(machine, "0-11", 3, by_l3=True) == "0-2"
        assert taken(machine, "0-11", 3, by_l3=True, whole_l3_first=True) == "8-10"

    def test_a_group_of_two_nodes_that_is_counted_twice_is_not_enough(self):
        """Half of the CPUs are taken at a time, and the rest of them once more."""
        assert taken(ACROSS, ACROSS_FREE, 8, by_l3=True, once=True) == "0-1,6-7"
        assert taken(ACROSS, ACROSS_FREE, 8, by_l3=True) == "0-1,3-4,6-7,9-10"
        assert (
            taken(ACROSS, ACROSS_FREE, 8, by_l3=True, whole_l3_first=True, once=True)
            == "0-1,3-4,6-7,9-10"
        )


class TestUnevenMachines:
    def test_a_larger_core_is_whole_when_the_average_is_free(self):
        hybrid = machine_of([[Core((0, 1), 0), Core((2,), 0), Core((3,), 0)]])
        assert cpu_topology(hybrid).cpus_per_core == 1
        assert cpu_topology(hybrid).pack(bits("1-3"), 2, 0) == bits("0-1")

    def test_by_its_own_size_it_is_not(self):
        hybrid = machine_of([[Core((0, 1), 0), Core((2,), 0), Core((3,), 0)]])
        topology = cpu_topology(hybrid, OWN_SIZE)
        assert topology.pack(bits("1-3"), 2, 0) == bits("2-3")
        assert topology.pack(bits("0-3"), 2, 0) == bits("2-3")
        assert topology.pack(bits("0-3"), 3, 0) == bits("0,2-3")

    def test_but_never_with_cpus_that_somebody_holds(self):
        hybrid = machine_of([[Core((0, 1), 0), Core((2,), 0), Core((3,), 0)]])
        assert cpu_topology(hybrid).pack(bits("1-3"), 2, bits("0")) == bits("2-3")


@st.composite
def requests(draw, *, even):
    machine = draw(machines(even=even))
    cpus = sorted(cpu for node in machine.numa_nodes for core in node.cores for cpu in core.cpus)
    free = draw(st.sets(st.sampled_from(cpus), min_size=1))
    return machine, free, draw(st.integers(1, len(free)))


@given(requests(even=True))
@examples(60)
def test_packing_agrees_with_the_plain_model(case):
    machine, free, count = case
    got = cpu_topology(machine).pack(int(CPUSet(free)), count, 0)
    assert set(CPUSet.from_int(got)) == model_cpus.pack(machine, free, count)


@st.composite
def ways(draw):
    """Draw what an option or a release does otherwise."""
    names = ("spread", "in_turns", "by_l3", "whole_l3_first")
    return {name: draw(st.booleans()) for name in names}


@given(requests(even=False), ways(), st.booleans())
@examples(60)
def test_as_many_as_asked_and_nothing_that_is_held(case, ways_taken, own):
    machine, free, count = case
    topology = cpu_topology(machine, OWN_SIZE if own else None)
    unavailable = topology.cpus & ~int(CPUSet(free))
    got = topology.pack(topology.cpus & ~unavailable, count, unavailable, **ways_taken)
    assert got.bit_count() == count
    assert not got & unavailable


@st.composite
def odd_requests(draw):
    topology = cpu_topology(
        draw(odd_machines() | machines()), draw(st.sampled_from([None, OWN_SIZE]))
    )
    cpus = list(CPUSet.from_int(topology.cpus))
    free = int(CPUSet(draw(st.sets(st.sampled_from(cpus), min_size=len(cpus) // 2))))
    unavailable = int(CPUSet(draw(st.sets(st.sampled_from(cpus), max_size=4))))
    if draw(st.booleans()):
        unavailable |= topology.cpus & ~free
    return topology, free, draw(st.integers(0, free.bit_count() + 1)), unavailable


@given(odd_requests(), ways(), st.booleans())
@examples(150)
def test_any_request_agrees_with_the_model_in_python(case, ways_taken, once):
    topology, free, count, unavailable = case
    got = topology.pack(free, count, unavailable, once=once, **ways_taken)
    assert got == model_assignment.pack(topology, free, count, unavailable, once=once, **ways_taken)


@given(odd_machines(), st.randoms(use_true_random=False))
@examples(60)
def test_by_own_size_only_free_cpus_are_taken(machine, rng):
    topology = cpu_topology(machine, OWN_SIZE)
    numbers = list(CPUSet.from_int(topology.cpus))
    free = int(CPUSet(rng.sample(numbers, rng.randint(1, len(numbers)))))
    count = rng.randint(1, free.bit_count())
    got = topology.pack(free, count, 0)
    assert got.bit_count() == count
    assert not got & ~free


@given(odd_requests())
@examples(60)
def test_nodes_come_in_the_order_of_the_model(case):
    topology, free, _, _ = case
    expected = dict.fromkeys(node.id for node in model_assignment.node_order(topology, free))
    assert [node.id for node in topology.node_order(free)] == list(expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, 20))
def test_large_machines_agree_with_the_model_in_python(seed):
    rng = random.Random(seed)
    machine = grid(
        rng.choice([1, 2, 4, 8]),
        rng.choice([8, 12, 40]),
        smt=rng.choice([1, 2, 4]),
        sockets=rng.choice([1, 2, 4]),
        split=rng.random() < 0.5,
        l3_groups=rng.choice([0, 1, 2, 4]),
    )
    topology = cpu_topology(machine)
    numbers = list(CPUSet.from_int(topology.cpus))

    for _ in range(300):
        free = int(CPUSet(rng.sample(numbers, rng.randint(1, len(numbers)))))
        if rng.random() < 0.3:
            free |= topology.node_cpus[0]

        count = rng.randint(1, rng.choice([4, 16, free.bit_count()]))
        options = {
            "spread": rng.random() < 0.3,
            "in_turns": rng.random() < 0.5,
            "by_l3": rng.random() < 0.5,
            "whole_l3_first": rng.random() < 0.5,
        }
        unavailable = topology.cpus & ~free
        got = topology.pack(free, count, unavailable, **options)
        assert got == model_assignment.pack(topology, free, count, unavailable, **options)
