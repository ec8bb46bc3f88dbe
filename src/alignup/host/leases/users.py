"""Counts what each user holds and waits for, and says which limit one more lease would exceed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import AllocationError
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.host.leases.record import LeaseRecord, Waiter

_ROOT: Final = 0


class Limits(Record):
    """The most that each user but root may hold; None: no limit.

    Attributes:
        memory: bytes.
        devices: by resource; one that is missing has no limit.
    """

    leases: int | None = 4096
    waiting: int | None = 256
    cpus: int | None = None
    memory: int | None = None
    devices: Mapping[str, int] = field(default_factory=dict)


class UserHoldings(Record, frozen=False):
    """What one user holds and waits for; changed by `Users` only.

    Attributes:
        leases: by id.
        names: ids by name.
    """

    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    cpus: int = 0
    memory: int = 0
    devices: dict[str, int] = field(default_factory=dict)

    def count(self, lease: LeaseRecord, sign: int) -> None:
        """Add the amounts of a lease, or with a sign of -1, subtract them."""
        self.cpus += sign * len(lease.cpus)
        self.memory += sign * sum(lease.memory_sizes.values())
        for resource, ids in lease.devices.items():
            self.devices[resource] = self.devices.get(resource, 0) + sign * len(ids)


_NOTHING: Final = UserHoldings()


class Users:
    """The holdings of each user, and their limits.

    Args:
        limits: for each user but root.
        owner: the user whose leases and requests say no other.
    """

    __slots__ = ("_holdings", "_limits", "_owner")

    def __init__(self, limits: Limits, owner: int) -> None:
        self._limits = limits
        self._owner = owner
        self._holdings: dict[int, UserHoldings] = {}

    def is_admin(self, uid: int) -> bool:
        """Return whether a user may release and see everything."""
        return uid in {_ROOT, self._owner}

    def owner_of(self, held: LeaseRecord | Waiter) -> int:
        """Return the user whose lease or request it is."""
        return self._owner if held.uid is None else held.uid

    def of(self, uid: int) -> UserHoldings:
        """Return the holdings of a user; not to be changed."""
        return self._holdings.get(uid, _NOTHING)

    def add(self, uid: int, lease: LeaseRecord) -> None:
        """Add a lease, or replace one that has changed."""
        held = self._holdings.setdefault(uid, UserHoldings())
        if lease.id not in held.leases:
            held.count(lease, 1)
        held.leases[lease.id] = lease
        held.names[lease.name] = lease.id

    def remove(self, uid: int, lease: LeaseRecord) -> None:
        """Remove a lease."""
        held = self._holdings[uid]
        held.count(lease, -1)
        del held.leases[lease.id]
        held.names.pop(lease.name, None)
        self._forget_idle(uid)

    def join(self, uid: int, lease_id: str, *, checks: bool = True) -> None:
        """Add a waiting request.

        Raises:
            AllocationError: the user has too many.
        """
        held = self._holdings.setdefault(uid, UserHoldings())
        most = self._limits.waiting
        if checks and uid != _ROOT and most is not None and len(held.waiting - {lease_id}) >= most:
            raise AllocationError(f"too many waiting requests of one user: the limit is {most}")
        held.waiting.add(lease_id)

    def leave(self, uid: int, lease_id: str) -> None:
        """Remove a waiting request."""
        if uid in self._holdings:
            self._holdings[uid].waiting.discard(lease_id)
            self._forget_idle(uid)

    def excess(self, uid: int, lease: LeaseRecord, *, alone: bool = False) -> str:
        """Return which limit a user would exceed by a lease, as a sentence; empty: none. Root has no limits.

        Args:
            uid: the user.
            lease: one that has not been added.
            alone: as if the user held nothing else.
        """
        if uid == _ROOT:
            return ""
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
                return f"{amount} {what} are more than the {most} that one user may have"
        return ""

    def _forget_idle(self, uid: int) -> None:
        held = self._holdings[uid]
        if not (held.leases or held.waiting):
            del self._holdings[uid]
