"""How CPUs are spread over NUMA nodes: examples, and every combination tried."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError
from alignup.kubernetes.policy_options import CpuOptions
from alignup.kubernetes.versions import VersionProfile
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Core
from alignup.node import Node
from alignup.providers.cpu.distribution import (
    Plan,
    _best_balance,
    _hand_out,
    distribute,
    never_ends,
    plan_distribution,
)
from alignup.providers.cpu.topology import cpu_topology
from inputs.cpu_machines import grid, machine_of
from inputs.strategies import examples
from models import cpus as model_cpus

# of four NUMA nodes, for align-by-socket as kubelets from 1.37 on combine it with the distribution
SOCKETS = [frozenset({0}), frozenset({1}), frozenset({0}), frozenset({1})]


def distributed(topology, free, count, *, whole_cores):
    """Return what a kubelet before 1.37 takes of the free CPUs."""
    options, profile = (
        CpuOptions(full_pcpus_only=whole_cores),
        VersionProfile(distribution_prefers_one_socket=False),
    )
    return distribute(topology, free, count, 0, options, profile)


def spread(machine, free, count, group_size=1):
    bits = int(CPUSet.parse(free))
    return str(
        CPUSet.from_int(distributed(cpu_topology(machine), bits, count, whole_cores=group_size > 1))
    )


def test_one_node_is_enough():
    assert spread(grid(2, 4), "0-7", 4) == "0-3"


def test_more_than_one_node_holds_is_spread_evenly():
    assert spread(grid(2, 4), "0-7", 6) == "0-2,4-6"


def test_the_remainder_goes_where_it_leaves_the_best_balance():
    assert spread(grid(2, 4), "0-7", 5) == "0-2,4-5"
    assert spread(grid(2, 4), "1-7", 5) == "1-2,4-6"


def test_whole_cores_are_kept_together():
    assert spread(grid(2, 4, smt=2), "0-15", 12, 2) == "0-5,8-13"
    assert spread(grid(2, 4, smt=2), "0-15", 10, 2) == "0-5,8-11"


def test_what_is_no_multiple_of_a_core_is_packed():
    assert spread(grid(2, 4, smt=2), "0-15", 9, 2) == "0-8"


def test_nodes_that_cannot_share_evenly_are_packed():
    assert spread(grid(2, 4), "0-3,4", 5) == "0-4"
    assert spread(grid(3, 4), "0-3,4,8", 6) == "0-4,8"


def test_nothing_when_there_are_too_few_and_nothing_for_nothing():
    assert spread(grid(2, 4), "0-3", 5) == ""
    assert spread(grid(2, 4), "0-3", 0) == ""


def test_the_nodes_of_a_socket_that_has_less_come_first():
    assert spread(grid(4, 2, sockets=2), "0-3,5-7", 4) == "0-1,6-7"
    assert spread(grid(4, 2), "0-3,5-7", 4) == "0-3"


def test_a_choice_of_four_nodes_is_remembered_wrongly():
    # the first three nodes stay, the fourth becomes the last that was tried
    plan = plan_distribution([4, 4, 4, 4, 3, 3, 3, 3], 4, 12, 1)
    assert plan is not None
    assert plan.nodes == (0, 1, 2, 7)


def test_from_1_38_on_a_choice_of_four_nodes_is_remembered():
    plan = plan_distribution([4, 4, 4, 4, 3, 3, 3, 3], 4, 12, 1, forgets=False)
    assert plan is not None
    assert plan.nodes == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("hinted_nodes", "cpus"),
    [
        (0, "0-3"),
        (1, "0-3"),
        (2, "0-1,4-5"),
        (3, "0-1,4,8"),
        (4, "0-3"),  # more nodes than there are
    ],
)
def test_from_1_38_on_cpus_span_as_many_nodes_as_the_affinity(hinted_nodes: int, cpus: str):
    topology = cpu_topology(grid(3, 4))
    profile = VersionProfile(distribution_spans_affinity=True)
    got = distribute(topology, topology.cpus, 4, 0, CpuOptions(), profile, hinted_nodes)
    assert str(CPUSet.from_int(got)) == cpus

    before = distribute(topology, topology.cpus, 4, 0, CpuOptions(), VersionProfile(), hinted_nodes)
    assert str(CPUSet.from_int(before)) == "0-3"


def test_fewer_cpus_than_nodes_of_the_affinity_are_spread_as_ever():
    topology = cpu_topology(grid(3, 4, smt=2))
    profile, options = (
        VersionProfile(distribution_spans_affinity=True),
        CpuOptions(full_pcpus_only=True),
    )
    got = distribute(topology, topology.cpus, 4, 0, options, profile, 3)
    assert str(CPUSet.from_int(got)) == "0-3"


def test_search_stops_one_choice_after_perfect_balance():
    plan = plan_distribution([3, 3, 3, 3, 1, 1], 4, 8, 1)
    assert plan is not None
    assert (plan.balance, plan.nodes) == (0, (0, 1, 2, 4))


def test_perfect_balance_that_is_found_last_is_kept():
    plan = plan_distribution([1, 3, 3, 3, 3], 4, 8, 1)
    assert plan is not None
    assert (plan.balance, plan.nodes) == (0, (1, 2, 3, 4))


def test_a_wrong_memory_of_nodes_that_have_too_few_cpus_is_a_refusal():
    small = [[Core((12 + 2 * i + k,), 1) for k in range(2)] for i in range(7)]
    machine = machine_of([[Core((3 * i + k,), 0) for k in range(3)] for i in range(4)] + small)
    with pytest.raises(
        AllocationError, match="expected 12 CPUs, 3 from each of NUMA nodes 0, 1, 2, 10"
    ):
        spread(machine, "0-25", 12)


def test_a_remainder_that_its_nodes_cannot_give_is_a_refusal_too():
    topology = cpu_topology(grid(1, 3))
    with pytest.raises(AllocationError, match="got 3"):
        _hand_out(topology, 0b111, 4, 0, topology.outer, Plan((0,), 2, (0,), 0), 1)


def test_many_nodes_with_free_cpus_of_a_few_kinds():
    plan = plan_distribution([16] * 34, 17, 17 * 16, 1)
    assert plan is not None
    assert plan.share == 16


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=7),
    st.integers(1, 7),
    st.integers(1, 30),
    st.sampled_from([1, 1, 2, 4]),
    st.booleans(),
)
@examples(200)
def test_the_best_plan_is_what_trying_everything_finds(
    free_counts, size, groups, group_size, forgets
):
    size = min(size, len(free_counts))
    count = groups * group_size
    plan = plan_distribution(free_counts, size, count, group_size, forgets=forgets)
    described = None if plan is None else (plan.nodes, plan.share, plan.remainder_nodes)
    assert described == model_cpus.plan(free_counts, size, count, group_size, forgets=forgets)


@given(st.integers(2, 5), st.integers(1, 4), st.sampled_from([1, 2]), st.data())
@examples(100)
def test_an_even_spread_differs_by_one_group_at_most_on_an_empty_machine(nodes, cores, smt, data):
    count = data.draw(st.integers(1, nodes * cores)) * smt
    topology = cpu_topology(grid(nodes, cores, smt=smt))
    try:
        got = distributed(topology, topology.cpus, count, whole_cores=True)
    except AllocationError:
        assert nodes > 3
        return
    assert got.bit_count() == count
    given_by = [(got & cpus).bit_count() for cpus in topology.node_cpus if got & cpus]
    assert nodes > 3 or max(given_by) - min(given_by) <= smt


def uneven_node(free, cpus):
    """Return a node that spreads CPUs, with `cpus` on each NUMA node.

    Of these `free` are not reserved.
    """
    nodes, reserved = [], []
    for node, count in enumerate(free):
        numbers = list(range(node * cpus, (node + 1) * cpus))
        reserved += numbers[count:]
        cores = [{"cpus": [cpu], "socket": 0} for cpu in numbers]
        nodes.append({"id": node, "memory": 1 << 30, "cores": cores})
    kubelet = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"},
        "reservedSystemCPUs": ",".join(map(str, reserved)),
    }
    return Node.from_dict({"machine": {"numaNodes": nodes}, "kubelet": kubelet})


def test_deviations_are_rounded_half_up_before_they_are_compared():
    """Taking a CPU of a node with 127 leaves 62.625 thousandths, and is better.

    Cut off, it would be a tie.
    """
    node = uneven_node([1] * 8 + [126] * 7 + [127], 127)
    limits = {"cpu": "1", "memory": "1Mi"}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    assert str(node.admit(pod).containers["c"].cpus) == str(15 * 127)


def test_means_are_rounded_half_up_before_deviations_are_taken_from_them():
    """A tie of 51.282 thousandths.

    With the mean cut off, taking a CPU of the last node would be better.
    """
    plan = plan_distribution([0] * 8 + [127] * 30 + [128], 1, 1, 1)
    assert plan is not None
    assert (plan.nodes, plan.balance) == ((8,), 51282)


@pytest.mark.parametrize(
    ("free_counts", "remainder", "balance"),
    [
        ([3, 3], 6, None),  # six are free, of which two are halves of cores
        ([4, 2], 6, 0),
        ([2, 2], 6, -1),
        ([3, 3], 4, 0),
        ([3, 3], 0, 0),
    ],
)
def test_a_remainder_of_halves_has_no_end(
    free_counts: list[int], remainder: int, balance: int | None
) -> None:
    assert _best_balance(free_counts, (0, 1), remainder, 2) == balance


@given(
    free_counts=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    groups=st.integers(1, 6),
    group_size=st.sampled_from([1, 2, 4]),
)
def test_a_remainder_has_no_end_where_nodes_have_enough_but_not_in_whole_groups(
    free_counts: list[int], groups: int, group_size: int
) -> None:
    """By plain counting over all sets of nodes that have a whole group."""
    remainder = groups * group_size
    able = [number for number, count in enumerate(free_counts) if count >= group_size]
    has_no_end = any(
        sum(free_counts[number] for number in chosen) >= remainder
        and sum(free_counts[number] // group_size for number in chosen) < groups
        for size in range(1, len(able) + 1)
        for chosen in combinations(able, size)
    )
    everybody = range(len(free_counts))
    assert (_best_balance(free_counts, everybody, remainder, group_size) is None) == has_no_end


@given(
    nodes=st.integers(1, 4), cores=st.integers(1, 4), free=st.integers(0), count=st.integers(0, 32)
)
def test_a_distribution_of_whole_cores_ends(nodes: int, cores: int, free: int, count: int) -> None:
    """Where both threads of each core are free, or neither, whatever is asked for."""
    topology = cpu_topology(grid(nodes, cores, smt=2))
    whole = sum(0b11 << 2 * core for core in range(nodes * cores) if free >> core & 1)
    assert not never_ends(topology, whole, count, 2)


@pytest.mark.parametrize(
    ("free", "is_endless"),
    [
        ("0-4,9,11-12,14-15,17-19,21,24-25,27", True),  # all four nodes, with 2 + 2 + 2 + 1 cores
        ("4-5,9-10,12,14-18,21,23-27,29-30", False),  # the last three, with 2 + 2 + 3
    ],
)
def test_sets_of_nodes_whose_whole_cores_just_suffice_are_looked_at(free, is_endless):
    """For seven cores, beside threads whose core is not free."""
    topology = cpu_topology(grid(4, 4, smt=2))
    assert never_ends(topology, int(CPUSet.parse(free)), 14, 2) is is_endless


def test_one_socket_wins_over_perfect_balance():
    left = [4, 4, 2, 2]
    across = plan_distribution(left, 2, 4, 1)
    within = plan_distribution(left, 2, 4, 1, SOCKETS)
    assert across is not None
    assert within is not None
    assert (across.nodes, across.balance) == ((0, 1), 0)
    assert within.nodes == (0, 2)


def test_of_several_sockets_that_with_the_best_balance_wins():
    """Choices across sockets are passed over on the way to it."""
    left = [2, 6, 2, 6]
    within = plan_distribution(left, 2, 4, 1, SOCKETS, forgets=False)
    assert within is not None
    assert within.nodes == (1, 3)


def test_a_node_that_cannot_give_an_equal_share_gives_what_it_can():
    within = plan_distribution([6, 6, 1, 1], 2, 6, 1, SOCKETS)
    assert within is not None
    assert (within.nodes, within.share, within.remainder_nodes) == ((0, 2), 1, (0,))
