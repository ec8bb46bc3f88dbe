"""Holds the record of a user's request to the agent, and of the questions to device plugins that it gives rise to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from alignup.leases.record import Waiter

if TYPE_CHECKING:
    from alignup.leases.process import ProcessIdentity
    from alignup.leases.request import Request

__all__ = ["Asked", "Question", "kinds_of"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a device plugin: which `size` of the available ones it prefers."""

    resource: str
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a user."""

    request: Request
    lease_id: str
    """Never used before, except for this very request."""
    uid: int
    holder: ProcessIdentity
    command: str
    stem: str
    """The lease's name if the request has none; a number is added if it is in use."""
    keeper: ProcessIdentity | None = None
    in_container: bool = False
    """It comes from another PID namespace; its processes are named by their numbers here."""
    advice: dict[Question, tuple[str, ...] | str] = field(default_factory=dict)
    """The answers to the questions that earlier tries gave rise to; a text says why there is none."""

    @property
    def waiter(self) -> Waiter:
        """Its place in the line."""
        return Waiter(self.lease_id, self.holder, kinds_of(self.request))


def kinds_of(request: Request) -> tuple[str, ...]:
    """Return the kinds of things that a request asks for: `cpu`, `memory`, resources of devices."""
    kinds = [resource for resource, _ in request.devices]
    kinds += ["cpu"] if request.cpus or request.part else []
    kinds += ["memory"] if request.memory else []
    return tuple(kinds)
