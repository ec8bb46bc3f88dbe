"""The record of a part of a machine, and how a process takes its place on it.

The variables that tell a process of its part are those of leases too; `visible_devices` beside this
module has those for the runtimes of its GPUs.
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
