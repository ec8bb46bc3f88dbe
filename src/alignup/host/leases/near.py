"""Places leases near what nobody has a lease of: a NIC, another PCI device, a NUMA node.

What `alignup run --near` names is looked up here; the node of the leases asks the hint provider of
this module beside those of CPUs, memory and devices.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError
from alignup.host.leases.record import Near
from alignup.machine.device_inventory import nearest_cpu_nodes
from alignup.machine.machine import pci_place
from alignup.text.counting import some_of
from alignup.topology_manager.hints import feasible_hints, smallest_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.provider import ResourceHints

_NUMA: Final = re.compile(r"numa:(?P<id>[0-9]{1,6})")
_PCI: Final = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9_@-][A-Za-z0-9_.:@-]{0,63}")
# The kernel's classes of devices that people know by name.
_CLASSES: Final = ("net", "infiniband", "nvme", "block")
# What a bond, a bridge or a VLAN is made of.
_LOWER: Final = "lower_"
_DEEPEST: Final = 4
# In the path of what is no hardware, such as `lo`.
_VIRTUAL: Final = "/devices/virtual/"
_LISTED: Final = 8


def near_of(
    text: str,
    machine: Machine,
    devices: Mapping[str, Sequence[Device]],
    *,
    is_here: bool,
    root: str = "/",
) -> Near:
    """Return the NUMA nodes with CPUs that something is nearest to.

    Args:
        text: `numa:1`; the id of a device of `devices`; a PCI address; or, on the machine at hand,
            the kernel's name of a network interface, an InfiniBand device or a disk. A bond or VLAN
            is near what its interfaces are near.
        machine: the whole machine.
        devices: its devices, by resource.
        is_here: whether it is the machine at hand.
        root: of its `/sys`.

    Raises:
        InputError: there is no such thing, or nothing tells where it is.
    """
    nodes: set[int] | None = None
    numa = _NUMA.fullmatch(text)
    if numa is not None:
        numa_id = int(numa["id"])
        nodes = {numa_id} if numa_id in machine.numa_node_ids else None
    else:
        nodes = _of_device(text, devices)
        if nodes is None and _PCI.fullmatch(text):
            nodes = _of_addresses([text], machine)
        elif nodes is None and is_here and _NAME.fullmatch(text):
            nodes = _of_interface(text, machine, root)

    if nodes is None:
        names = _names(machine, devices, root if is_here else "")
        raise InputError.at("--near", f"numa:N, a PCI address, or a device ({names})", text)

    if not nodes and len(machine.numa_nodes) == 1:
        nodes = set(machine.numa_node_ids)
    if not nodes:
        raise InputError(f"--near {text}: nothing tells which NUMA node it is near")

    with_cpus = {near_id for numa_id in nodes for near_id in nearest_cpu_nodes(machine, numa_id)}
    return Near(text, tuple(sorted(with_cpus)))


def _of_device(name: str, devices: Mapping[str, Sequence[Device]]) -> set[int] | None:
    """Return the NUMA nodes of the devices with an id, none if not known; None: there is none."""
    named = [device for listed in devices.values() for device in listed if device.id == name]
    if not named:
        return None
    return {numa_id for device in named for numa_id in device.numa_nodes or ()}


def _of_addresses(addresses: Sequence[str], machine: Machine) -> set[int] | None:
    """Return the NUMA nodes of PCI devices, none if not known; None: one is not there.

    An address may leave out the domain 0000.
    """
    nodes_by_place = {pci_place(device.address): device.numa_node for device in machine.pci_devices}
    nodes = set()
    for address in addresses:
        place = pci_place(address if address.count(":") > 1 else f"0000:{address}")
        if place not in nodes_by_place:
            return None
        nodes.add(nodes_by_place[place])

    return {numa_id for numa_id in nodes if numa_id is not None}


def _of_interface(name: str, machine: Machine, root: str) -> set[int] | None:
    """Return the NUMA nodes of what the kernel calls so, none if not known; None: nothing is.

    What is made of others, as a bond is, has theirs.
    """
    folders = [f"{root.rstrip('/')}/sys/class/{kind}/{name}" for kind in _CLASSES]
    folders = [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112
    if not folders:
        return None

    nodes: set[int] = set()
    for _ in range(_DEEPEST):
        lower: list[str] = []
        for folder in folders:
            # a virtio device is a folder beneath its PCI device
            path = os.path.realpath(folder).split("/")
            addresses = [part for part in path if _PCI.fullmatch(part) and part.count(":") > 1]
            nodes |= _of_addresses(addresses[-1:], machine) or set()
            if not addresses:
                entries = os.listdir(folder)  # noqa: PTH208
                lower += [f"{folder}/{entry}" for entry in entries if entry.startswith(_LOWER)]

        folders = lower

    return nodes


def _names(machine: Machine, devices: Mapping[str, Sequence[Device]], root: str) -> str:
    """Return the names of what work can be placed near, as far as a sentence has room."""
    names = [device.id for listed in devices.values() for device in listed]
    if root:
        folder = f"{root.rstrip('/')}/sys/class/net"
        try:
            interfaces = sorted(os.listdir(folder))  # noqa: PTH208
        except OSError:
            interfaces = []
        real = [name for name in interfaces if _VIRTUAL not in os.path.realpath(f"{folder}/{name}")]
        names = real + names

    nodes = [f"numa:{numa_id}" for numa_id in machine.numa_node_ids]
    return some_of([*nodes[:_LISTED], *names], 2 * _LISTED)


class NearNodes:
    """The hint provider of what a lease is to be near.

    It has as many as anybody wants; a set of nodes will do if one of the near nodes is in it.

    Args:
        machine: as work may be placed on it.
    """

    __slots__ = ("_machine", "_name", "_near")

    name = "near"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        # Positions of the nodes that the pod at hand is to be near to, as a bit set; 0: of none.
        self._near = 0
        self._name = ""

    @contextmanager
    def wanted(self, name: str, near: int) -> Iterator[None]:
        """Offer nodes, as a bit set of positions, while the block runs."""
        self._near, self._name = near, name
        try:
            yield
        finally:
            self._near, self._name = 0, ""

    def rings(self, numa_nodes: Sequence[int]) -> list[int]:
        """Return the nodes with CPUs as bit sets of positions, the nearest to some nodes first.

        All that are equally far are in one. Where distances are not known, these nodes themselves
        are nearest, and all others next.

        Args:
            numa_nodes: kernel ids; those that the machine lacks are as far as any.
        """
        machine = self._machine
        near = [
            index for index, numa_id in enumerate(machine.numa_node_ids) if numa_id in numa_nodes
        ]
        matrix = machine.distance_matrix
        by_distance: dict[int, int] = {}
        for index, cpus in enumerate(machine.node_cpus):
            if not cpus:
                continue

            distance = 0
            if index not in near:
                distance = min((matrix[start][index] for start in near), default=1) if matrix else 1
            by_distance[distance] = by_distance.get(distance, 0) | 1 << index

        return [by_distance[distance] for distance in sorted(by_distance)]

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:  # noqa: ARG002
        """Return the sets of nodes that have a near one, as few as the other resources need."""
        return self.pod_topology_hints(pod)

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for a pod."""
        if not self._near:
            return None

        count = len(self._machine.numa_nodes)
        everywhere = (1 << count) - 1
        amounts = [self._near >> position & 1 for position in range(count)]
        hints = feasible_hints(
            count,
            [(None, amounts, 1)],
            universe=everywhere,
            preferred_size=self._fewest(pod, count, everywhere),
        )
        return {f"near {self._name}": hints}

    def _fewest(self, pod: Pod, count: int, everywhere: int) -> int:
        """Return how many nodes the CPUs or the memory of a pod need on the empty machine."""
        nodes = self._machine.numa_nodes
        demands = [([cpus.bit_count() for cpus in self._machine.node_cpus], pod.exclusive_cpus)]
        for kind, size in pod.memory:
            demands.append(([node.memory_by_type.get(kind, 0) for node in nodes], size))

        sizes = [
            smallest_size(count, [(None, amounts, size)], everywhere) or count
            for amounts, size in demands
            if size
        ]
        return max(sizes, default=1)

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Do nothing: nothing is given."""

    def release(self, pod_uid: str, container_name: str) -> None:
        """Do nothing."""
