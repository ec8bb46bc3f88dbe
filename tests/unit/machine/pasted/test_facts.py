"""Machines made of what several texts tell, and what is assumed where none tells it."""

from __future__ import annotations

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.machine.device_inventory import Device
from alignup.machine.pasted.facts import Accelerator, Facts, machine_of_facts, only_one

QUIET = pytest.mark.filterwarnings(
    "ignore:(not known from|assumed, since):alignup.errors.AlignupWarning"
)

WHOLE = Facts(
    nodes={0: 0b0011, 1: 0b1100},
    cores=(0b01, 0b10, 0b0100, 0b1000),
    sockets={0: 0b0011, 5: 0b1100},
    l3_groups=(0b0011, 0b1100),
    memory={0: 1 << 30, 1: 2 << 30},
    distances={0: {0: 10, 1: 21}, 1: {0: 21, 1: 10}},
)


def machine(*facts):
    """Return the machine of some facts, each of a text of its own."""
    facts_by_text = {f"text {number}": facts_of_text for number, facts_of_text in enumerate(facts)}
    return machine_of_facts(facts_by_text, "x").machine


def core_cpus(machine):
    return [core.cpus for node in machine.numa_nodes for core in node.cores]


def test_facts_of_which_nothing_has_cpus_are_no_machine():
    assert machine_of_facts({}, "x") is None
    assert machine_of_facts({"a": Facts(), "b": Facts(memory={0: 1}, cores=())}, "x") is None


def test_a_machine_of_which_all_is_told_needs_no_assumption():
    """Only what no text can tell is then said not to be known."""
    with pytest.warns(AlignupWarning) as caught:
        described = machine(WHOLE)

    assert [str(warning.message) for warning in caught] == [
        "not known from x: hugepages (taken as none); `lscpu -e; numactl -H` tells more"
    ]
    assert described.node_cpus == (0b0011, 0b1100)
    assert [node.memory for node in described.numa_nodes] == [1 << 30, 2 << 30]
    assert [core.l3 for node in described.numa_nodes for core in node.cores] == [0, 0, 1, 1]
    assert described.sockets == (0, 5)
    assert described.distance_matrix == ((10, 21), (21, 10))


@QUIET
def test_of_each_kind_the_first_text_that_tells_any_counts():
    later = Facts(memory={0: 7, 1: 7}, sockets={3: 0b1111}, offline=0b11_0000)
    sparse = Facts(nodes=WHOLE.nodes, memory=WHOLE.memory)

    described = machine(sparse, later)
    assert [node.memory for node in described.numa_nodes] == [1 << 30, 2 << 30]
    assert described.sockets == (3,)
    assert described.offline_cpus == (4, 5)


def test_texts_of_two_machines_are_refused():
    """Whichever lacks the node, and however many texts agree before."""
    with pytest.raises(
        InputError, match=r"text 0 and text 2 .*: NUMA node 1 has CPUs 2-3 and no C"
    ):
        machine(WHOLE, Facts(nodes=WHOLE.nodes), Facts(nodes={0: 0b0011}))
    with pytest.raises(InputError, match="NUMA node 1 has no CPUs and CPUs 2-3 by them"):
        machine(Facts(nodes={0: 0b0011}), WHOLE)


@QUIET
def test_nodes_that_only_memory_or_distances_name_have_no_cpus():
    facts = Facts(nodes={0: 0b1}, memory={0: 4, 2: 8}, distances={7: {}})
    described = machine(facts)

    assert [(node.id, node.memory) for node in described.numa_nodes] == [(0, 4), (2, 8), (7, 0)]
    assert described.distance_matrix is None


@QUIET
def test_cpus_of_cores_in_no_node_stay_visible():
    described = machine(Facts(nodes={0: 0b01}, cores=(0b01, 0b10)))

    assert core_cpus(described) == [(0,)]
    assert [core.cpus for core in described.unassigned_cores] == [(1,)]


@QUIET
@pytest.mark.parametrize(
    ("facts", "cores"),
    [
        # two equal runs, as of first and second threads
        (Facts(nodes={0: 0b0011_0011}), [(0, 4), (1, 5)]),
        # no such runs: each CPU is a core
        (Facts(nodes={0: 0b0011_0000_0001_1110}), [(1,), (2,), (3,), (4,), (12,), (13,)]),
        (Facts(nodes={0: 0b0101}), [(0,), (2,)]),
        # the number of threads is told: of one node they are far apart, of several nearby
        (Facts(nodes={0: 0b1111}, threads=2), [(0, 2), (1, 3)]),
        (Facts(nodes={0: 0b1111}, threads=2, has_adjacent_threads=True), [(0, 1), (2, 3)]),
        (Facts(nodes={0: 0x0F, 1: 0xF0}, threads=2), [(0, 1), (2, 3), (4, 5), (6, 7)]),
        # cores that cannot all have so many
        (Facts(nodes={0: 0b0111}, threads=2), [(0,), (1,), (2,)]),
    ],
)
def test_cores_are_assumed_from_the_numbers_of_cpus(facts, cores):
    assert core_cpus(machine(facts)) == cores


@QUIET
@pytest.mark.parametrize(
    ("count", "sockets"), [(None, [0, 0, 1, 1]), (1, [0, 0, 0, 0]), (4, [0, 1, 2, 3])]
)
def test_sockets_are_equal_parts_in_the_order_of_nodes(count, sockets):
    """By default there is one for each node with CPUs."""
    facts = Facts(nodes={0: 0b1010, 1: 0b0101, 2: 0}, threads=1, socket_count=count)
    described = machine(facts)

    assert [core.socket for node in described.numa_nodes for core in node.cores] == sockets


@QUIET
def test_gpus_are_near_the_nodes_they_name_or_those_of_their_cpus():
    """A node that the machine lacks counts as none named."""
    gpus = (
        Accelerator("g", "a", cpus=0b0011, numa_nodes=(1,)),
        Accelerator("g", "b", cpus=0b0110, numa_nodes=(9,)),
        Accelerator("h", "c"),
    )
    loaded = machine_of_facts({"x": Facts(nodes=WHOLE.nodes, accelerators=gpus)}, "x")

    assert loaded.devices == {
        "g": (Device("a", (1,)), Device("b", (0, 1))),
        "h": (Device("c", None),),
    }
    assert machine_of_facts({"x": WHOLE}, "x").devices == {}


def test_a_value_may_be_there_again_and_not_be_another():
    assert only_one([], "CPUs") is None
    assert only_one(["4", "4"], "CPUs") == "4"
    with pytest.raises(InputError, match=r"^CPUs is there with different values \('4', '8'\): "):
        only_one(["4", "8", "4"], "CPUs")
