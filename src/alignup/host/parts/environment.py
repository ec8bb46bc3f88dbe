"""Names the environment variables that tell a process what it has, for itself and for its GPUs' runtimes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.machine.cpuset import CPUSet
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9]")
_PCI_ADDRESS: Final = re.compile(r"(?P<domain>[0-9a-fA-F]{4,8}):(?P<slot>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])")
_UUID_PREFIXES: Final = ("GPU-", "MIG-")
VISIBLE: Final = {"nvidia.com/gpu": "CUDA_VISIBLE_DEVICES", "amd.com/gpu": "ROCR_VISIBLE_DEVICES"}
"""By resource, the variable by which a runtime is told which GPUs it may see."""


def device_variable(resource: str) -> str:
    """Return the name of the variable with a resource's devices.

    >>> device_variable("nvidia.com/gpu")
    'ALIGNUP_DEVICE_NVIDIA_COM_GPU'
    """
    return "ALIGNUP_DEVICE_" + _NOT_IN_NAMES.sub("_", resource).upper()


def variables(
    *, cpus: CPUSet, numa_nodes: Iterable[int], memory: int, devices: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the variables for some CPUs, NUMA nodes, memory and devices; none for what there is nothing of.

    Args:
        cpus: the CPUs.
        numa_nodes: kernel ids.
        memory: bytes that were asked for.
        devices: ids by resource.
    """
    found = {
        "ALIGNUP_CPUS": str(cpus),
        "ALIGNUP_NUMA_NODES": ",".join(map(str, numa_nodes)),
        "ALIGNUP_MEMORY": str(memory or ""),
    }
    named = {device_variable(resource): ",".join(ids) for resource, ids in sorted(devices.items())}
    return {**{name: value for name, value in found.items() if value}, **named}


def visible_variables(
    devices: Mapping[str, Sequence[str]], inventory: Mapping[str, Sequence[Device]], machine: Machine
) -> dict[str, str]:
    """Return the variables that make CUDA or ROCm see some GPUs only; none where there is no GPU among the devices.

    Both take UUIDs, and numbers: of PCI addresses, the position among the machine's GPUs of that vendor in the
    order of the bus; of names that mean nothing to them, the position in the inventory.

    Args:
        devices: ids by resource.
        inventory: all devices of the machine.
        machine: the machine.

    Raises:
        InputError: there is a GPU that has no number, such as a PCI address of no GPU.
    """
    found: dict[str, str] = {}
    for resource, variable in VISIBLE.items():
        ids = devices.get(resource, ())
        if not ids:
            continue
        if all(identity.startswith(_UUID_PREFIXES) for identity in ids):
            found[variable] = ",".join(ids)
            continue
        order, wanted = [device.id for device in inventory.get(resource, ())], list(ids)
        addresses = [matched for matched in map(_PCI_ADDRESS.fullmatch, ids) if matched]
        if len(addresses) == len(ids):
            from alignup.machine.pci_devices import devices_from_pci, usual_selectors  # noqa: PLC0415  # startup counts

            # NVIDIA's tools write the domain in eight digits and capitals, sysfs does not
            wanted = [f"{int(matched['domain'], 16):04x}:{matched['slot'].lower()}" for matched in addresses]
            there = devices_from_pci(machine, usual_selectors(machine, resource))
            order = [device.id for device in there.get(resource, ())]
        for identity, name in zip(ids, wanted, strict=True):
            if name not in order:  # left out, it would be held and never seen
                raise InputError.at(f"the devices of {resource}", f"a GPU that {variable} can number", identity)
        if variable == "CUDA_VISIBLE_DEVICES":
            found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        found[variable] = ",".join(map(str, sorted(map(order.index, wanted))))
    return found


def seen_devices(
    devices: Mapping[str, Sequence[Device]], environment: Mapping[str, str]
) -> dict[str, tuple[Device, ...]]:
    """Return those devices that the variables of CUDA and ROCm let a process see, in the order in which it sees them.

    As the runtimes do, this ignores what follows a number or UUID of no device. UUIDs may be cut short.

    Args:
        devices: by resource, in the order of the bus.
        environment: of the process.
    """
    found = {resource: tuple(listed) for resource, listed in devices.items()}
    for resource, variable in VISIBLE.items():
        if resource not in found or variable not in environment:
            continue
        seen: list[Device] = []
        for word in environment[variable].replace(" ", "").split(","):
            if word.isascii() and word.isdigit() and int(word) < len(found[resource]):
                seen.append(found[resource][int(word)])
            else:
                named = [one for one in found[resource] if word.startswith(_UUID_PREFIXES) and one.id.startswith(word)]
                if len(named) != 1:
                    break
                seen += named
        found[resource] = tuple(seen)
    return found
