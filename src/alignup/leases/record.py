"""Holds the record of a lease, which CPUs, memory and devices a process has, and its form in JSON.

Placing requests is left to `alignup.leases.placement`; the file is kept by `alignup.leases.store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from alignup.leases.device_answer import DeviceAnswer  # noqa: TC001  # msgspec reads annotations
from alignup.leases.process import ProcessIdentity  # noqa: TC001  # as above
from alignup.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LeaseRecord",
    "LeaseTable",
    "MachineIdentity",
    "MemoryShare",
    "Waiter",
    "encode_leases",
    "holders",
    "lease_decoder",
]

_T = TypeVar("_T")
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
    """One process and the CPUs, memory and devices that it holds."""

    id: str
    """Never used again; a name can be."""
    name: str
    process: ProcessIdentity
    command: str = ""
    policy: str = ""
    cpus: CPUSet = CPUSet()
    """Those of its own, none if it has none; in JSON a list such as `0-3,8`."""
    numa_nodes: tuple[int, ...] = ()
    """Kernel ids of the nodes of its CPUs and memory; without either, those near its devices."""
    memory: tuple[MemoryShare, ...] = ()
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Device ids by resource."""
    taken_at: int = 0
    """Seconds since 1970, when it was given; 0: not known."""
    keeper: ProcessIdentity | None = None
    """The process that lasts as long as the command and whatever the command started."""
    uid: int | None = None
    """The user whose lease it is; None: the one whose file it is in."""
    answer: DeviceAnswer | None = None
    """What the device plugins answered when its devices were allocated; None: no plugin was asked."""
    cgroup: str = ""
    """The folder of the cgroup (v2) of its command and whatever that has started; empty: it has none."""

    @property
    def processes(self) -> tuple[ProcessIdentity, ...]:
        """Those that hold it: it lasts as long as any of them runs."""
        return (self.process,) if self.keeper is None else (self.process, self.keeper)

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
    """The machine that leases are of: a fingerprint that is equal for equal machines, and words for messages."""

    fingerprint: str
    description: str


class Waiter(msgspec.Struct, frozen=True, rename="camel"):
    """A process that waits for a lease."""

    id: str
    """Unique for ever."""
    process: ProcessIdentity
    kinds: tuple[str, ...] = ()
    """The kinds of things that it asks for: `cpu`, `memory`, resources of devices."""


class LeaseTable(msgspec.Struct, frozen=True, rename="camel"):
    """All leases of one machine, in the order in which they were given."""

    machine: MachineIdentity | None = None
    leases: tuple[LeaseRecord, ...] = ()
    waiting: tuple[Waiter, ...] = ()
    """In the order in which they came."""
    agent: str | msgspec.UnsetType = msgspec.UNSET
    """The socket of the agent that keeps the leases from now on; there are none in this table then."""


def encode_leases(value: msgspec.Struct) -> bytes:
    """Return records of leases, or what contains them, as JSON."""
    return msgspec.json.encode(value, enc_hook=_cpu_list)


def lease_decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return a decoder of records of leases, or of what contains them, from JSON."""
    return msgspec.json.Decoder(kind, dec_hook=_cpu_set)


def _cpu_list(value: object) -> str:
    """Return a field that JSON has no type for as text."""
    if isinstance(value, CPUSet):
        return str(value)
    raise NotImplementedError(f"no form in JSON for {type(value).__name__}")


def _cpu_set(kind: type, value: Any) -> CPUSet:
    """Return the set of a CPU list."""
    if kind is not CPUSet or not isinstance(value, str):
        raise ValueError(f"expected a CPU list, got {value!r}")
    return CPUSet.parse(value)


def holders(leases: Iterable[LeaseRecord]) -> str:
    """Return the names and processes of some leases, in a few words."""
    named = [f"{lease.name} (pid {lease.process.pid})" for lease in leases]
    more = len(named) - _SHOWN
    return ", ".join(named[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
