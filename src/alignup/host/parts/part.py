"""The record of a part of a machine, and how a process takes its place on it.

The variables that tell a process of its part are those of leases too: what there is, for the
process itself and for the runtimes of its GPUs.
"""

from __future__ import annotations

import re

from alignup.errors import InputError, warn
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Final

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

# compiled when it is needed: startup counts
_PCI_ADDRESS: Final = r"(?P<domain>[0-9a-fA-F]{4,8}):(?P<slot>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_UUID_PREFIXES: Final = ("GPU-", "MIG-")
# By resource, the variable by which a runtime is told which GPUs it may see.
VISIBLE: Final = {"nvidia.com/gpu": "CUDA_VISIBLE_DEVICES", "amd.com/gpu": "ROCR_VISIBLE_DEVICES"}
MEMORY_MODES: Final = ("preferred", "bind", "interleave", "weighted-interleave", "local")
_RECLAIMABLE: Final = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


class Part(Record):
    """One of the parts of a machine.

    Attributes:
        numa_nodes: kernel ids of the nodes that its CPUs are of, ascending.
        memory: (kernel node id, bytes): of each node's memory, as large a share as the part has of
            the CPUs given out there; of the nearest nodes' memory where its own have none.
        devices: ids by resource, in the order of the inventory.
        parts: how many the machine is cut into.
        visible: the variables by which CUDA and ROCm see its GPUs only.

    Examples:
        >>> [str(part.cpus) for part in split("xeon-2s", 2)]
        ['0-31,64-95', '32-63,96-127']
    """

    rank: int
    cpus: CPUSet
    numa_nodes: tuple[int, ...]
    memory: tuple[tuple[int, int], ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: int = 0
    visible: Mapping[str, str] = field(default_factory=dict, repr=False)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that tell a child what the part is.

        They are those that `alignup split --env` prints.
        """
        amounts = variables(
            cpus=self.cpus,
            numa_nodes=self.numa_nodes,
            memory=sum(size for _, size in self.memory),
            devices=self.devices,
        )
        return {"ALIGNUP_PART": f"{self.rank}/{self.parts}", **amounts, **self.visible}

    def bind(self, memory: str = "preferred", *, threads: bool = True) -> None:
        """Bind this process to the CPUs of the part.

        The memory of the calling thread is bound to its NUMA nodes. Threads and processes that are
        started from then on inherit both. The kernel lets no thread set the memory policy of
        another, and leaves memory where it is.

        Args:
            memory: `preferred`: from these nodes first; `bind`: from these only; `interleave`: from
                each of them in turn; `weighted-interleave`: by the kernel's weights (Linux 6.9);
                `local`: from where a thread runs.
            threads: bind the other threads that are there too.

        Raises:
            AllocationError: the kernel does not let the process use these CPUs.
            InputError: there is no such memory policy.
        """
        # startup counts
        from alignup.host.processes.binding import (  # noqa: PLC0415
            bind_cpus,
            bind_threads,
            set_memory,
        )

        if memory not in MEMORY_MODES:
            raise InputError.at("memory", f"one of {', '.join(MEMORY_MODES)}", memory)

        if threads:
            bind_threads(self.cpus)
        else:
            bind_cpus(self.cpus)

        nodes = [node for node, _ in self.memory]
        if memory == "bind":
            self._check_room(nodes)

        if memory == "preferred" and _is_all_memory(nodes):
            return  # as the kernel prefers its nodes anyway

        trouble = set_memory(nodes, memory) if nodes or memory == "local" else ""
        if trouble:
            warn(f"{trouble}; going on with CPUs {self.cpus}")

    def _check_room(self, nodes: list[int]) -> None:
        """Warn if the nodes have less memory left than the part's share.

        A process that is bound to them would be killed.
        """
        free = 0
        for node in nodes:
            try:
                path = f"/sys/devices/system/node/node{node}/meminfo"
                with open(path, encoding="ascii") as file:  # noqa: PTH123  # startup counts
                    lines = [line.split() for line in file]
            except OSError:
                return

            for fields in lines:
                if fields[2].rstrip(":") in _RECLAIMABLE:
                    free += int(fields[3]) << 10

        share = sum(size for _, size in self.memory)
        if free < share:
            warn(
                f"NUMA nodes {CPUSet(nodes)} have {free >> 20} MiB left of the {share >> 20} MiB "
                "of this part: whoever "
                "needs more is killed; with memory='preferred' it would come from other nodes"
            )


def _is_all_memory(nodes: Iterable[int]) -> bool:
    """Return whether no other NUMA node of this machine has memory.

    Return False if the kernel does not say.
    """
    path = "/sys/devices/system/node/has_memory"
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123  # startup counts
            return CPUSet.parse(file.read()) <= CPUSet(nodes)
    except OSError:
        return False


def device_variable(resource: str) -> str:
    """Return the name of the variable with a resource's devices.

    Examples:
        >>> device_variable("nvidia.com/gpu")
        'ALIGNUP_DEVICE_NVIDIA_COM_GPU'
    """
    return "ALIGNUP_DEVICE_" + re.sub("[^A-Za-z0-9]", "_", resource).upper()


def variables(
    *, cpus: CPUSet, numa_nodes: Iterable[int], memory: int, devices: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the variables for some CPUs, NUMA nodes, memory and devices.

    There is none for what there is nothing of.

    Args:
        cpus: the CPUs.
        numa_nodes: kernel ids.
        memory: bytes that were asked for.
        devices: ids by resource.
    """
    amounts = {
        "ALIGNUP_CPUS": str(cpus),
        "ALIGNUP_NUMA_NODES": ",".join(map(str, numa_nodes)),
        "ALIGNUP_MEMORY": str(memory or ""),
    }
    environment = {name: value for name, value in amounts.items() if value}
    for resource, ids in sorted(devices.items()):
        environment[device_variable(resource)] = ",".join(ids)

    return environment


def visible_variables(
    devices: Mapping[str, Sequence[str]],
    inventory: Mapping[str, Sequence[Device]],
    machine: Machine,
) -> dict[str, str]:
    """Return the variables that make CUDA or ROCm see some GPUs only.

    There are none where there is no GPU among the devices. Both take UUIDs, and numbers: of PCI
    addresses, the position among the machine's GPUs of that vendor in the order of the bus; of
    names that mean nothing to them, the position in the inventory.

    Args:
        devices: ids by resource.
        inventory: all devices of the machine.
        machine: the machine.

    Raises:
        InputError: there is a GPU that has no number, such as a PCI address of no GPU.
    """
    environment: dict[str, str] = {}
    for resource, variable in VISIBLE.items():
        ids = devices.get(resource, ())
        if not ids:
            continue

        if all(device_id.startswith(_UUID_PREFIXES) for device_id in ids):
            environment[variable] = ",".join(ids)
            continue

        numbers = _gpu_numbers(resource, ids, inventory, machine)
        if variable == "CUDA_VISIBLE_DEVICES":
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        environment[variable] = ",".join(map(str, sorted(numbers)))

    return environment


def _gpu_numbers(
    resource: str,
    ids: Sequence[str],
    inventory: Mapping[str, Sequence[Device]],
    machine: Machine,
) -> list[int]:
    """Return the numbers by which a runtime knows some GPUs.

    Raises:
        InputError: one of them has none.
    """
    names = list(ids)
    order = [device.id for device in inventory.get(resource, ())]
    matches = [re.fullmatch(_PCI_ADDRESS, device_id) for device_id in ids]
    addresses = [address for address in matches if address is not None]
    if len(addresses) == len(ids):
        # startup counts
        from alignup.machine.pci_devices import (  # noqa: PLC0415
            devices_from_pci,
            usual_selectors,
        )

        # NVIDIA's tools write the domain in eight digits and capitals, sysfs does not
        names = [
            f"{int(address['domain'], 16):04x}:{address['slot'].lower()}" for address in addresses
        ]
        gpus = devices_from_pci(machine, usual_selectors(machine, resource))
        order = [device.id for device in gpus.get(resource, ())]

    for device_id, name in zip(ids, names, strict=True):
        if name not in order:  # left out, it would be held and never seen
            runtime, _, _ = VISIBLE[resource].partition("_")
            raise InputError.at(
                f"the devices of {resource}", f"a GPU that {runtime} can number", device_id
            )

    return [order.index(name) for name in names]


def seen_devices(
    devices: Mapping[str, Sequence[Device]], environment: Mapping[str, str]
) -> dict[str, tuple[Device, ...]]:
    """Return those devices that the variables of CUDA and ROCm let a process see.

    They are in the order in which it sees them. As the runtimes do, this ignores what follows a
    number or UUID of no device. UUIDs may be cut short.

    Args:
        devices: by resource, in the order of the bus.
        environment: of the process.
    """
    visible = {resource: tuple(gpus) for resource, gpus in devices.items()}
    for resource, variable in VISIBLE.items():
        if resource in visible and variable in environment:
            visible[resource] = _named_devices(visible[resource], environment[variable])

    return visible


def _named_devices(devices: Sequence[Device], names: str) -> tuple[Device, ...]:
    """Return the devices that a list of numbers and UUIDs names, up to the first of none."""
    visible: list[Device] = []
    for name in names.replace(" ", "").split(","):
        if name.isascii() and name.isdigit() and int(name) < len(devices):
            visible.append(devices[int(name)])
            continue

        named = [
            device
            for device in devices
            if name.startswith(_UUID_PREFIXES) and device.id.startswith(name)
        ]
        if len(named) != 1:
            break
        visible += named

    return tuple(visible)
