"""The record of a machine: NUMA nodes, their cores, memory and distances.

Where records come from (sysfs, snapshots, JSON, hwloc's XML, the catalog) is the business of
`alignup.discovery`; this module only holds them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Core", "HugePages", "Machine", "NumaNode", "PciDevice"]


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core: the kernel numbers of its CPUs (SMT siblings, ascending), its socket and L3 group."""

    cpus: tuple[int, ...]
    socket: int
    l3: int | None = None
    """A number unique in the machine for each group of CPUs that share an L3 cache; None: not known."""


@dataclass(frozen=True, slots=True)
class HugePages:
    """Pages of one size in a NUMA node: `size` as in Kubernetes resource names (`2Mi`), in bytes, and how many."""

    size: str
    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node. It may have no cores, no memory, or neither."""

    id: int
    """The kernel's number. Masks do not use it: bit i of a mask is `machine.numa_nodes[i]`."""
    memory: int
    """Bytes, hugepages included."""
    cores: tuple[Core, ...]
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()
    """To each node of the machine in the order of `machine.numa_nodes`; empty: not known."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI device: address, class, vendor and device numbers in hex, and the NUMA node id if it is known."""

    address: str
    class_: str
    vendor: str
    device: str
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its NUMA nodes by ascending id, and what else discovery found."""

    numa_nodes: tuple[NumaNode, ...]
    offline_cpus: tuple[int, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()
