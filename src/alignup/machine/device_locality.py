"""Decides which NUMA nodes with CPUs a device counts as near whose own node has none.

On a GB200, a GPU's memory is a NUMA node, and that is the node some tools report for the GPU. No CPU is
there, so with the Topology Manager's rules nothing aligns with it. As an option, such a device counts as near
the nodes with CPUs that are closest to it. The kubelet has no such option: it takes what a device plugin
reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.machine.machine import Machine

__all__ = ["near_cpus", "nearest_cpu_nodes"]


def nearest_cpu_nodes(machine: Machine, numa_id: int) -> tuple[int, ...]:
    """Return the ids of the nodes with CPUs that are closest to a node, ascending.

    A node with CPUs is closest to itself. Of several at the same distance, all are returned; where distances
    are not known, every node with CPUs is.

    Args:
        machine: The machine.
        numa_id: The kernel's number of one of its nodes.

    Raises:
        InputError: The machine has no such node.
    """
    position = machine.position(numa_id)
    if machine.node_cpus[position]:
        return (numa_id,)
    candidates = [index for index, cpus in enumerate(machine.node_cpus) if cpus]
    row = machine.numa_nodes[position].distances
    shortest = min((row[index] for index in candidates), default=0) if row else 0
    return tuple(machine.numa_node_ids[index] for index in candidates if not row or row[index] == shortest)


def near_cpus(
    machine: Machine, devices: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """Return an inventory in which every device is near nodes with CPUs.

    Args:
        machine: The machine.
        devices: Resource to devices, each with `id` and `numa`: node ids, or None for no topology.

    Raises:
        InputError: A device is near a node that the machine does not have.
    """
    moved: dict[str, list[dict[str, Any]]] = {}
    for resource, inventory in devices.items():
        moved[resource] = [{**device, "numa": _near(machine, device.get("numa"))} for device in inventory]
    return moved


def _near(machine: Machine, numa: Sequence[int] | None) -> list[int] | None:
    """Return the nodes with CPUs nearest to those in `numa`."""
    if numa is None:
        return None
    return sorted({near for numa_id in numa for near in nearest_cpu_nodes(machine, numa_id)})
