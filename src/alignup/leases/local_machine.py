"""Finds the machine to place work on, cut to what this process may use, with its devices.

Discovery reads the machine; here it is decided which one is meant, whether it is the one at hand, and which
of its CPUs, memory and devices there are for this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from alignup.errors import InputError
from alignup.leases.process import host_identity
from alignup.leases.record import MachineIdentity
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device, decode_inventory
from alignup.machine.machine import Machine, NumaNode, cores_within

__all__ = ["GPU_RESOURCE", "HERE", "Site", "fingerprint", "load_site", "reachable"]

HERE: Final = "/"
GPU_RESOURCE: Final = "nvidia.com/gpu"

_MEMORY_NODES: Final = "Mems_allowed_list:"


@dataclass(frozen=True, slots=True)
class Site:
    """A machine that work can be placed on."""

    machine: Machine
    """As this process may use it: see `reachable`."""
    identity: MachineIdentity
    is_here: bool
    """Whether it is the machine that this process runs on; else processes cannot be bound to its CPUs."""
    inventory: Mapping[str, Sequence[Device]] = field(default_factory=dict)
    preferred_sets: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)


def load_site(
    source: str | Machine = HERE,
    *,
    resources: Iterable[str] = (),
    selectors: Iterable[str] = (),
    devices: object = None,
) -> Site:
    """Return the machine that is meant and its devices.

    Devices are those of `devices`, and the PCI devices that `selectors` select; where neither has a resource,
    those that came with the machine; and where `nvidia.com/gpu` is still missing on the machine at hand, what
    NVIDIA's driver knows. A device near NUMA nodes without CPUs counts as near the closest ones with CPUs.

    Args:
        source: what `--machine` takes, `/` being the machine at hand; or the record of a machine.
        resources: the resources that will be asked for.
        selectors: what `--device-resource` takes.
        devices: an inventory as plain data: resource -> [{"id", "numa"}].

    Raises:
        InputError: one of them is not what it should be, a resource has no devices, or no CPU of the
            machine at hand may be used.
    """
    carried: Mapping[str, Any] = {}
    preferred: dict[str, Any] = {}
    if isinstance(source, Machine):
        machine = source
    elif source == HERE:
        machine = Machine.from_sysfs(source)
    else:
        from alignup.machine.load import load_machine  # noqa: PLC0415  # startup counts

        loaded = load_machine(source)
        machine, carried, preferred = loaded.machine, loaded.devices, dict(loaded.preferred_sets)
    machine = machine.disjoint()
    is_here = source == HERE
    wanted = list(resources)
    found = {**carried, **_chosen(machine, selectors, devices)}
    if is_here and GPU_RESOURCE in wanted and GPU_RESOURCE not in found:
        from alignup.machine.nvidia import read_gpus  # noqa: PLC0415  # needed for GPUs only

        gpus = read_gpus(machine)
        found.update(gpus.devices)
        preferred.update(gpus.preferred_sets)
    return Site(
        machine=reachable(machine) if is_here else machine,
        identity=MachineIdentity(fingerprint(machine, is_here=is_here), _description(machine)),
        is_here=is_here,
        inventory=_inventory(machine, found, wanted),
        preferred_sets=preferred,
    )


def _chosen(machine: Machine, selectors: Iterable[str], devices: object) -> dict[str, Any]:
    """Return the inventory of the user's own choosing."""
    chosen: dict[str, Any] = {}
    if devices is not None:
        if not isinstance(devices, Mapping):
            raise InputError.at("the devices", "a mapping of resources to lists of devices", devices)
        chosen.update(devices)
    listed = list(selectors)
    if listed:
        from alignup.machine.pci_devices import PciSelector, devices_from_pci  # noqa: PLC0415  # seldom used

        chosen.update(devices_from_pci(machine, [PciSelector.parse(text) for text in listed]))
    return chosen


def _inventory(
    machine: Machine, found: Mapping[str, Any], wanted: Sequence[str]
) -> dict[str, tuple[Device, ...]]:
    """Return the records of the devices of the wanted resources."""
    if not wanted:
        return {}
    from alignup.machine.device_locality import nearest_cpu_nodes  # noqa: PLC0415  # needed for devices only

    for resource in wanted:
        if resource not in found:
            known = (
                f"one of {', '.join(sorted(found))}"
                if found
                else "one that --device-resource or --devices describes"
            )
            raise InputError.at("the devices of this machine", f"a resource that it has, {known}", resource)
    inventory = decode_inventory({resource: found[resource] for resource in wanted}, machine)
    near = {numa_id: nearest_cpu_nodes(machine, numa_id) for numa_id in machine.numa_node_ids}
    return {
        resource: tuple(
            device
            if device.numa_nodes is None
            else replace(
                device, numa_nodes=tuple(sorted({i for node in device.numa_nodes for i in near[node]}))
            )
            for device in devices
        )
        for resource, devices in inventory.items()
    }


def reachable(machine: Machine, cpus: int | None = None, memory_nodes: int | None = None) -> Machine:
    """Return the machine with only the CPUs and memory that this process may use.

    A container, a batch system or `taskset` can allow a process less than there is.

    Args:
        machine: the machine that this process runs on.
        cpus: bit set of the allowed CPUs; None: what the kernel says.
        memory_nodes: bit set of the kernel's ids of the nodes with allowed memory; None: what the kernel
            says.

    Raises:
        InputError: no CPU is left.
    """
    if cpus is None:
        cpus = int(CPUSet(os.sched_getaffinity(0)))
    if memory_nodes is None:
        memory_nodes = _allowed_memory_nodes()
    if not machine.cpus & cpus:
        raise InputError(
            f"expected CPUs of a NUMA node among those that this process may use, got {CPUSet.from_int(cpus)}"
        )
    if not machine.cpus & ~cpus and all(memory_nodes >> node.id & 1 for node in machine.numa_nodes):
        return machine
    return replace(machine, numa_nodes=tuple(_cut(node, cpus, memory_nodes) for node in machine.numa_nodes))


def _cut(node: NumaNode, cpus: int, memory_nodes: int) -> NumaNode:
    cores = cores_within(node.cores, cpus)
    if memory_nodes >> node.id & 1:
        return replace(node, cores=cores)
    return replace(node, cores=cores, memory=0, hugepages=())


def _allowed_memory_nodes(status: str = "/proc/self/status") -> int:
    """Return the bit set of the nodes that this process may have memory of; all if the kernel says nothing."""
    try:
        lines = Path(status).read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith(_MEMORY_NODES):
            return int(CPUSet.parse(line.removeprefix(_MEMORY_NODES), _MEMORY_NODES))
    return -1


def fingerprint(machine: Machine, *, is_here: bool) -> str:
    """Return a text that is equal for equal machines.

    The machine at hand goes by its host, if that can be told from others: CPUs come and go there. Any other
    goes by its nodes, CPUs and memory.
    """
    host = host_identity() if is_here else ""
    if host:
        return f"host {host}"
    import zlib  # noqa: PLC0415  # seldom used

    nodes = " ".join(
        f"{node.id}:{cpus:x}:{0 if is_here else node.memory}"
        for node, cpus in zip(machine.numa_nodes, machine.node_cpus, strict=True)
    )
    return f"nodes {zlib.crc32(nodes.encode()):08x}"


def _description(machine: Machine) -> str:
    nodes = len(machine.numa_nodes)
    return f"{machine.cpu_count} CPUs, {nodes} NUMA node{'s' if nodes > 1 else ''}"
