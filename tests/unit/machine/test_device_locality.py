"""Which CPUs a device counts as near whose node has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alignup import read_machine
from alignup.errors import InputError
from alignup.machine.device_inventory import Device, near_cpu_nodes, nearest_cpu_nodes
from alignup.machine.machine import Core, Machine, NumaNode


def gpu_machine():
    """Two nodes with CPUs, one GPU node near each, and one as far from either."""
    rows = [
        (10, 40, 80, 120, 99),
        (40, 10, 120, 80, 99),
        (80, 120, 10, 160, 160),
        (120, 80, 160, 10, 160),
    ]
    rows.append((99, 99, 160, 160, 10))
    ids = (0, 8, 250, 255, 300)
    return Machine(
        tuple(
            NumaNode(ids[i], 1, (Core((i,), i),) if i < 2 else (), (), row)
            for i, row in enumerate(rows)
        )
    )


@pytest.mark.parametrize(
    ("numa_id", "near"), [(0, (0,)), (8, (8,)), (250, (0,)), (255, (8,)), (300, (0, 8))]
)
def test_the_nearest_nodes_with_cpus(numa_id, near):
    """A node with CPUs is its own; of several as close, all are."""
    assert nearest_cpu_nodes(gpu_machine(), numa_id) == near


def test_without_distances_every_node_with_cpus_is_near():
    machine = gpu_machine()
    blind = Machine(tuple(replace(node, distances=()) for node in machine.numa_nodes))

    assert nearest_cpu_nodes(blind, 250) == (0, 8)
    assert nearest_cpu_nodes(blind, 0) == (0,)


def test_gpus_of_a_gb200_are_near_their_socket():
    machine = read_machine("gb200")

    assert [nearest_cpu_nodes(machine, numa_id) for numa_id in (2, 10, 18, 26)] == [
        (0,),
        (0,),
        (1,),
        (1,),
    ]


def test_an_inventory_is_moved_as_a_whole():
    """Devices of no node stay so; health is kept."""
    inventory = {
        "a/gpu": (Device("g0", (250,)), Device("g1", (250, 255), healthy=False)),
        "a/key": (Device("k", None),),
    }

    assert near_cpu_nodes(gpu_machine(), inventory) == {
        "a/gpu": (Device("g0", (0,)), Device("g1", (0, 8), healthy=False)),
        "a/key": (Device("k", None),),
    }


def test_a_node_that_does_not_exist_is_named():
    with pytest.raises(InputError, match="got 7 at the machine"):
        nearest_cpu_nodes(gpu_machine(), 7)
