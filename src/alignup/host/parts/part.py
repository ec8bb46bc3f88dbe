"""The record of a part of a machine, how a process takes its place on it, and what variables tell the process.

The variables are those of leases too: what there is, for the process itself and for the runtimes of
its GPUs.
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

    >>> [str(part.cpus) for part in split("xeon-2s", 2)]
    ['0-31,64-95', '32-63,96-127']

    Attributes:
        numa_nodes: kernel ids of the nodes that its CPUs are of, ascending.
        memory: (kernel node id, bytes): of each node's memory, as large a share as the part has of
            the CPUs given out there; of the nearest nodes' memory where its own have none.
        devices: ids by resource, in the order of the inventory.
        parts: how many the machine is cut into.
        visible: the variables by which CUDA and ROCm see its GPUs only.
    """

    rank: int
    cpus: CPUSet
    numa_nodes: tuple[int, ...]
    memory: tuple[tuple[int, int], ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: int = 0
    visible: Mapping[str, str] = field(default_factory=dict, repr=False)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that tell a child what the part is, as `alignup split --env` prints them."""
        memory = sum(size for _, size in self.memory)
        own = variables(
            cpus=self.cpus, numa_nodes=self.numa_nodes, memory=memory, devices=self.devices
        )
        return {"ALIGNUP_PART": f"{self.rank}/{self.parts}", **own, **self.visible}

    def bind(self, memory: str = "preferred", *, threads: bool = True) -> None:
        """Bind this process to the CPUs of the part, and the memory of the calling thread to its NUMA nodes.

        Threads and processes that are started from then on inherit both. The kernel lets no thread
        set the memory policy of another, and leaves memory where it is.

        Args:
            memory: `preferred`: from these nodes first; `bind`: from these only; `interleave`: from
                each of them in turn; `weighted-interleave`: by the kernel's weights (Linux 6.9);
                `local`: from where a thread runs.
            threads: bind the other threads that are there too.

        Raises:
            AllocationError: the kernel does not let the process use these CPUs.
            InputError: there is no such memory policy.
        """
        from alignup.host.processes.binding import bind_cpus, bind_threads, set_memory  # noqa: PLC0415  # startup counts

        if memory not in MEMORY_MODES:
            raise InputError.at("memory", f"one of {', '.join(MEMORY_MODES)}", memory)

        (bind_threads if threads else bind_cpus)(self.cpus)
        nodes = [node for node, _ in self.memory]
        if memory == "bind":
            self._check_room(nodes)

        if memory == "preferred" and _is_all_memory(nodes):
            return  # as the kernel prefers its nodes anyway

        trouble = set_memory(nodes, memory) if nodes or memory == "local" else ""
        if trouble:
            warn(f"{trouble}; going on with CPUs {self.cpus}")

    def _check_room(self, nodes: list[int]) -> None:
        """Warn if the nodes have less memory left than the part's share: a process that is bound to them is killed."""
        left = 0
        for node in nodes:
            try:
                with open(f"/sys/devices/system/node/node{node}/meminfo", encoding="ascii") as file:  # noqa: PTH123  # startup counts
                    words = [line.split() for line in file]
            except OSError:
                return

            left += sum(
                int(found[3]) << 10 for found in words if found[2].rstrip(":") in _RECLAIMABLE
            )

        share = sum(size for _, size in self.memory)
        if left < share:
            warn(
                f"NUMA nodes {CPUSet(nodes)} have {left >> 20} MiB left of the {share >> 20} MiB "
                "of this part: whoever "
                "needs more is killed; with memory='preferred' it would come from other nodes"
            )


def _is_all_memory(nodes: Iterable[int]) -> bool:
    """Return whether no other NUMA node of this machine has memory; False if the kernel does not say."""
    try:
        with open("/sys/devices/system/node/has_memory", encoding="ascii") as file:  # noqa: PTH123  # startup counts
            return CPUSet.parse(file.read()) <= CPUSet(nodes)
    except OSError:
        return False


def device_variable(resource: str) -> str:
    """Return the name of the variable with a resource's devices.

    >>> device_variable("nvidia.com/gpu")
    'ALIGNUP_DEVICE_NVIDIA_COM_GPU'
    """
    return "ALIGNUP_DEVICE_" + re.sub("[^A-Za-z0-9]", "_", resource).upper()


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
    devices: Mapping[str, Sequence[str]],
    inventory: Mapping[str, Sequence[Device]],
    machine: Machine,
) -> dict[str, str]:
    """Return the variables that make CUDA or ROCm see some GPUs only; none where there is no GPU among the devices.

    Both take UUIDs, and numbers: of PCI addresses, the position among the machine's GPUs of that
    vendor in the order of the bus; of names that mean nothing to them, the position in the
    inventory.

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
        addresses = [
            matched for matched in (re.fullmatch(_PCI_ADDRESS, one) for one in ids) if matched
        ]
        if len(addresses) == len(ids):
            from alignup.machine.pci_devices import devices_from_pci, usual_selectors  # noqa: PLC0415  # startup counts

            # NVIDIA's tools write the domain in eight digits and capitals, sysfs does not
            wanted = [
                f"{int(matched['domain'], 16):04x}:{matched['slot'].lower()}"
                for matched in addresses
            ]
            there = devices_from_pci(machine, usual_selectors(machine, resource))
            order = [device.id for device in there.get(resource, ())]

        for identity, name in zip(ids, wanted, strict=True):
            if name not in order:  # left out, it would be held and never seen
                raise InputError.at(
                    f"the devices of {resource}",
                    f"a GPU that {variable.partition('_')[0]} can number",
                    identity,
                )

        if variable == "CUDA_VISIBLE_DEVICES":
            found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        found[variable] = ",".join(map(str, sorted(map(order.index, wanted))))

    return found


def seen_devices(
    devices: Mapping[str, Sequence[Device]], environment: Mapping[str, str]
) -> dict[str, tuple[Device, ...]]:
    """Return those devices that the variables of CUDA and ROCm let a process see, in the order in which it sees them.

    As the runtimes do, this ignores what follows a number or UUID of no device. UUIDs may be cut
    short.

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
                named = [
                    one
                    for one in found[resource]
                    if word.startswith(_UUID_PREFIXES) and one.id.startswith(word)
                ]
                if len(named) != 1:
                    break
                seen += named

        found[resource] = tuple(seen)

    return found
