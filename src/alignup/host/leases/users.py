"""Counts what each user holds, and says which limit one more lease would exceed."""

from __future__ import annotations

from collections import Counter
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
    """What one user holds; changed by `Users` only.

    Attributes:
        leases: by id.
        names: ids by name.
        amounts: by what they are of, in words.
    """

    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    amounts: Counter[str] = field(default_factory=Counter)


_NOTHING: Final = UserHoldings()


def _amounts_of(lease: LeaseRecord) -> dict[str, int]:
    """Return what a lease adds to its user's holdings."""
    devices = {f"devices of {resource}": len(ids) for resource, ids in lease.devices.items()}
    return {
        "leases": 1,
        "CPUs": len(lease.cpus),
        "bytes of memory": sum(lease.memory_sizes.values()),
        **devices,
    }


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

    def owner_of(self, record: LeaseRecord | Waiter) -> int:
        """Return the user whose lease or request it is."""
        return self._owner if record.uid is None else record.uid

    def of(self, uid: int) -> UserHoldings:
        """Return the holdings of a user; not to be changed."""
        return self._holdings.get(uid, _NOTHING)

    def add(self, uid: int, lease: LeaseRecord) -> None:
        """Add a lease, or replace one that has changed."""
        holdings = self._holdings.setdefault(uid, UserHoldings())
        if lease.id not in holdings.leases:
            holdings.amounts.update(_amounts_of(lease))
        holdings.leases[lease.id] = lease
        holdings.names[lease.name] = lease.id

    def remove(self, uid: int, lease: LeaseRecord) -> None:
        """Remove a lease."""
        holdings = self._holdings[uid]
        holdings.amounts.subtract(_amounts_of(lease))
        del holdings.leases[lease.id]
        holdings.names.pop(lease.name, None)
        if not holdings.leases:
            del self._holdings[uid]

    def check_waiting(self, uid: int, waiting: int) -> None:
        """Refuse another waiting request of a user who has so many.

        Raises:
            AllocationError: they are as many as a user may have.
        """
        limit = self._limits.waiting
        if uid != _ROOT and limit is not None and waiting >= limit:
            raise AllocationError(f"too many waiting requests of one user: the limit is {limit}")

    def excess(self, uid: int, lease: LeaseRecord, *, alone: bool = False) -> str:
        """Return which limit a user would exceed by a lease, as a sentence; empty: none.

        Root has no limits.

        Args:
            uid: the user.
            lease: one that has not been added.
            alone: as if the user held nothing else.
        """
        if uid == _ROOT:
            return ""

        limits = self._limits
        limit_of = {"leases": limits.leases, "CPUs": limits.cpus, "bytes of memory": limits.memory}
        for resource, count in limits.devices.items():
            limit_of[f"devices of {resource}"] = count

        holdings = _NOTHING if alone else self.of(uid)
        for kind, amount in _amounts_of(lease).items():
            limit = limit_of.get(kind)
            total = holdings.amounts[kind] + amount
            if limit is not None and total > limit:
                return f"{total} {kind} are more than the {limit} that one user may have"

        return ""
