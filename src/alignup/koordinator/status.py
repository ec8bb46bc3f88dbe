"""The scheduler framework's verdicts: a code and the reasons for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["SUCCESS", "Status", "StatusCode"]


class StatusCode(StrEnum):
    """The codes with which a step of a scheduler judges a pod and a node; names are the framework's."""

    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Not now; it may help when another pod leaves."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not with this pod and this node, whichever other pods leave."""


@dataclass(frozen=True, slots=True)
class Status:
    """A verdict; `reasons` are sorted."""

    code: StatusCode
    reasons: tuple[str, ...] = ()


SUCCESS = Status(StatusCode.SUCCESS)
