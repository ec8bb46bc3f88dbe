"""Machines as records: their indexes, and their JSON form."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import read_machine
from alignup.errors import InputError
from alignup.machine.load import catalog_entries
from alignup.machine.machine import (
    Core,
    HugePages,
    Machine,
    NumaNode,
    PciDevice,
    make_cores,
    number_groups,
)

GI = 1 << 30

NODE = ("numaNodes", 0)


def small():
    """Two nodes of two cores of two CPUs."""
    return {
        "numaNodes": [
            {
                "id": 0,
                "memory": 4 * GI,
                "hugepages": {"2Mi": 512, "1Gi": 1},
                "distances": [10, 21],
                "cores": [
                    {"cpus": [0, 4], "socket": 0, "l3": 0},
                    {"cpus": [5, 1], "socket": 0, "l3": 0},
                ],
            },
            {
                "id": 1,
                "memory": 4 * GI,
                "distances": [21, 10],
                "cores": [{"cpus": [2, 6], "socket": 1}, {"cpus": [3, 7], "socket": 1}],
            },
        ]
    }


def test_pages_are_no_memory():
    """What is set aside as pages is none of the memory of 4 KiB pages."""
    node = Machine.from_dict(small()).numa_nodes[0]
    assert node.memory_by_type == {
        "memory": 2 * GI,
        "hugepages-2Mi": GI,
        "hugepages-1Gi": GI,
    }


def test_record_holds_what_the_document_says():
    """Cores, memory, hugepages and distances arrive, sorted."""
    machine = Machine.from_dict(small())

    assert machine.numa_nodes[0] == NumaNode(
        id=0,
        memory=4 * GI,
        cores=(Core((0, 4), 0, 0), Core((1, 5), 0, 0)),
        hugepages=(HugePages("2Mi", 2 << 20, 512), HugePages("1Gi", 1 << 30, 1)),
        distances=(10, 21),
    )


def test_indexes_are_worked_out_once():
    """CPUs, sockets, distances and counts can be asked of the record."""
    machine = Machine.from_dict(small())

    assert machine.numa_node_ids == (0, 1)
    assert machine.node_cpus == (0b00110011, 0b11001100)
    assert machine.cpus == 255
    assert machine.sockets == (0, 1)
    assert machine.socket_cpus == (0b00110011, 0b11001100)
    assert machine.socket_nodes == (1, 2)
    assert machine.distance_matrix == ((10, 21), (21, 10))
    assert (machine.cpu_count, machine.core_count) == (8, 4)


def test_indexes_survive_copies_and_equality_ignores_them():
    """A pickled, copied or rebuilt machine equals the first and hashes alike."""
    machine = Machine.from_dict(small())

    for twin in (
        pickle.loads(pickle.dumps(machine)),  # noqa: S301  # our own
        copy.deepcopy(machine),
        Machine(machine.numa_nodes),
    ):
        assert twin == machine
        assert hash(twin) == hash(machine)
        assert twin.node_cpus == machine.node_cpus


def test_position_is_the_bit_of_a_node():
    """Ids with gaps have positions without."""
    data = small()
    data["numaNodes"][1]["id"] = 72
    machine = Machine.from_dict(data)

    assert machine.position(72) == 1
    with pytest.raises(InputError, match=r"one of its NUMA nodes \(0, 72\), got 1"):
        machine.position(1)


@pytest.mark.parametrize("row", [[10, 21], [10] + [255] * 71 + [21]])
def test_distances_of_sparse_ids_are_read_by_position_or_by_id(row):
    """Both spellings mean the same."""
    data = small()
    data["numaNodes"][1]["id"] = 72
    data["numaNodes"][0]["distances"] = row

    assert Machine.from_dict(data).numa_nodes[0].distances == (10, 21)


def test_a_row_that_is_missing_leaves_the_matrix_unknown():
    """One node without distances is enough."""
    data = small()
    del data["numaNodes"][1]["distances"]

    assert Machine.from_dict(data).distance_matrix is None


def test_nodes_come_out_in_ascending_order():
    """Whatever the order in the document."""
    data = small()
    data["numaNodes"].reverse()

    assert Machine.from_dict(data) == Machine.from_dict(small())


def test_what_to_dict_writes_from_dict_reads():
    """The JSON form keeps offline CPUs, PCI devices and CPUs of no node."""
    machine = Machine(
        numa_nodes=(
            NumaNode(3, 8 * GI, (Core((0, 1), 7, 2),), (HugePages("2Mi", 2 << 20, 4),), (10, 20)),
            NumaNode(90, 0, (), (), (20, 10)),
        ),
        offline_cpus=(9, 12),
        pci_devices=(
            PciDevice("0000:17:00.0", "0302", "10de", "2330", 3),
            PciDevice("10000:00:02.0", "0604", "8086", "2030", None),
        ),
        unassigned_cores=(Core((5,), 7),),
    )
    written = json.loads(json.dumps(machine.to_dict()))

    assert Machine.from_dict(written) == machine
    assert written["numaNodes"][0]["distances"][90] == 20
    assert written["numaNodes"][0]["distances"][50] == 255
    assert written["pciDevices"][1]["numaNode"] is None


def change(path, value):
    """Return the small machine with one thing changed."""
    data = small()
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return data


BAD = {
    "no list": ({}, "expected the field 'numaNodes', which is missing at machine"),
    "no mapping": ([], r"expected a mapping, got \[\] at machine"),
    "no nodes": ({"numaNodes": []}, "no CPUs"),
    "no CPUs": (
        {"numaNodes": [{"id": 0, "memory": GI, "cores": []}]},
        "the machine has no CPUs at machine",
    ),
    "negative memory": (
        change((*NODE, "memory"), -1),
        r"got -1 at machine\.numaNodes\[0\]\.memory",
    ),
    "memory as text": (
        change((*NODE, "memory"), "4Gi"),
        r"a whole number, got '4Gi' at machine\.numaNodes\[0\]",
    ),
    "negative id": (change((*NODE, "id"), -2), r"got -2 at machine\.numaNodes\[0\]\.id"),
    "id twice": (
        change((*NODE, "id"), 1),
        r"an id that no other NUMA node has, got 1 at machine\.numaNodes\[1\]",
    ),
    "CPU twice": (
        change((*NODE, "cores", 1, "cpus"), [1, 6]),
        r"not listed before, got 6 at machine\.numaNodes\[1\]\.cores\[0\]\.cpus",
    ),
    "CPU twice in a core": (
        change((*NODE, "cores", 0, "cpus"), [0, 0]),
        "not listed before, got 0",
    ),
    "core without CPUs": (change((*NODE, "cores", 0, "cpus"), []), r"a core's CPUs, got \[\] at"),
    "CPU number too large": (
        change((*NODE, "cores", 0, "cpus"), [1 << 40]),
        "1099511627776 at machine",
    ),
    "CPU also offline": ({**small(), "offlineCpus": [3]}, r"got 3 at machine\.offlineCpus"),
    "page size": (
        change((*NODE, "hugepages"), {"2M": 1}),
        r"2Mi, 1Gi or 64Ki, got '2M' at machine\.numaNodes\[0\]",
    ),
    "page size zero": (change((*NODE, "hugepages"), {"0Mi": 1}), "got '0Mi'"),
    "page size twice": (
        change((*NODE, "hugepages"), {"1Gi": 1, "1024Mi": 1}),
        "one number of pages for 1Gi",
    ),
    "negative pages": (change((*NODE, "hugepages"), {"2Mi": -1}), r"hugepages\[\.\.\.\]"),
    "more hugepages than memory": (
        change((*NODE, "hugepages"), {"1Gi": 5}),
        r"memory for its hugepages \(5368709120 bytes\), got 4294967296",
    ),
    "short row": (
        change((*NODE, "distances"), [10]),
        r"2 distances, or 2 where they are indexed by node id",
    ),
    "missing socket": (
        change((*NODE, "cores", 0), {"cpus": [0]}),
        r"'socket', which is missing at machine\.numaN",
    ),
    "65 nodes": (
        {
            "numaNodes": [
                {"id": i, "memory": 0, "cores": [{"cpus": [i], "socket": 0}]} for i in range(65)
            ]
        },
        "up to 64 NUMA nodes, and this one has 65",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_document_is_one_clear_line(case):
    """The message says what was expected, what came and where."""
    data, message = BAD[case]

    with pytest.raises(InputError, match=message) as caught:
        Machine.from_dict(data)
    assert "\n" not in str(caught.value)


def test_records_made_by_hand_are_checked_too():
    """Masks need ascending ids and at least one node; rows as long as the machine."""
    core = Core((0,), 0)
    with pytest.raises(InputError, match="at least one NUMA node"):
        Machine(())
    with pytest.raises(InputError, match="ascend, after 1, got 0"):
        Machine((NumaNode(1, 0, (core,)), NumaNode(0, 0, ())))
    with pytest.raises(InputError, match=r"1 distances, got \[10, 20\] at NUMA node 0"):
        Machine((NumaNode(0, 0, (core,), (), (10, 20)),))


@pytest.mark.parametrize(
    ("size_bytes", "name"),
    [(64 << 10, "64Ki"), (2 << 20, "2Mi"), (16 << 30, "16Gi"), (1000, "1000")],
)
def test_page_sizes_are_named_as_kubernetes_names_them(size_bytes, name):
    assert HugePages.of_bytes(size_bytes, 1).size == name


@given(st.integers(1, 1 << 20), st.sampled_from(["Ki", "Mi", "Gi", "Ti"]))
def test_page_sizes_mean_what_their_name_says(number, suffix):
    """Parsing a name and naming the result agree."""
    pages = HugePages.parse(f"{number}{suffix}", 1)

    assert pages == HugePages.parse(pages.size, 1)
    assert pages.size_bytes == number << {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[suffix]


def test_the_memory_of_a_machine_is_that_of_all_its_numa_nodes() -> None:
    machine = read_machine("xeon-2s")
    assert machine.memory == sum(machine.memory_by_type.values())
    assert machine.memory == sum(node.memory for node in machine.numa_nodes) > 0


def test_more_memory_than_sums_can_hold_is_refused() -> None:
    """Sums over nodes must stay within the numbers that the kernels count in."""
    nodes = tuple(NumaNode(number, 1 << 60, (Core((number,), 0),)) for number in range(3))

    with pytest.raises(InputError, match="at most 2305843009213693952 bytes of memory"):
        Machine(nodes)


def test_a_core_is_its_cpus_or_their_bit_set():
    """Both ways to make one are equal, and the bit set is at hand."""
    core = Core((1, 5), 0, 2)
    assert core == Core.of_bits(0b100010, 0, 2)
    assert hash(core) == hash(Core.of_bits(0b100010, 0, 2))
    assert core.bits == 0b100010


def test_a_machine_prints_in_one_short_line() -> None:
    assert repr(read_machine("align-up-article")).startswith("<Machine of 2 NUMA nodes, 8 CPUs, ")
    assert "xeon-2s" in repr(catalog_entries())


def test_cores_have_the_socket_and_cache_of_their_lowest_cpu():
    """And come by that CPU."""
    cores = make_cores([0b1010, 0, 0b0101], {3: 0b0101, 7: 0b1010}, [0b1111])
    assert cores == (Core((0, 2), 3, 0), Core((1, 3), 7, 0))


def test_what_is_in_no_group():
    """Socket 0, and no cache."""
    assert make_cores([0b1], {}, []) == (Core((0,), 0, None),)


def test_groups_keep_their_numbers():
    """A number that comes twice, or is missing, is replaced by the lowest free one."""
    assert number_groups([(1, 0b1), (None, 0b10), (1, 0b100), (0, 0b1000), (None, 0b10000)]) == {
        1: 0b1,
        0: 0b1000,
        2: 0b10,
        3: 0b100,
        4: 0b10000,
    }
