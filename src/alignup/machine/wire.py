"""The types of a machine as decoded JSON, for msgspec.

`alignup.machine.machine` says what they mean.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from alignup.machine.cpuset import CPU_LIMIT

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_CpuNumber = Annotated[int, msgspec.Meta(ge=0, lt=CPU_LIMIT)]


class CoreWire(msgspec.Struct):
    """A core."""

    cpus: list[_CpuNumber]
    socket: _Number
    l3: _Number | None = None
    uncore_cache: _Count | None = msgspec.field(name="uncoreCache", default=None)


class NumaNodeWire(msgspec.Struct):
    """A NUMA node."""

    id: _Number
    memory: _Count
    cores: list[CoreWire]
    hugepages: dict[str, _Count] = {}
    distances: list[_Number] = []
    memory_kind: Literal["", "dram", "hbm", "gpu", "far"] = msgspec.field(
        name="memoryKind", default=""
    )


class PciDeviceWire(msgspec.Struct):
    """A PCI device."""

    address: str
    class_: str = msgspec.field(name="class", default="")
    vendor: str = ""
    device: str = ""
    numa_node: _Number | None = msgspec.field(name="numaNode", default=None)
    buses: tuple[_Number, _Number] | None = None
    link: float | None = None
    partitions: _Number | None = None


class MachineWire(msgspec.Struct, rename="camel"):
    """A machine."""

    numa_nodes: list[NumaNodeWire]
    offline_cpus: list[_CpuNumber] = []
    pci_devices: list[PciDeviceWire] = []
    unassigned_cores: list[CoreWire] = []
    overlapping_cpus: list[_CpuNumber] = []
    isolated_cpus: list[_CpuNumber] = []
    nohz_full_cpus: list[_CpuNumber] = []
