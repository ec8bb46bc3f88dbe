"""Pods as the resource managers see them: names, and requests that were parsed once.

Reading manifests is the business of `alignup.manifest`; nothing here parses a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Container", "Pod", "QOSClass"]


class QOSClass(str, Enum):
    """The quality of service class that Kubernetes derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class Container:
    """One container's wishes.

    `requests` and `limits` map resource names to whole numbers: `cpu` in thousandths of a CPU, all else in
    units (bytes, devices). The last three fields are what the managers ask for, worked out once:
    """

    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    is_init: bool = False
    """An init container of either kind."""
    is_sidecar: bool = False
    """A restartable init container: it keeps what it gets while the pod runs."""
    exclusive_cpus: int = 0
    """Whole CPUs that a static CPU manager would give it alone; 0: it runs in the shared pool."""
    memory: tuple[tuple[str, int], ...] = ()
    """(`memory` or `hugepages-<size>`, bytes) that a Static memory manager would pin, by name."""
    devices: tuple[tuple[str, int], ...] = ()
    """(resource, count) of extended resources in its limits, by name; any of them may be a device plugin's."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; `exclusive_cpus`, `memory` and `devices` are its effective request, as for a container."""

    uid: str
    name: str
    namespace: str = "default"
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    qos: QOSClass = QOSClass.BEST_EFFORT
    annotations: Mapping[str, str] = field(default_factory=dict)
    exclusive_cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    all_containers: tuple[Container, ...] = ()
    """Init containers, then the others: the order in which they are admitted."""
