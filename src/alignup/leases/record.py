"""The record of a lease: who holds which CPUs, memory and devices of a machine, in memory and in the file.

Who may get what is decided in `alignup.leases.placement`; the file is the business of `alignup.leases.store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from alignup.leases.process import ProcessIdentity  # noqa: TC001  # msgspec reads annotations
from alignup.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LeaseRecord", "LeaseTable", "MachineIdentity", "MemoryShare", "holders"]

_SHOWN = 4


class MemoryShare(msgspec.Struct, frozen=True, rename="camel"):
    """Memory of one type on one NUMA node: the kernel's node id, `memory` or `hugepages-<size>`, bytes.

    A share of 0 bytes names a node that belongs to the lease's set and gave nothing; the memory manager's
    group rule needs to know it.
    """

    numa_node: int
    type: str
    size: int


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one process holds."""

    id: str
    """Unique for ever; a name can be used again."""
    name: str
    process: ProcessIdentity
    command: str = ""
    policy: str = ""
    cpu_list: str = msgspec.field(name="cpus", default="")
    """As in `0-3,8`."""
    numa_nodes: tuple[int, ...] = ()
    """Kernel ids of the nodes of its CPUs and memory; without either, those near its devices."""
    memory: tuple[MemoryShare, ...] = ()
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Device ids by resource."""

    @property
    def cpus(self) -> CPUSet:
        """The CPUs, empty if it holds none of its own."""
        return CPUSet.parse(self.cpu_list)

    @property
    def memory_sizes(self) -> dict[str, int]:
        """Bytes by type, on all nodes together."""
        sizes: dict[str, int] = {}
        for share in self.memory:
            sizes[share.type] = sizes.get(share.type, 0) + share.size
        return sizes

    @property
    def memory_by_node(self) -> dict[str, dict[int, int]]:
        """Bytes by type and kernel node id."""
        taken: dict[str, dict[int, int]] = {}
        for share in self.memory:
            taken.setdefault(share.type, {})[share.numa_node] = share.size
        return taken


class MachineIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """Which machine leases are of: a fingerprint that is equal for equal machines, and words for messages."""

    fingerprint: str
    description: str


class LeaseTable(msgspec.Struct, frozen=True, rename="camel"):
    """All leases of one machine, in the order in which they were given."""

    machine: MachineIdentity | None = None
    leases: tuple[LeaseRecord, ...] = ()


def holders(leases: Iterable[LeaseRecord]) -> str:
    """Return in a few words who holds leases."""
    named = [f"{lease.name} (pid {lease.process.pid})" for lease in leases]
    more = len(named) - _SHOWN
    return ", ".join(named[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
