"""The memory that a machine has to give."""

from __future__ import annotations

import pytest

from alignup.errors import ConfigError
from alignup.kubernetes.kubelet_config import ReservedMemory
from alignup.machine.machine import Core, HugePages, Machine, NumaNode
from alignup.providers.memory.provider import memory_capacity

GI = 1 << 30
MACHINE = Machine(
    (
        NumaNode(
            2,
            8 * GI,
            (Core((0,), 0),),
            (HugePages.of_bytes(2 << 20, 512), HugePages.of_bytes(GI, 1)),
        ),
        NumaNode(5, 4 * GI, (), (HugePages.of_bytes(2 << 20, 0),)),
    )
)


def reserve(*entries):
    """Reservations from (node id, type, bytes)."""
    return [ReservedMemory(node_id, ((kind, amount),)) for node_id, kind, amount in entries]


def test_reservations_and_hugepages_are_taken_off():
    """Memory is what hugepages and the system leave of it.

    Hugepages lose only their own reservation.
    """
    reserved = reserve((2, "memory", GI), (2, "hugepages-2Mi", GI // 2))
    assert memory_capacity(MACHINE, tuple(reserved)).amounts() == {
        "hugepages-1Gi": (GI, 0),
        "hugepages-2Mi": (GI // 2, 0),
        "memory": (5 * GI, 4 * GI),
    }


@pytest.mark.parametrize(
    ("reserved", "message"),
    [
        ([], "some memory reserved on a NUMA node"),
        (reserve((2, "memory", 0)), "some memory reserved on a NUMA node"),
        (reserve((2, "hugepages-1Gi", GI)), "some memory reserved on a NUMA node"),
        (
            reserve((2, "memory", GI), (0, "memory", GI)),
            r"a NUMA node of this machine \(2, 5\), got 0",
        ),
        (reserve((2, "memory", 7 * GI)), "at most the 6Gi bytes there, got '7Gi'"),
        (reserve((2, "memory", GI), (5, "hugepages-2Mi", 1)), "at most the 0 bytes there, got '1'"),
        (
            reserve((2, "memory", GI), (2, "hugepages-64Ki", GI)),
            "one of hugepages-1Gi, hugepages-2Mi, memory",
        ),
        (
            reserve((2, "memory", GI), (2, "memory", GI)),
            "reservedMemory has memory of NUMA node 2 twice",
        ),
    ],
)
def test_impossible_reservations_are_refused(reserved, message):
    """What a kubelet would not start with, or would compute nonsense from, is a ConfigError."""
    with pytest.raises(ConfigError, match=message):
        memory_capacity(MACHINE, tuple(reserved))
