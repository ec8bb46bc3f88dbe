"""Makes nodes that can admit pods from NodeResourceTopology objects, for simulations.

The objects know amounts only, so that machines are made up: cores of one CPU, one socket a zone, devices with made-up
ids. CPUs and memory that are in use already count as reserved, devices in use as given away for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.policy_options import DEFAULT_MAXIMUM
from alignup.kubernetes.versions import NEWEST, KubeletVersion
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Machine
from alignup.machine.numa_node import Core, HugePages, NumaNode
from alignup.node import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.cluster.rows import NodeAmounts
    from alignup.node_resource_topology.read import Topology

_MEMORY: Final = "memory"
_PAGE: Final = 4096
"""Bytes that are added to the first zone and reserved there: no kubelet starts without a reservation."""
_IN_USE: Final = "in use"


def nodes_of(topologies: Iterable[Topology], version: KubeletVersion | None = None) -> dict[str, Node]:
    """Return a node for each object, by name.

    Args:
        topologies: what the objects say.
        version: the release of all kubelets; None: what is known of each, or the newest known.
    """
    return {one.name: node_of(one, version or one.version or NEWEST) for one in topologies}


def node_of(topology: Topology, version: KubeletVersion = NEWEST) -> Node:
    """Return a node with what an object says that there is, and is free.

    Raises:
        InputError: the amounts are more than a machine can have.
    """
    known = topology.amounts
    machine, reserved_cpus = _machine(known)
    inventory = {
        resource: tuple(
            Device(f"zone-{zone}-{number}", (zone,)) for zone, count in enumerate(totals) for number in range(count)
        )
        for resource, (totals, _) in known.devices.items()
    }
    node = Node(machine, _config(known, reserved_cpus, version), inventory)
    taken = {
        resource: [
            f"zone-{zone}-{number}" for zone in range(known.numa_nodes) for number in range(totals[zone] - free[zone])
        ]
        for resource, (totals, free) in known.devices.items()
    }
    if node.devices is not None and any(taken.values()):
        node.devices.adopt(_IN_USE, _IN_USE, taken)
    return node


def _machine(known: NodeAmounts) -> tuple[Machine, CPUSet]:
    """Return a machine with the amounts of the zones, and those of its CPUs that are reserved or in use."""
    nothing = (0,) * known.numa_nodes
    capacity, _, available = known.cpus or ((1, *nothing[1:]), nothing, (1, *nothing[1:]))
    reserved: list[int] = []
    nodes = []
    cpu = 0
    for zone, count in enumerate(capacity):
        reserved += range(cpu, cpu + count - available[zone])
        pages = tuple(
            HugePages(record.size, record.size_bytes, by_zone[zone] // record.size_bytes)
            for kind, (by_zone, _) in known.memory.items()
            if kind != _MEMORY
            for record in [HugePages.parse(kind.removeprefix("hugepages-"), 0)]
        )
        memory = known.memory.get(_MEMORY, (nothing, nothing))[0][zone] + (_PAGE if zone == 0 else 0)
        nodes.append(
            NumaNode(
                id=zone,
                memory=memory + sum(record.size_bytes * record.count for record in pages),
                cores=tuple(Core((number,), zone) for number in range(cpu, cpu + count)),
                hugepages=pages,
                distances=known.distances[zone] if known.distances else (),
            )
        )
        cpu += count
    return Machine(tuple(nodes)), CPUSet(reserved)


def _config(known: NodeAmounts, reserved_cpus: CPUSet, version: KubeletVersion) -> KubeletConfig:
    """Return the configuration under which exactly what is free can be given away."""
    kubelet: dict[str, Any] = {"topologyManagerPolicy": known.policy, "topologyManagerScope": known.scope}
    if known.numa_nodes > DEFAULT_MAXIMUM:
        maximum = {"max-allowable-numa-nodes": str(known.numa_nodes)}
        kubelet["topologyManagerPolicyOptions"] = maximum
    if known.cpus:
        kubelet |= {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(reserved_cpus)}
    if known.memory:
        kubelet |= {"memoryManagerPolicy": "Static", "reservedMemory": _reserved_memory(known)}
    return KubeletConfig.from_dict(kubelet, version=version)


def _reserved_memory(known: NodeAmounts) -> list[dict[str, Any]]:
    """Return what is in use of each type, by zone, and the page that has to be reserved."""
    entries = []
    for zone in range(known.numa_nodes):
        limits = {kind: there[zone] - free[zone] for kind, (there, free) in known.memory.items()}
        if zone == 0:
            limits[_MEMORY] = limits.get(_MEMORY, 0) + _PAGE
        limits = {kind: amount for kind, amount in limits.items() if amount}
        if limits:
            entries.append({"numaNode": zone, "limits": limits})
    return entries
