"""Memory and hugepages."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.machine.machine import HugePages
from alignup.machine.sysfs.machine import describe, hugepages, meminfo_bytes
from alignup.machine.sysfs.tree import MemoryTree
from inputs.kernel_trees import NODE, server


def pages(folder, **counts):
    """Return the files of page sizes (`kB2048="4"`) in `folder`."""
    return {
        f"{folder}/hugepages-{name[2:]}kB/nr_hugepages": f"{count}\n"
        for name, count in counts.items()
    }


def test_memory_of_a_node_and_of_the_machine():
    """In bytes; a node may have none."""
    tree = MemoryTree(
        "test",
        {
            "n/meminfo": "Node 0 MemTotal:  8 kB\n",
            "m/meminfo": "Node 1 MemTotal:  0 kB\n",
            "proc/meminfo": "MemTotal: 409617181966 kB\n",
        },
    )

    assert [meminfo_bytes(tree.read(f"{folder}/meminfo")) for folder in ("n", "m", "x")] == [
        8192,
        0,
        0,
    ]
    assert meminfo_bytes(tree.read("proc/meminfo")) == 409617181966 << 10


def test_any_set_of_sizes_ascending():
    """Sizes are in KiB in the folder's name; other names, and sizes of nothing, are passed over."""
    files = pages("h", kB1048576="3", kB64="0", kB16777216="1", kB2048="x", kB0="1")
    files |= {"h/other/nr_hugepages": "1", "h/hugepages-4kB/free_hugepages": "1"}

    assert hugepages(MemoryTree("test", files), "h") == (
        HugePages("4Ki", 4096, 0),
        HugePages("64Ki", 65536, 0),
        HugePages("2Mi", 2 << 20, 0),
        HugePages("1Gi", 1 << 30, 3),
        HugePages("16Gi", 16 << 30, 1),
    )
    assert hugepages(MemoryTree("test", {}), "h") == ()


def test_pages_of_the_machine():
    files = {"proc/cpuinfo": "processor : 0\n", "proc/meminfo": "MemTotal: 8192 kB\n"}
    files |= pages("sys/kernel/mm/hugepages", kB2048="1")

    (node,) = describe(MemoryTree("test", files)).numa_nodes
    assert (node.memory, node.hugepages) == (8 << 20, (HugePages("2Mi", 2 << 20, 1),))


def test_an_empty_sys_describes_no_machine():
    """As in a container that has none.

    /proc alone would be one NUMA node, whatever the machine has.
    """
    files = {"proc/cpuinfo": "processor : 0\n", "proc/meminfo": "MemTotal: 8192 kB\n"}
    with pytest.raises(
        InputError, match=r"^no kernel files that describe CPUs, such as .* at test$"
    ):
        describe(MemoryTree("test", files))


TIERS = "sys/devices/virtual/memory_tiering"


def kinds(files):
    """Return the kind of each node's memory, where nodes 2 and 3 of four have no CPUs."""
    tree = server() | {f"{NODE}/online": "0-3\n"}
    for numa_id in (2, 3):
        tree[f"{NODE}/node{numa_id}/meminfo"] = f"Node {numa_id} MemTotal: 4 kB\n"

    machine = describe(MemoryTree("test", tree | files))
    return [node.memory_kind for node in machine.numa_nodes]


def test_tiers_say_which_memory_is_faster_and_which_slower():
    """A higher tier is a slower one; memory in the tier of the CPUs' own has no kind."""
    tiers = {f"{TIERS}/memory_tier4/nodelist": "0-1\n", f"{TIERS}/memory_tier22/nodelist": "3\n"}

    assert kinds({}) == ["", "", "", ""]
    assert kinds(tiers) == ["", "", "", "far"]
    assert kinds(tiers | {f"{TIERS}/memory_tier2/nodelist": "2\n"}) == ["", "", "hbm", "far"]
    assert kinds({f"{TIERS}/memory_tier4/nodelist": "0-3\n"}) == ["", "", "", ""]


@pytest.mark.parametrize(
    "name", ["memory_tier²", f"memory_tier{'9' * 5000}", "memory_tier", "uevent"]
)
def test_folders_that_are_no_tiers_are_passed_over(name):
    """A copied tree may have any: digits that are no number, or too many of them."""
    tiers = {f"{TIERS}/memory_tier4/nodelist": "0-1\n", f"{TIERS}/memory_tier22/nodelist": "3\n"}

    assert kinds(tiers | {f"{TIERS}/{name}/nodelist": "2\n"}) == ["", "", "", "far"]


def test_bandwidths_say_the_same_and_nvidias_driver_names_the_nodes_of_gpus():
    """What the driver says counts before what the firmware does."""
    speeds = {0: 100, 1: 100, 2: 200, 3: 50}
    files = {
        f"{NODE}/node{numa_id}/access0/initiators/read_bandwidth": f"{speed}\n"
        for numa_id, speed in speeds.items()
    }
    assert kinds(files) == ["", "", "hbm", "far"]

    files["proc/driver/nvidia/gpus/0000:01:00.0/numa_status"] = "Node: 2\nStatus: online\n"
    assert kinds(files) == ["", "", "gpu", "far"]
