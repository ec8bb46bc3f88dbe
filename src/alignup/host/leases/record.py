"""Holds the records of leases and of those who wait for one, and their form in JSON.

The entries of the journal, which say what happened to them, are among the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from alignup.errors import InputError
from alignup.host.device_plugins.answer import DeviceAnswer  # noqa: TC001  # for msgspec to read
from alignup.host.processes.identity import ProcessIdentity  # noqa: TC001  # as above
from alignup.machine.cpuset import CPUSet
from alignup.text.counting import some_of

_T = TypeVar("_T")
_SHOWN: Final = 4
# Somebody who starts a command wants it to run: it is refused only if there is too little left.
DEFAULT_POLICY: Final = "best-effort"
STRICT_POLICIES: Final = frozenset({"restricted", "single-numa-node"})
# Bytes: more than any machine can address.
_LARGEST: Final = 1 << 60
_MOST_CPUS: Final = 1 << 20
_MOST_NODES: Final = 1 << 16


class PartOf(NamedTuple):
    """One of the equal parts that `alignup split` cuts a machine into, counted from 0."""

    rank: int
    parts: int


class Seen(msgspec.Struct, frozen=True):
    """The devices of a resource that a process sees, where it does not see all.

    Attributes:
        names: their ids, PCI addresses and UUIDs, as far as these are known.
        reason: what hides the others, in words.
    """

    names: tuple[str, ...]
    reason: str = ""


class Near(msgspec.Struct, frozen=True):
    """What a lease is to be near, without having it.

    Attributes:
        name: as it was asked for, such as `eth0` or `numa:1`.
        numa_nodes: kernel ids of the nodes that are nearest to it.
    """

    name: str
    numa_nodes: tuple[int, ...]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for CPUs, memory and devices. All amounts are of the one process that asks.

    Attributes:
        cpus: whole CPUs of its own; 0: none of its own, or with a part, what the part has.
        memory: bytes; 0: no memory is set aside.
        devices: counts above 0, by resource in alphabetical order.
        policy: empty: `best-effort`.
        name: empty: one is made up.
        kubelet_version: the release whose managers are to decide, such as `1.33`; empty: whoever
            decides says which.
        seen: by resource, the devices that may be chosen; of a resource that is not there, all.
        near: what CPUs, memory and devices are to be near; None: nothing.
    """

    cpus: int = 0
    memory: int = 0
    devices: dict[str, int] = msgspec.field(default_factory=dict)
    policy: str = ""
    name: str = ""
    part: PartOf | None = None
    kubelet_version: str = ""
    seen: dict[str, Seen] = msgspec.field(default_factory=dict)
    near: Near | None = None


