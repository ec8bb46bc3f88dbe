"""Declares who keeps leases, and the records of what they give: a lease with what its holder needs to know beside it.

The leases of a file are given by `alignup.leases.source`, those of an agent by `alignup.leases.agent_client`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from alignup.leases.local_machine import Site
    from alignup.leases.record import LeaseRecord, MachineIdentity, Waiter
    from alignup.leases.request import Claim, Request
    from alignup.machine.device_inventory import Device
    from alignup.machine_parts import Part

AGENT_VARIABLE: Final = "ALIGNUP_AGENT"
"""Names the socket of the agent to ask; empty: none."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease, and what its holder needs to know beside it."""

    lease: LeaseRecord
    machine: MachineIdentity
    state: Path
    """The file of leases that it is in, or that the agent has taken over."""
    memory_nodes: tuple[int, ...]
    """Kernel ids of the NUMA nodes to bind memory to; none: it is not to be bound."""
    is_here: bool
    """The lease is of the machine at hand, so that processes can be bound to it."""
    cuda: Mapping[str, str]
    agent: str = ""
    """The socket of the agent that gave it."""
    is_own: bool = True
    """Given by this user: from a file, or by an agent of this user. Another user's agent may set no variable that
    makes a program run other code."""

    def environment(self) -> dict[str, str]:
        """Return the variables of a command that has the lease."""
        from alignup.leases.environment import lease_variables  # noqa: PLC0415  # startup counts

        found = lease_variables(self.lease, self.machine, self.state, self.cuda, is_own=self.is_own)
        return {**found, AGENT_VARIABLE: self.agent} if self.agent else found


class KnownLease(NamedTuple):
    """A lease, and whether its processes run."""

    lease: LeaseRecord
    state: str


class Overview(NamedTuple):
    """All leases, and those who wait for one, in order of arrival."""

    leases: list[KnownLease]
    waiting: list[Waiter]


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of the machine, and the variables that make CUDA see its GPUs."""

    part: Part
    cuda: Mapping[str, str] = field(default_factory=dict)


def cut(
    site: Site, inventory: Mapping[str, Sequence[Device]], count: int, cpus_per_part: int, devices: Mapping[str, int]
) -> list[KnownPart]:
    """Return a machine, with devices, in equal parts.

    Raises:
        InputError: it cannot be cut so, or there is a GPU that CUDA has no number for.
    """
    from alignup.leases.environment import cuda_variables  # noqa: PLC0415  # startup counts
    from alignup.machine_parts import split_machine  # noqa: PLC0415  # as above

    parts = split_machine(
        site.machine,
        count,
        cpus_per_part=cpus_per_part,
        devices=devices,
        inventory=inventory,
        preferred_sets=site.preferred_sets,
    )
    return [KnownPart(part, cuda_variables(part.devices, inventory, site.machine)) for part in parts]


class LeaseSource(Protocol):
    """Whoever keeps leases."""

    def prepare(self, request: Request, *, binds: bool) -> None:
        """Do what can be done for a request before its process is there.

        Raises:
            InputError: the request is invalid, or processes are to be bound to another machine than that at hand.
        """

    def acquire(self, claim: Claim, wait: float | None = None) -> Grant:
        """Return what is claimed; it is on record when this returns.

        Args:
            claim: the request, and the process that makes it.
            wait: how many seconds to wait at most until it can be had, in order of arrival; None: not at all.

        Raises:
            AllocationError: it cannot be had now, or not within that time.
            InputError: whoever keeps leases cannot be used, or the request is invalid.
        """

    def give_back(self, lease: LeaseRecord) -> None:
        """End a lease, if it is still there.

        Raises:
            InputError: that cannot be now; the lease ends with its processes.
        """

    def overview(self) -> Overview:
        """Return all leases, and the queue.

        Raises:
            InputError: whoever keeps them cannot be asked.
        """

    def release(self, name: str, *, force: bool) -> KnownLease:
        """End a lease by its name, and return it as it was.

        Raises:
            AllocationError: there is none, or its process runs and `force` is not given.
            InputError: whoever keeps leases cannot be used.
        """

    def parts(self, count: int, cpus_per_part: int, devices: Mapping[str, int]) -> list[KnownPart]:
        """Return the machine, cut into equal parts.

        Raises:
            InputError: it cannot be cut so.
        """
