"""Names the environment variables that tell a process what it holds, for itself and for CUDA."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError
from alignup.leases.recovery import VARIABLE, evidence_of, evidence_text
from alignup.machine.nvidia import GPU_RESOURCE, NVIDIA_VENDOR
from alignup.machine.pci_devices import DISPLAY_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from alignup.leases.local_machine import Site
    from alignup.leases.record import LeaseRecord
    from alignup.machine.cpuset import CPUSet
    from alignup.machine.machine import Machine

__all__ = ["device_variable", "lease_variables", "variables"]

_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9]")
_PCI_ADDRESS: Final = re.compile(
    r"(?P<domain>[0-9a-fA-F]{4,8}):(?P<slot>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
)
_UUID_PREFIXES: Final = ("GPU-", "MIG-")


def device_variable(resource: str) -> str:
    """Return the name of the variable with a resource's devices.

    >>> device_variable("nvidia.com/gpu")
    'ALIGNUP_DEVICE_NVIDIA_COM_GPU'
    """
    return "ALIGNUP_DEVICE_" + _NOT_IN_NAMES.sub("_", resource).upper()


def lease_variables(lease: LeaseRecord, site: Site, state: Path) -> dict[str, str]:
    """Return the environment variables of a command that has the lease.

    Args:
        lease: the lease.
        site: the machine that it is of.
        state: the file of leases.

    Raises:
        InputError: there is a GPU that CUDA has no number for.
    """
    return {
        "ALIGNUP_NAME": lease.name,
        "ALIGNUP_STATE": str(state),
        VARIABLE: evidence_text(evidence_of(lease, site.identity, state)),
        **variables(
            site,
            cpus=lease.cpus,
            numa_nodes=lease.numa_nodes,
            memory=sum(lease.memory_sizes.values()),
            devices=lease.devices,
        ),
    }


def variables(
    site: Site, *, cpus: CPUSet, numa_nodes: Iterable[int], memory: int, devices: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the variables for some CPUs, NUMA nodes, memory and devices; none for what there is nothing of.

    Args:
        site: the machine that they are of.
        cpus: the CPUs.
        numa_nodes: kernel ids.
        memory: bytes that were asked for.
        devices: ids by resource.

    Raises:
        InputError: there is a GPU that CUDA has no number for.
    """
    found: dict[str, str] = {}
    if cpus:
        found["ALIGNUP_CPUS"] = str(cpus)
    nodes = ",".join(map(str, numa_nodes))
    if nodes:
        found["ALIGNUP_NUMA_NODES"] = nodes
    if memory:
        found["ALIGNUP_MEMORY"] = str(memory)
    for resource, ids in sorted(devices.items()):
        found[device_variable(resource)] = ",".join(ids)
    if devices.get(GPU_RESOURCE):
        listed = [device.id for device in site.inventory.get(GPU_RESOURCE, ())]
        found.update(_cuda(devices[GPU_RESOURCE], listed, site.machine))
    return found


def _cuda(ids: Sequence[str], listed: Sequence[str], machine: Machine) -> dict[str, str]:
    """Return the variables that make CUDA see these GPUs only.

    CUDA takes UUIDs, and numbers: of PCI addresses, the position among the machine's NVIDIA GPUs in the
    order of the bus; of names that mean nothing to it, the position in the inventory.

    Raises:
        InputError: a PCI address is not that of an NVIDIA GPU of the machine.
    """
    if all(identity.startswith(_UUID_PREFIXES) for identity in ids):
        return {"CUDA_VISIBLE_DEVICES": ",".join(ids)}
    order, wanted = list(listed), list(ids)
    if all(_PCI_ADDRESS.fullmatch(identity) for identity in ids):
        wanted = [_as_kernel_writes(identity) for identity in ids]
        order = sorted(
            device.address
            for device in machine.pci_devices
            if device.vendor == NVIDIA_VENDOR and device.class_.startswith(DISPLAY_CLASS)
        )
    for identity, name in zip(ids, wanted, strict=True):
        if name not in order:  # left out, it would be held and never seen
            raise InputError.at(f"the devices of {GPU_RESOURCE}", "a GPU that CUDA can number", identity)
    numbers = sorted(map(order.index, wanted))
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers))}


def _as_kernel_writes(address: str) -> str:
    """Return a PCI address as sysfs has it; NVIDIA's tools write the domain in eight digits and capitals."""
    match = _PCI_ADDRESS.fullmatch(address)
    assert match is not None  # noqa: S101  # the caller has looked
    return f"{int(match['domain'], 16):04x}:{match['slot'].lower()}"
