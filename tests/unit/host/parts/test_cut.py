"""Machines cut into equal, disjoint, aligned parts."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alignup import split
from alignup.errors import InputError
from alignup.host.parts.cut import shared_cores, split_machine
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.machine.load import load_machine
from alignup.machine.machine import Core, Machine, NumaNode
from inputs import leasing

GI = leasing.GI
GPU = leasing.GPU


def cpus(parts):
    return [str(part.cpus) for part in parts]


def nodes(parts):
    return [part.numa_nodes for part in parts]


def test_eight_ranks_of_a_dgx_are_aligned():
    """Each has its own GPU, NIC, CPUs and memory, all on one node; rank i has GPU i."""
    loaded = load_machine("dgx-h100")
    wish = {GPU: 1, "example.com/nic": 1}

    parts = split(loaded.machine, 8, devices=wish, inventory=loaded.devices)

    for rank, part in enumerate(parts):
        assert part.rank == rank
        assert len(part.cpus) == 28
        assert part.numa_nodes == (rank // 4,)
        assert part.memory == ((rank // 4, 256 * GI),)
        assert part.devices == {GPU: (f"gpu{rank}",), "example.com/nic": (f"nic{rank}",)}


def test_cores_are_whole():
    """Both threads of a core are in one part; what is left over is in none."""
    parts = split(leasing.machine(nodes=1, cores=5), 2)
    assert cpus(parts) == ["0-1,5-6", "2-3,7-8"]


def test_more_parts_than_cores_cut_cores():
    """As long as there are CPUs."""
    machine = leasing.machine(nodes=1, cores=2)
    assert cpus(split(machine, 3)) == ["0", "1", "2"]
    assert cpus(split(machine, 4)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("count", [2, 6])
def test_no_cpu_of_overlapping_nodes_is_in_two_parts(count):
    """Broken firmware lists CPUs in several nodes; each counts as the first one's."""
    cores = [Core((cpu,), 0) for cpu in range(6)]
    machine = Machine((NumaNode(0, GI, tuple(cores[:4])), NumaNode(1, GI, tuple(cores[2:]))))
    assert machine.overlapping_cpus

    parts = split_machine(machine, count)

    part_cpus = [cpu for part in parts for cpu in part.cpus]
    assert sorted(part_cpus) == list(range(6))
    assert list(parts) == split(machine.disjoint(), count)


@pytest.mark.parametrize(("wish", "expected"), [(2, "0,8"), (3, "0-1,8"), (1, "0")])
def test_parts_of_a_size_take_whole_cores_first(wish, expected):
    """The thread that is too many is of the last core, and of nobody else."""
    parts = split(leasing.machine(), 2, cpus_per_part=wish)
    assert cpus(parts)[0] == expected
    assert nodes(parts) == [(0,), (1,)]


def test_parts_of_a_size_have_as_many_cpus_on_cores_of_fewer():
    """On a machine whose first cores have two threads, and whose others have one."""
    cores = (Core((0, 1), 0), Core((2, 3), 0), *[Core((cpu,), 0) for cpu in range(4, 10)])
    machine = Machine((NumaNode(0, GI, cores),))
    assert cpus(split(machine, 3, cpus_per_part=2)) == ["0-1", "2-3", "5-6"]
    assert [len(part.cpus) for part in split(machine, 4, cpus_per_part=2)] == [2] * 4


def test_parts_that_need_all_cpus_cut_cores():
    """Where whole cores do not suffice, CPUs do."""
    parts = split(leasing.machine(nodes=1, cores=3), 2, cpus_per_part=3)
    assert cpus(parts) == ["0-1,3", "2,4-5"]
    assert shared_cores(leasing.machine(nodes=1, cores=3), [int(part.cpus) for part in parts]) == {
        1,
        4,
    }
    with pytest.raises(
        InputError, match="2 parts of 3 CPUs are not whole cores: those of CPUs 1,4"
    ):
        split(leasing.machine(nodes=1, cores=3), 2, cpus_per_part=3, full_cores=True)


def test_small_parts_are_dealt_out_evenly():
    """Each node has its share of the work."""
    assert nodes(split(leasing.machine(nodes=4), 6, cpus_per_part=2)) == [
        (0,),
        (0,),
        (1,),
        (1,),
        (2,),
        (3,),
    ]


def test_ranks_follow_the_lowest_cpu_however_second_threads_are_numbered():
    cores = Core((0, 3), 0), Core((1, 2), 1)
    machine = Machine(tuple(NumaNode(number, GI, (core,)) for number, core in enumerate(cores)))
    assert cpus(split(machine, 2)) == ["0,3", "1-2"]


