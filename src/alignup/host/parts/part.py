"""The record of a part of a machine, and how a process takes its place on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, warn
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY_MODES: Final = ("preferred", "bind", "interleave", "weighted-interleave", "local")
_RECLAIMABLE: Final = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


class Part(Record):
    """One of the parts of a machine."""

    rank: int
    cpus: CPUSet
    numa_nodes: tuple[int, ...]
    """Kernel ids of the nodes that its CPUs are of, ascending."""
    memory: tuple[tuple[int, int], ...] = ()
    """(kernel node id, bytes): of each node's memory, as large a share as the part has of the CPUs given out there; of
    the nearest nodes' memory where its own have none."""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids by resource, in the order of the inventory."""
    parts: int = 0
    """How many the machine is cut into."""
    visible: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables by which CUDA and ROCm see its GPUs only."""

    def environment(self) -> dict[str, str]:
        """Return the environment variables that tell a child what the part is, as `alignup split --env` prints them."""
        from alignup.host.parts.environment import variables  # noqa: PLC0415  # startup counts

        memory = sum(size for _, size in self.memory)
        own = variables(cpus=self.cpus, numa_nodes=self.numa_nodes, memory=memory, devices=self.devices)
        return {"ALIGNUP_PART": f"{self.rank}/{self.parts}", **own, **self.visible}

    def bind(self, memory: str = "preferred", *, threads: bool = True) -> None:
        """Bind this process to the CPUs of the part, and the memory of the calling thread to its NUMA nodes.

        Threads and processes that are started from then on inherit both. The kernel lets no thread set the memory
        policy of another, and leaves memory where it is.

        Args:
            memory: `preferred`: from these nodes first; `bind`: from these only; `interleave`: from each of them in
                turn; `weighted-interleave`: by the kernel's weights (Linux 6.9); `local`: from where a thread runs.
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
            left += sum(int(found[3]) << 10 for found in words if found[2].rstrip(":") in _RECLAIMABLE)
        share = sum(size for _, size in self.memory)
        if left < share:
            warn(
                f"NUMA nodes {CPUSet(nodes)} have {left >> 20} MiB left of the {share >> 20} MiB of this part: whoever "
                "needs more is killed; with memory='preferred' it would come from other nodes"
            )
