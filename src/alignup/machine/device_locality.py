"""Moves devices whose NUMA nodes have no CPUs to the closest nodes that have some.

On a GB200, a GPU's memory is a NUMA node, and that is the node some tools report for the GPU. No CPU is
there, so by the Topology Manager's rules nothing aligns with it. As an option, such a device counts as near
the nodes with CPUs that are closest to it. The kubelet has no such option: it takes the nodes that a device plugin
reports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

__all__ = ["near_cpu_nodes", "nearest_cpu_nodes"]


def nearest_cpu_nodes(machine: Machine, numa_id: int) -> tuple[int, ...]:
    """Return the ids of the nodes with CPUs that are closest to a node, ascending.

    A node with CPUs is closest to itself. Of several at the same distance, all are returned; where distances
    are not known, every node with CPUs is.

    Args:
        machine: the machine.
        numa_id: the kernel's number of one of its nodes.

    Raises:
        InputError: the machine has no such node.
    """
    position = machine.position(numa_id)
    if machine.node_cpus[position]:
        return (numa_id,)
    candidates = [index for index, cpus in enumerate(machine.node_cpus) if cpus]
    row = machine.numa_nodes[position].distances
    shortest = min((row[index] for index in candidates), default=0) if row else 0
    return tuple(machine.numa_node_ids[index] for index in candidates if not row or row[index] == shortest)


def near_cpu_nodes(
    machine: Machine, inventory: Mapping[str, Sequence[Device]]
) -> dict[str, tuple[Device, ...]]:
    """Return an inventory in which every device that is near any node is near nodes with CPUs.

    Args:
        machine: the machine.
        inventory: its devices, by resource.

    Raises:
        InputError: a device is near a node that the machine does not have.
    """
    return {
        resource: tuple(
            device
            if device.numa_nodes is None
            else replace(
                device,
                numa_nodes=tuple(
                    sorted({near for node in device.numa_nodes for near in nearest_cpu_nodes(machine, node)})
                ),
            )
            for device in devices
        )
        for resource, devices in inventory.items()
    }