def test_parts_follow_their_devices():
    """Two parts near the node that has two devices, though the other has the CPUs for them."""
    inventory = {"x": [Device("a", (1,)), Device("b", (1,)), Device("c", None, healthy=False)]}
    parts = split(leasing.machine(), 2, cpus_per_part=4, devices={"x": 1}, inventory=inventory)
    assert nodes(parts) == [(1,), (1,)]
    assert [part.devices["x"] for part in parts] == [("a",), ("b",)]


def test_a_part_without_room_near_its_device_has_the_closest():
    """All of one node's cores are not enough for two parts."""
    inventory = {"x": [Device("a", (2,)), Device("b", (2,)), Device("c", (0,))]}
    parts = split(
        leasing.machine(nodes=3), 2, cpus_per_part=8, devices={"x": 1}, inventory=inventory
    )
    assert nodes(parts) == [(2,), (0,)]
    assert [part.devices["x"] for part in parts] == [("a",), ("c",)]


def test_devices_without_a_place_come_after_those_at_hand():
    """But before those on other nodes."""
    inventory = {"x": [Device("far", (1,)), Device("anywhere", None), Device("near", (0,))]}
    (part,) = split(
        leasing.machine(nodes=2), 1, cpus_per_part=2, devices={"x": 2}, inventory=inventory
    )
    assert part.devices["x"] == ("anywhere", "near")
    (part,) = split(
        leasing.machine(nodes=2), 1, cpus_per_part=2, devices={"x": 1}, inventory=inventory
    )
    assert part.devices["x"] == ("near",)


def test_devices_that_belong_together_stay_together():
    """The rest follow the order of the inventory."""
    inventory = {"x": [Device(f"d{i}", (0,)) for i in (3, 1, 2, 0)]}
    parts = split(
        leasing.machine(nodes=1),
        2,
        devices={"x": 2},
        inventory=inventory,
        preferred_sets={"x": [["d0", "d3"]]},
    )
    assert [part.devices["x"] for part in parts] == [("d3", "d0"), ("d1", "d2")]
    (part,) = split(leasing.machine(nodes=1), 1, devices={"x": 3}, inventory=inventory)
    assert part.devices["x"] == ("d3", "d1", "d2")


def test_parts_have_all_their_devices_where_one_of_a_pair_is_asked_for_more_often():
    """Those that have no partner are dealt out too, equally."""
    inventory = {
        name: [Device(f"{name}{i}", (0,)) for i in range(count)]
        for name, count in {"g": 2, "n": 6}.items()
    }
    parts = split_machine(
        leasing.machine(nodes=1), 2, devices={"g": 1, "n": 3}, inventory=inventory, pair=["g,n"]
    )
    assert [len(part.devices["n"]) for part in parts] == [3, 3]
    dealt_ids = sorted(device_id for part in parts for device_id in part.devices["n"])
    assert dealt_ids == [f"n{i}" for i in range(6)]


def test_a_part_that_fits_no_node_takes_the_closest_two():
    """And its share of the memory of both."""
    data = leasing.machine(nodes=4, cores=3, threads=1).to_dict()
    far = [[10, 30, 20, 30], [30, 10, 30, 20], [20, 30, 10, 30], [30, 20, 30, 10]]
    for node, row in zip(data["numaNodes"], far, strict=True):
        node["distances"] = row
    parts = split(Machine.from_dict(data), 2)
    assert nodes(parts) == [(0, 2), (1, 3)]
    assert parts[0].memory == ((0, 16 * GI), (2, 16 * GI))


def test_machines_without_distances_are_cut_too():
    """All other nodes are equally far."""
    data = leasing.machine(nodes=3, ids=(0, 4, 9)).to_dict()
    for node in data["numaNodes"]:
        node.pop("distances")
    machine = Machine.from_dict(data)
    assert nodes(split(machine, 2)) == [(0, 4), (4, 9)]


def test_nodes_without_cpus_are_left_out():
    """A GPU there is as near as the distances say."""
    machine = load_machine("gb200").machine
    inventory = {"x": [{"id": "b", "numa": [18]}, {"id": "a", "numa": [2]}]}
    parts = split(machine, 2, devices={"x": 1}, inventory=inventory)
    assert {part.numa_nodes for part in parts} == {(0,), (1,)}
    assert {part.devices["x"] for part in parts} == {("a",), ("b",)}


