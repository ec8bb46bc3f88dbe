"""NUMA nodes, their CPUs and their distances."""

from __future__ import annotations

import pytest

from alignup.machine.sysfs.machine import distances, node_cpus, node_ids
from alignup.machine.sysfs.tree import MemoryTree
from inputs.kernel_trees import NODE, server


def tree(files):
    return MemoryTree("test", files)


def nodes(**distance):
    """Return nodes by id (`n3="10 20"`), each with a row of distances."""
    return {f"{NODE}/node{name[1:]}/distance": f"{row}\n" for name, row in distance.items()}


def test_nodes_are_those_that_have_a_folder_and_are_online():
    """With gaps, past 63, and without node 0."""
    files = nodes(n1="", n34="", n72="", n250="") | {f"{NODE}/online": "0-1,34,250\n"}

    assert node_ids(tree(files)) == [1, 34, 250]


@pytest.mark.parametrize("online", ["", "rubbish", "7"])
def test_without_a_list_the_folders_say_which_nodes_there_are(online):
    """Old kernels have no list; one that names none of the folders is no better."""
    files = nodes(n0="", n2="") | {
        f"{NODE}/online": online,
        f"{NODE}/nodes/x": "",
        f"{NODE}/has_cpu": "0",
    }

    assert node_ids(tree(files)) == [0, 2]
    assert node_ids(tree({})) == []


def test_cpus_of_a_node_are_a_mask_or_a_list():
    """The mask counts, where there are both; a node of memory has none."""
    files = {
        f"{NODE}/node0/cpumap": "00000003\n",
        f"{NODE}/node0/cpulist": "0-7\n",
        f"{NODE}/node1/cpulist": "2-3\0",
        f"{NODE}/node2/cpumap": "00000000,00000000\n",
        f"{NODE}/node2/cpulist": "\n",
        f"{NODE}/node3/meminfo": "",
    }

    assert [node_cpus(tree(files), numa_id) for numa_id in range(4)] == [3, 12, 0, 0]


def test_distances_have_a_column_for_each_node_not_for_each_number():
    """Ids with gaps do not leave gaps in the rows."""
    files = nodes(n0="10 40 80", n8="40 10 80", n250="80 80 10") | {f"{NODE}/online": "0,8,250\n"}

    assert distances(tree(files), [0, 8, 250]) == [(10, 40, 80), (40, 10, 80), (80, 80, 10)]


def test_columns_of_nodes_that_have_no_folder_are_left_out():
    """If the list of nodes that are online says which they are."""
    files = nodes(n0="10 20 30", n2="30 20 10") | {f"{NODE}/online": "0-2\n"}

    assert distances(tree(files), [0, 2]) == [(10, 30), (30, 10)]


@pytest.mark.parametrize("row", ["20 10 30", "20", "20 0", "", "20 x"])
def test_one_bad_row_leaves_all_distances_unknown(row):
    """Too long, too short, with zeros, empty or garbled."""
    assert distances(tree(nodes(n0="10 20", n1=row)), [0, 1]) == []


def test_a_missing_row_leaves_all_distances_unknown():
    assert distances(tree(nodes(n0="10 20")), [0, 1]) == []
    assert len(distances(tree(server()), [0, 1])) == 2
