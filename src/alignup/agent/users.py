"""Counts what each user holds and waits for, and says when it would be more than they may."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from alignup.errors import AllocationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.leases.record import LeaseRecord

__all__ = ["Holdings", "Limits", "Users"]

_ROOT: Final = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that each user but root may hold; None: no limit."""

    leases: int | None = 4096
    waiting: int | None = 256
    cpus: int | None = None
    memory: int | None = None
    """Bytes."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """By resource; one that is missing has no limit."""


@dataclass(slots=True)
class Holdings:
    """What one user holds and waits for."""

    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    """By id."""
    names: dict[str, str] = field(default_factory=dict)
    """Ids by name."""
    waiting: set[str] = field(default_factory=set)
    cpus: int = 0
    memory: int = 0
    devices: dict[str, int] = field(default_factory=dict)

    def count(self, lease: LeaseRecord, sign: int) -> None:
        """Add what a lease has, or with a sign of -1, take it off."""
        self.cpus += sign * len(lease.cpus)
        self.memory += sign * sum(lease.memory_sizes.values())
        for resource, ids in lease.devices.items():
            self.devices[resource] = self.devices.get(resource, 0) + sign * len(ids)


_NOTHING: Final = Holdings()


class Users:
    """The holdings of each user.

    Args:
        limits: for each user but root.
    """

    __slots__ = ("_holdings", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._holdings: dict[int, Holdings] = {}

    def of(self, uid: int) -> Holdings:
        """Return what a user holds; not to be changed."""
        return self._holdings.get(uid, _NOTHING)

    def add(self, uid: int, lease: LeaseRecord) -> None:
        """Write down a lease, or one that has changed."""
        held = self._holdings.setdefault(uid, Holdings())
        if lease.id not in held.leases:
            held.count(lease, 1)
        held.leases[lease.id] = lease
        held.names[lease.name] = lease.id

    def remove(self, uid: int, lease: LeaseRecord) -> None:
        """Forget a lease."""
        held = self._holdings[uid]
        held.count(lease, -1)
        del held.leases[lease.id], held.names[lease.name]
        self._forget_idle(uid)

    def join(self, uid: int, lease_id: str) -> None:
        """Write down that a user waits for a lease.

        Raises:
            AllocationError: they wait for too many.
        """
        held = self._holdings.setdefault(uid, Holdings())
        most = self._limits.waiting
        if uid != _ROOT and most is not None and lease_id not in held.waiting and len(held.waiting) >= most:
            raise AllocationError(f"expected up to {most} waiting requests of one user, got one more")
        held.waiting.add(lease_id)

    def leave(self, uid: int, lease_id: str) -> None:
        """Write down that a user waits no longer."""
        if uid in self._holdings:
            self._holdings[uid].waiting.discard(lease_id)
            self._forget_idle(uid)

    def check(self, uid: int, lease: LeaseRecord, *, alone: bool = False) -> None:
        """Refuse a lease by which a user would hold more than they may; root may hold anything.

        Args:
            uid: the user.
            lease: one that is not written down yet.
            alone: as if they held nothing else.

        Raises:
            AllocationError: it is so.
        """
        if uid == _ROOT:
            return
        limits, held = self._limits, _NOTHING if alone else self.of(uid)
        wanted: list[tuple[str, int, int | None]] = [
            ("leases", len(held.leases) + 1, limits.leases),
            ("CPUs", held.cpus + len(lease.cpus), limits.cpus),
            ("bytes of memory", held.memory + sum(lease.memory_sizes.values()), limits.memory),
        ]
        wanted += [
            (f"devices of {resource}", held.devices.get(resource, 0) + len(ids), limits.devices.get(resource))
            for resource, ids in lease.devices.items()
        ]
        for what, amount, most in wanted:
            if most is not None and amount > most:
                raise AllocationError(f"expected up to {most} {what} of one user, got {amount}")

    def _forget_idle(self, uid: int) -> None:
        held = self._holdings[uid]
        if not (held.leases or held.waiting):
            del self._holdings[uid]