@pytest.mark.parametrize(
    ("parts", "size", "devices", "message"),
    [
        (0, 0, {}, "at least one part"),
        (17, 0, {}, "17 parts are too many for the 16 CPUs"),
        (2, 9, {}, "2 parts of 9 CPUs are too many for the 16 CPUs"),
        (2, 0, {"x": 1}, "2 parts of 1 x are too many for the 0 of the machine"),
        (2, -7, {}, "whole CPUs for each part, got -7"),
        (2, 0, {"x": -1}, "devices of x for each part, got -1"),
    ],
)
def test_more_than_there_is_is_refused(parts, size, devices, message):
    """The message says how much there is."""
    with pytest.raises(InputError, match=message):
        split(leasing.machine(), parts, cpus_per_part=size, devices=devices)


def test_devices_described_wrongly_are_refused():
    """By the reader of inventories."""
    with pytest.raises(InputError, match="numa"):
        split(leasing.machine(), 1, devices={"x": 1}, inventory={"x": [{"id": "a", "numa": ["7"]}]})


shapes = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any)


def shaped(cores, threads):
    """Return a machine with so many cores on each node."""
    number = 0
    data = []
    for i, count in enumerate(cores):
        node_cores = [
            list(range(number + k * threads, number + k * threads + threads)) for k in range(count)
        ]
        number += count * threads
        data.append(
            {
                "id": 3 * i,
                "memory": GI,
                "distances": [10 + 5 * abs(i - k) for k in range(len(cores))],
                "cores": [{"cpus": core_cpus, "socket": i} for core_cpus in node_cores],
            }
        )

    return Machine.from_dict({"numaNodes": data})


@settings(deadline=None)
@given(shapes, st.integers(1, 2), st.integers(1, 12), st.integers(0, 4))
def test_parts_are_equal_disjoint_and_as_narrow_as_can_be(cores, threads, part_count, size):
    """Whatever the machine; and no core is in two of them, unless it must be."""
    machine = shaped(cores, threads)
    if part_count * max(size, 1) > machine.cpu_count:
        with pytest.raises(InputError):
            split(machine, part_count, cpus_per_part=size)
        return

    parts = split(machine, part_count, cpus_per_part=size)

    assert [part.rank for part in parts] == list(range(part_count))
    assert len({len(part.cpus) for part in parts}) == 1
    assert all(not part_a.cpus & part_b.cpus for part_a, part_b in combinations(parts, 2))
    if size:
        assert all(len(part.cpus) == size for part in parts)

    per_part = -(-size // threads) if size else machine.core_count // part_count
    if per_part and per_part * part_count <= machine.core_count:
        for node in machine.numa_nodes:
            for core in node.cores:
                assert sum(bool(part.cpus & CPUSet(core.cpus)) for part in parts) <= 1

        aligned = sum(len(part.numa_nodes) == 1 for part in parts)
        assert aligned == min(part_count, sum(node_cores // per_part for node_cores in cores))

    for part in parts:
        assert part.numa_nodes == tuple(
            node.id
            for node in machine.numa_nodes
            if any(set(core.cpus) & part.cpus for core in node.cores)
        )

    for position, node in enumerate(machine.numa_nodes):
        dealt_bytes = sum(dict(part.memory).get(node.id, 0) for part in parts)
        assert dealt_bytes <= machine.numa_nodes[position].memory


@pytest.mark.parametrize(
    ("cpu_count", "expected"), [(1, "0"), (2, "4-5"), (3, "1-3"), (5, "1-5"), (6, "0-5")]
)
def test_a_part_is_of_as_few_caches_as_can_be(cpu_count, expected):
    """Of the smallest that has enough, or of the largest and what then has enough."""
    caches = (0, 1, 1, 1, 2, 2)
    cores = tuple(Core((cpu,), 0, cache) for cpu, cache in enumerate(caches))
    machine = Machine((NumaNode(0, GI, cores),))
    assert cpus(split_machine(machine, 1, cpus_per_part=cpu_count, same_l3=True)) == [expected]


def test_the_layout_by_l3_goes_by_caches_that_a_kubelet_takes_for_no_uncore_caches():
    """As those which are exactly a NUMA node; mpirun knows them all."""
    cores = [Core((cpu,), cpu // 4, cpu // 2, cpu // 4) for cpu in range(8)]
    machine = Machine(
        tuple(NumaNode(node, 1 << 30, tuple(cores[2 * node : 2 * node + 2])) for node in range(4))
    )
    part_count = split_machine(machine, 4, cpus_per_part=1, layout="l3")
    assert [list(part.cpus) for part in part_count] == [[0], [2], [4], [6]]