class MemoryShare(msgspec.Struct, frozen=True, rename="camel"):
    """Memory of one type on one NUMA node.

    A share of 0 bytes names a node that belongs to the lease's set and gave nothing; the memory
    manager's group rule needs to know it.

    Attributes:
        numa_node: the kernel's id of the node.
        type: `memory` or `hugepages-<size>`.
        size: bytes.
    """

    numa_node: int
    type: str
    size: int


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One process and the CPUs, memory and devices that it holds.

    Attributes:
        id: never used again; a name can be.
        cpus: those of its own, none if it has none; in JSON a list such as `0-3,8`.
        numa_nodes: kernel ids of the nodes of its CPUs and memory; without either, those near its
            devices.
        devices: device ids by resource.
        taken_at: seconds since 1970, when it was given; 0: not known.
        keeper: the process that lasts as long as the command and whatever the command started.
        uid: the user whose lease it is; None: the one whose file it is in.
        answer: what the device plugins answered when its devices were allocated; None: no plugin
            was asked.
        cgroup: the folder of the cgroup (v2) of its command and whatever that has started; empty:
            it has none.
    """

    id: str
    name: str
    process: ProcessIdentity
    command: str = ""
    policy: str = ""
    cpus: CPUSet = CPUSet()
    numa_nodes: tuple[int, ...] = ()
    memory: tuple[MemoryShare, ...] = ()
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    taken_at: int = 0
    keeper: ProcessIdentity | None = None
    uid: int | None = None
    answer: DeviceAnswer | None = None
    cgroup: str = ""

    @property
    def is_strict(self) -> bool:
        """Whether memory must come from its nodes.

        So it is under the policies that promise the same of CPUs.
        """
        return self.policy in STRICT_POLICIES

    @property
    def processes(self) -> tuple[ProcessIdentity, ...]:
        """Those that hold it: it lasts as long as any of them runs."""
        return (self.process,) if self.keeper is None else (self.process, self.keeper)

    @property
    def kinds(self) -> set[str]:
        """The kinds of things that it has; see `Waiter.kinds`."""
        kinds = set(self.devices)
        if self.cpus:
            kinds.add("cpu")
        if self.memory:
            kinds.add("memory")
        return kinds

    @property
    def memory_sizes(self) -> dict[str, int]:
        """Bytes by type, summed over its nodes."""
        return {kind: sum(sizes.values()) for kind, sizes in self.memory_by_node.items()}

    @property
    def memory_by_node(self) -> dict[str, dict[int, int]]:
        """Bytes by type and kernel node id."""
        sizes: dict[str, dict[int, int]] = {}
        for share in self.memory:
            sizes.setdefault(share.type, {})[share.numa_node] = share.size
        return sizes


class MachineIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """The machine that leases are of.

    Attributes:
        fingerprint: equal for equal machines.
        description: words for messages.
    """

    fingerprint: str
    description: str


class Waiter(Request, frozen=True, rename="camel", omit_defaults=True):
    """A process that waits for a lease, with what it asks for.

    Earlier releases wrote the first three fields only.

    Attributes:
        id: unique for ever; the lease will have it.
        kinds: the kinds of things that it asks for: `cpu`, `memory`, resources of devices.
        uid: the user who asks; None: the one whose file it is in.
        policy: empty: what is asked for is not known.
        since: seconds since 1970; 0: not known.
        ancestors: (pid, start time) of the process and of those above it: their leases do not end
            while it waits.
    """

    id: str
    process: ProcessIdentity
    kinds: tuple[str, ...] = ()
    command: str = ""
    uid: int | None = None
    since: int = 0
    ancestors: tuple[tuple[int, int], ...] = ()


class LeaseTable(msgspec.Struct, frozen=True, rename="camel"):
    """All leases of one machine, in the order in which they were given.

    Attributes:
        waiting: in the order in which they came.
        agent: the socket of the agent that keeps the leases from now on; there are none in this
            table then.
    """

    machine: MachineIdentity | None = None
    leases: tuple[LeaseRecord, ...] = ()
    waiting: tuple[Waiter, ...] = ()
    agent: str | msgspec.UnsetType = msgspec.UNSET


class Given(msgspec.Struct, frozen=True, tag="given"):
    """Entry of the journal: a lease was made."""

    lease: LeaseRecord


class Freed(msgspec.Struct, frozen=True, tag="freed"):
    """Entry of the journal: a lease has ended."""

    id: str


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Entry of the journal: somebody waits."""

    waiter: Waiter


class Left(msgspec.Struct, frozen=True, tag="left"):
    """Entry of the journal: somebody waits no longer."""

    id: str


Entry: TypeAlias = Given | Freed | Joined | Left


def encode_leases(value: msgspec.Struct) -> bytes:
    """Return records of leases, or what contains them, as JSON.

    A set of CPUs is a list such as `0-3,8` there.
    """
    return msgspec.json.encode(value, enc_hook=str)


def lease_decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return a decoder of records of leases, or of what contains them, from JSON."""
    return msgspec.json.Decoder(kind, dec_hook=_cpu_set)


def check_amounts(
    leases: Iterable[LeaseRecord], where: str, memory_nodes: tuple[int, ...] = ()
) -> None:
    """Refuse leases of amounts that no machine has, or nodes to bind memory to.

    Args:
        leases: the leases.
        where: the place that an error names.
        memory_nodes: kernel ids of the nodes to bind memory to.

    Raises:
        InputError: there is such a lease.
    """
    for lease in leases:
        sizes = [share.size for share in lease.memory]
        memory_fits = all(0 <= size < _LARGEST for size in sizes) and sum(sizes) < _LARGEST
        cpus_fit = int(lease.cpus).bit_length() <= _MOST_CPUS

        nodes_of_memory = (share.numa_node for share in lease.memory)
        nodes = (*lease.numa_nodes, *memory_nodes, *nodes_of_memory)
        nodes_fit = all(0 <= node < _MOST_NODES for node in nodes)

        if not (memory_fits and cpus_fit and nodes_fit):
            raise InputError(f"the amounts of lease {lease.name!r} are impossible, at {where}")


def _cpu_set(kind: type, value: Any) -> CPUSet:
    """Return the set of a CPU list."""
    if kind is not CPUSet or not isinstance(value, str):
        raise ValueError(f"expected a CPU list, got {value!r}")
    return CPUSet.parse(value)


def holders(leases: Iterable[LeaseRecord]) -> str:
    """Return the names and processes of some leases, in a few words."""
    return some_of([f"{lease.name} (pid {lease.process.pid})" for lease in leases], _SHOWN)
