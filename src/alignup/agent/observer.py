"""Declares who is told what happens at the agent, such as `alignup.agent.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignup.leases.record import LeaseRecord

__all__ = ["Observer"]


class Observer:
    """Is told about requests; this one does nothing with it."""

    def admitted(self, lease: LeaseRecord, seconds: float) -> None:
        """Record a request that got a lease, and how long it took from its arrival."""

    def refused(self, reason: str, seconds: float) -> None:
        """Record a request that got none."""

    def waited(self, seconds: float) -> None:
        """Record how long a request that was willing to wait had to."""
