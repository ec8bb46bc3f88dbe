"""The scheduler framework's verdicts: a code and the reasons for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["SUCCESS", "Status", "StatusCode"]


class StatusCode(StrEnum):
    """What a step of a scheduler says about a pod and a node; names are the framework's."""

    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Not now; another pod's leaving may help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not as this pod and this node are; no other pod's leaving will help."""


@dataclass(frozen=True, slots=True)
class Status:
    """A verdict; `reasons` are sorted."""

    code: StatusCode
    reasons: tuple[str, ...] = ()


SUCCESS = Status(StatusCode.SUCCESS)
