"""Machines made of whole trees of kernel files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.machine.machine import Core, HugePages, Machine, NumaNode
from alignup.machine.sysfs.machine import describe, read_sysfs
from alignup.machine.sysfs.tree import MemoryTree
from inputs.kernel_trees import CPU, NODE, pci, server, write

SERVER = server()


def machine(files):
    return describe(MemoryTree("test", files))


def test_a_plain_server(tmp_path):
    """Two sockets of two cores of two threads, read from a directory."""
    write(tmp_path, server())
    pages = (HugePages("2Mi", 2 << 20, 4),)
    machine_read = read_sysfs(tmp_path)

    assert machine_read == Machine(
        (
            NumaNode(0, 8 << 30, (Core((0, 4), 0, 0, 0), Core((1, 5), 0, 0, 0)), pages, (10, 21)),
            NumaNode(1, 8 << 30, (Core((2, 6), 1, 1, 1), Core((3, 7), 1, 1, 1)), pages, (21, 10)),
        )
    )
    assert machine(server()) == machine_read


def test_a_kernel_without_numa_has_one_node_of_everything():
    """Memory and hugepages are the machine's."""
    files = {path: text for path, text in server(sockets=1).items() if not path.startswith(NODE)}
    files["sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = "7"
    (node,) = machine(files).numa_nodes

    assert (node.id, node.memory, node.hugepages) == (0, 8 << 30, (HugePages("2Mi", 2 << 20, 7),))
    assert [core.cpus for core in node.cores] == [(0, 2), (1, 3)]


def test_nodes_may_lack_cpus_memory_or_both():
    """They are nodes all the same; PCI devices may be near them."""
    files = server() | {f"{NODE}/online": "0-1,5,9"} | pci("0000:01:00.0", numa_node=5)
    for node in (5, 9):
        files |= {f"{NODE}/node{node}/cpumap": "0\n", f"{NODE}/node{node}/cpulist": "\n"}
    files[f"{NODE}/node5/meminfo"] = "Node 5 MemTotal: 4 kB\n"
    described = machine(files)

    assert [(node.id, node.memory, len(node.cores)) for node in described.numa_nodes][2:] == [
        (5, 4096, 0),
        (9, 0, 0),
    ]
    assert described.distance_matrix is None
    assert described.pci_devices[0].numa_node == 5


def test_offline_cpus_are_told_and_in_no_core():
    """Though the node and the siblings name them."""
    files = server() | {f"{CPU}/online": "1-6"}
    files = {path: text for path, text in files.items() if "cpu0/topology" not in path}
    described = machine(files)

    assert described.offline_cpus == (0, 7)
    assert [core.cpus for node in described.numa_nodes for core in node.cores] == [
        (1, 5),
        (4,),
        (2, 6),
        (3,),
    ]


def test_cpus_that_belong_to_no_node_stay_visible():
    """They are not placed on, and not forgotten."""
    files = server() | {f"{NODE}/node1/cpumap": "4\n"}
    described = machine(files)

    assert described.unassigned_cores == (Core((3, 7), 1, 1), Core((6,), 1, 1))
    assert described.cpu_count == 5
    assert Machine.from_dict(json.loads(json.dumps(described.to_dict()))) == described


def test_a_cpu_in_two_nodes_is_in_both_until_it_must_be_in_one():
    """The first node that lists it keeps it."""
    files = server() | {f"{NODE}/node1/cpumap": "ee\n"}
    described = machine(files)

    assert described.node_cpus == (0b00110011, 0b11101110)
    assert described.overlapping_cpus == 0b00100010
    assert Machine.from_dict(json.loads(json.dumps(described.to_dict()))) == described
    assert described.disjoint().node_cpus == (0b00110011, 0b11001100)
    assert described.disjoint().overlapping_cpus == 0
    assert machine(server()).disjoint() == machine(server())


def test_no_cpus_and_no_nodes_with_cpus_are_clear_errors(tmp_path):
    """With the root in them."""
    with pytest.raises(InputError, match=f"describe CPUs.*{tmp_path}"):
        read_sysfs(tmp_path)
    with pytest.raises(InputError, match="no NUMA node has CPUs that are online at test"):
        machine(server() | {f"{NODE}/node{node}/cpumap": "0\n" for node in range(2)})


def test_65_nodes_are_a_clear_error():
    files = (
        server()
        | {f"{NODE}/node{node}/cpumap": "0\n" for node in range(2, 65)}
        | {f"{NODE}/online": "0-64\n"}
    )

    with pytest.raises(InputError, match="up to 64 NUMA nodes, and this one has 65"):
        machine(files)


@pytest.mark.skipif(not Path("/sys/devices/system/cpu").exists(), reason="no sysfs here")
def test_this_very_machine_can_be_read():
    """It has at least the CPUs that this process may use."""
    this_machine = read_sysfs()

    allowed = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    unassigned = sum(1 << cpu for core in this_machine.unassigned_cores for cpu in core.cpus)
    assert not allowed & ~(this_machine.cpus | unassigned)


def test_only_the_first_cpu_of_a_group_is_asked():
    """Which is why a large machine takes no longer than it does; `benches` has the figure."""
    files = server(sockets=2, cores=64, threads=2, nodes=8)
    paths_read = []

    class CountingTree(MemoryTree):
        def read(self, path, *, whole=True):
            paths_read.append(path)
            return super().read(path, whole=whole)

    described = describe(CountingTree("test", files))

    assert (described.cpu_count, described.core_count, len(described.numa_nodes)) == (256, 128, 8)
    assert len(paths_read) < 256


@given(
    st.dictionaries(
        st.sampled_from(sorted(SERVER)), st.text("0123456789-,xK \n\0af", max_size=12), max_size=8
    )
)
def test_broken_files_make_a_machine_or_a_clear_error(changes):
    """Never another exception, and no CPU is lost: each is in a node, in none, or offline."""
    try:
        described = machine(SERVER | changes)
    except InputError:
        return
    everywhere = described.cpus | sum(1 << cpu for cpu in described.offline_cpus)
    for core in described.unassigned_cores:
        everywhere |= sum(1 << cpu for cpu in core.cpus)
    assert everywhere == 255
    assert not sum(1 << cpu for cpu in described.offline_cpus) & described.cpus


def test_more_cpus_or_nodes_than_a_kernel_can_have_are_refused():
    """Before all their files are read."""
    files = server()
    many = {f"sys/devices/system/cpu/cpu{cpu}/online": "1" for cpu in range(8193)}
    with pytest.raises(
        InputError, match="8193 CPUs that are online are more than the 8192 supported"
    ):
        describe(MemoryTree("t", {**many, "sys/devices/system/cpu/online": "0-8192"}))
    nodes = {f"sys/devices/system/node/node{node}/cpulist": "0" for node in range(65)}
    with pytest.raises(
        InputError, match="machines may have up to 64 NUMA nodes, and this one has 65"
    ):
        describe(MemoryTree("t", {**files, **nodes, "sys/devices/system/node/online": "0-64"}))


def test_the_top_of_a_copied_sysfs_is_told_from_the_root_above_it(tmp_path):
    (tmp_path / "sys" / "devices" / "system" / "cpu" / "cpu0").mkdir(parents=True)
    for folder, inside in (
        ("sys", "devices"),
        ("sys/devices", "system"),
        ("sys/devices/system", "cpu"),
    ):
        with pytest.raises(
            InputError, match=f"; {inside} lies at its top, so a folder above it is probably meant"
        ):
            read_sysfs(tmp_path / folder)
