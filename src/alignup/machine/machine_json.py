"""Reads and writes a machine as decoded JSON, in the schema of scenarios and of `alignup machine --json`.

The text itself is parsed by the caller; other keys of a document, such as devices, are ignored.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from alignup.errors import InputError
from alignup.machine.cpuset import CPU_LIMIT, CPUSet
from alignup.machine.machine import Core, HugePages, Machine, NumaNode, PciDevice
from alignup.text.typed import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["UNREACHABLE", "machine_from_dict", "machine_to_dict"]

UNREACHABLE: Final = 255
"""The distance of nodes that cannot reach each other (ACPI's SLIT); written for ids that do not exist."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_CpuNumber = Annotated[int, msgspec.Meta(ge=0, lt=CPU_LIMIT)]


class _CoreWire(msgspec.Struct):
    cpus: list[_CpuNumber]
    socket: _Number
    l3: _Number | None = None
    uncore_cache: _Count | None = msgspec.field(name="uncoreCache", default=None)


class _NumaNodeWire(msgspec.Struct):
    id: _Number
    memory: _Count
    cores: list[_CoreWire]
    hugepages: dict[str, _Count] = {}
    distances: list[_Number] = []


class _PciDeviceWire(msgspec.Struct):
    address: str
    class_: str = msgspec.field(name="class", default="")
    vendor: str = ""
    device: str = ""
    numa_node: _Number | None = msgspec.field(name="numaNode", default=None)


class _MachineWire(msgspec.Struct, rename="camel"):
    numa_nodes: list[_NumaNodeWire]
    offline_cpus: list[_CpuNumber] = []
    pci_devices: list[_PciDeviceWire] = []
    unassigned_cores: list[_CoreWire] = []
    overlapping_cpus: list[_CpuNumber] = []


def machine_from_dict(data: Mapping[str, Any], where: str = "machine") -> Machine:
    """Return the machine that `data` describes; see `Machine.from_dict`.

    Args:
        data: a decoded document.
        where: the name of the document in errors.

    Raises:
        InputError: it does not describe a machine that work can be placed on.
    """
    wire = decode(data, _MachineWire, where)
    if not any(node.cores for node in wire.numa_nodes):
        raise InputError(f"expected at least one CPU, got a machine with no CPUs at {where}.numaNodes")
    _check_cpus(wire, where)
    order = sorted(range(len(wire.numa_nodes)), key=lambda index: wire.numa_nodes[index].id)
    ids = [wire.numa_nodes[index].id for index in order]
    for index, (lower, numa_id) in enumerate(pairwise(ids)):
        if lower == numa_id:
            place = f"{where}.numaNodes[{order[index + 1]}].id"
            raise InputError.at(place, "an id that no other NUMA node has", numa_id)
    nodes = (_numa_node(wire.numa_nodes[index], ids, f"{where}.numaNodes[{index}]") for index in order)
    return Machine(
        numa_nodes=tuple(nodes),
        offline_cpus=tuple(sorted(set(wire.offline_cpus))),
        pci_devices=tuple(
            PciDevice(pci.address, pci.class_, pci.vendor, pci.device, pci.numa_node)
            for pci in wire.pci_devices
        ),
        unassigned_cores=tuple(map(_core, wire.unassigned_cores)),
    )


def _check_cpus(wire: _MachineWire, where: str) -> None:
    """Refuse a core of no CPUs, and a CPU that is listed twice without being said to be."""
    seen: set[int] = set()
    overlapping = set(wire.overlapping_cpus)
    places = [(f"{where}.numaNodes[{index}].cores", node.cores) for index, node in enumerate(wire.numa_nodes)]
    for place, cores in (*places, (f"{where}.unassignedCores", wire.unassigned_cores)):
        for index, core in enumerate(cores):
            here = f"{place}[{index}].cpus"
            if not core.cpus:
                raise InputError.at(here, "a core's CPUs", core.cpus)
            for cpu in core.cpus:
                if cpu in seen and cpu not in overlapping:
                    raise InputError.at(here, "a CPU that is not listed before", cpu)
                seen.add(cpu)
    both = seen.intersection(wire.offline_cpus)
    if both:
        raise InputError.at(f"{where}.offlineCpus", "a CPU that no NUMA node lists", min(both))


def _numa_node(wire: _NumaNodeWire, ids: list[int], where: str) -> NumaNode:
    """Return the record of one node; `ids` are those of all nodes, ascending."""
    pages: dict[int, HugePages] = {}
    for size, count in wire.hugepages.items():
        record = HugePages.parse(size, count, f"{where}.hugepages")
        if record.size_bytes in pages:
            raise InputError.at(f"{where}.hugepages", f"one number of pages for {record.size}", size)
        pages[record.size_bytes] = record
    taken = sum(record.size_bytes * record.count for record in pages.values())
    if taken > wire.memory:
        raise InputError.at(f"{where}.memory", f"memory for its hugepages ({taken} bytes)", wire.memory)
    return NumaNode(
        id=wire.id,
        memory=wire.memory,
        cores=tuple(sorted(map(_core, wire.cores), key=_first_cpu)),
        hugepages=tuple(pages[size] for size in sorted(pages)),
        distances=_row(wire.distances, ids, where),
    )


def _core(wire: _CoreWire) -> Core:
    return Core(tuple(sorted(wire.cpus)), wire.socket, wire.l3, wire.uncore_cache)


def _first_cpu(core: Core) -> int:
    return core.cpus[0]


def _row(row: list[int], ids: list[int], where: str) -> tuple[int, ...]:
    """Return the distances by position, from a row by position or by node id."""
    if len(row) in {0, len(ids)}:
        return tuple(row)
    if len(row) > ids[-1]:
        return tuple(row[numa_id] for numa_id in ids)
    expected = f"{len(ids)} distances, or {ids[-1] + 1} where they are indexed by node id"
    raise InputError.at(f"{where}.distances", expected, row)


def machine_to_dict(machine: Machine) -> dict[str, Any]:
    """Return plain data that `machine_from_dict` reads back to an equal machine; see `Machine.to_dict`."""
    ids = machine.numa_node_ids
    described: dict[str, Any] = {"numaNodes": [_numa_node_to_dict(node, ids) for node in machine.numa_nodes]}
    described["offlineCpus"] = list(machine.offline_cpus)
    described["pciDevices"] = [
        {
            "address": pci.address,
            "class": pci.class_,
            "vendor": pci.vendor,
            "device": pci.device,
            "numaNode": pci.numa_node,
        }
        for pci in machine.pci_devices
    ]
    if machine.overlapping_cpus:
        described["overlappingCpus"] = list(CPUSet.from_int(machine.overlapping_cpus))
    if machine.unassigned_cores:
        described["unassignedCores"] = list(map(_core_to_dict, machine.unassigned_cores))
    return described


def _numa_node_to_dict(node: NumaNode, ids: tuple[int, ...]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": node.id,
        "memory": node.memory,
        "hugepages": {pages.size: pages.count for pages in node.hugepages},
        "cores": list(map(_core_to_dict, node.cores)),
    }
    if node.distances:
        row = [UNREACHABLE] * (ids[-1] + 1)
        for numa_id, distance in zip(ids, node.distances, strict=True):
            row[numa_id] = distance
        described["distances"] = row
    return described


def _core_to_dict(core: Core) -> dict[str, Any]:
    described: dict[str, Any] = {"cpus": list(core.cpus), "socket": core.socket}
    if core.l3 is not None:
        described["l3"] = core.l3
    if core.uncore_cache is not None:
        described["uncoreCache"] = core.uncore_cache
    return described
