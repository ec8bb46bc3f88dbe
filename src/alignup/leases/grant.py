"""Declares who keeps leases, and the records of what they give: a lease with what its holder needs to know beside it.

The leases of a file are given by `alignup.leases.source`, those of an agent by `alignup.leases.agent_client`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from alignup.leases.acquire import Claim
    from alignup.leases.machine_parts import Part
    from alignup.leases.record import LeaseRecord, MachineIdentity
    from alignup.leases.request import Request

__all__ = ["AGENT_VARIABLE", "Grant", "KnownLease", "KnownPart", "LeaseSource"]

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

    def environment(self) -> dict[str, str]:
        """Return the variables of a command that has the lease."""
        from alignup.leases.environment import lease_variables  # noqa: PLC0415  # startup counts

        found = lease_variables(self.lease, self.machine, self.state, self.cuda)
        return {**found, AGENT_VARIABLE: self.agent} if self.agent else found


@dataclass(frozen=True, slots=True)
class KnownLease:
    """A lease, and whether its processes run."""

    lease: LeaseRecord
    state: str


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of the machine, and the variables that make CUDA see its GPUs."""

    part: Part
    cuda: Mapping[str, str] = field(default_factory=dict)


class LeaseSource(Protocol):
    """Whoever keeps leases."""

    def prepare(self, request: Request, *, binds: bool) -> None:
        """Do what can be done for a request before its process is there.

        Raises:
            InputError: the request cannot be, or processes are to be bound to another machine than that at hand.
        """

    def acquire(self, claim: Claim, wait: float | None = None) -> Grant:
        """Return what is claimed, as `alignup.leases.acquire.acquire` does.

        Raises:
            AllocationError: it cannot be had now, or not within that time.
            InputError: whoever keeps leases cannot be used, or the request cannot be.
        """

    def give_back(self, lease: LeaseRecord) -> None:
        """End a lease, if it is still there.

        Raises:
            InputError: that cannot be now; the lease ends with its processes.
        """

    def leases(self) -> list[KnownLease]:
        """Return all leases.

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
