"""Records of what a node comes to when only amounts are kept: the fixed part, and what is free now.

Nodes that are alike share one `Shape`. `alignup.cluster.node_amounts` and `alignup.cluster.node_resource_topology`
make these records; `alignup.cluster.columns` lays them out as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CpuShape", "DeviceShape", "Row", "Shape"]


@dataclass(frozen=True, slots=True)
class CpuShape:
    """The CPUs that a static CPU manager gives out; tuples go by position of the NUMA node."""

    capacity: tuple[int, ...]
    """CPUs of each node, reserved ones included."""
    allocatable: tuple[int, ...]
    cpus_per_core: int = 1
    split_cpus: int = 0
    """CPUs that can be given away although another CPU of their core is reserved."""
    irregular: bool = False
    """Sockets or cores differ in size, so that the kubelet may take other CPUs than were counted."""
    full_pcpus_only: bool = False
    distributes: bool = False
    """distribute-cpus-across-numa"""
    sockets: tuple[int, ...] = ()
    """With align-by-socket: the mask of the nodes of each socket; else empty."""


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """The devices of one resource, by place: the mask of NUMA nodes that a device is near to; 0: none."""

    places: tuple[int, ...]
    """In the order of the inventory."""
    totals: tuple[int, ...]
    """How many devices there are at each place."""
    ordered: bool = True
    """Devices are given out place by place in this order, with no plugin to choose among them."""
    healthy: bool = True
    """Some device is healthy."""


@dataclass(frozen=True, slots=True)
class Shape:
    """All about a node that does not change while pods come and go."""

    numa_nodes: int
    policy: str
    scope: str
    closest: bool = False
    """prefer-closest-numa-nodes"""
    distances: tuple[tuple[int, ...], ...] | None = None
    cpu: CpuShape | None = None
    """None: no static CPU manager."""
    memory: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    """Allocatable bytes of each type, by position; None: no Static memory manager."""
    devices: tuple[tuple[str, DeviceShape], ...] = ()
    foreign: bool = False
    """Providers are asked whose state is no amount."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is free on one node."""

    cpu: tuple[int, ...] = ()
    """By position."""
    whole_cpus: int = 0
    """CPUs of all nodes on cores without a reserved CPU."""
    memory: tuple[tuple[int, ...], ...] = ()
    """By type, in the order of the shape, and position."""
    bound: tuple[int, ...] = ()
    """The mask that the memory of each node is bound to; empty: each to itself."""
    used: int = 0
    """The nodes that hold memory of somebody."""
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By resource and place."""
    exclusive: int = 0
    """The nodes of pods under single-numa-node, and of pods across several NUMA nodes (`Node.occupancy`)."""
