"""Holds the journal's entries: what happened to the leases, in an order that can be gone through again."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from alignup.leases.record import LeaseRecord, Waiter  # noqa: TC001  # msgspec reads annotations

__all__ = ["Entry", "Freed", "Given", "Joined", "Left"]


class Given(msgspec.Struct, frozen=True, tag="given"):
    """A lease was made."""

    lease: LeaseRecord


class Freed(msgspec.Struct, frozen=True, tag="freed"):
    """A lease has ended."""

    id: str


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Somebody waits."""

    waiter: Waiter


class Left(msgspec.Struct, frozen=True, tag="left"):
    """Somebody waits no longer."""

    id: str


Entry: TypeAlias = Given | Freed | Joined | Left
