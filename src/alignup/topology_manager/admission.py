"""The result of an admission: the verdict, its reason, and the allocation of each container."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.machine.cpuset import CPUSet
    from alignup.providers.memory.provider import MemoryBlock
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.scope import Refusal

__all__ = ["Admission", "ContainerAllocation"]


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """The affinity, CPUs, memory and devices allocated to one container."""

    affinity: TopologyHint | None = None
    """The merged hint; bit i of its mask is `machine.numa_nodes[i]`. None if nothing was decided (policy none)."""
    cpus: CPUSet | None = None
    """The exclusive CPUs; None if the container runs in the shared pool."""
    memory: tuple[MemoryBlock, ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Device ids by resource."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict on one pod."""

    admitted: bool
    reason: str = ""
    """Empty when admitted; otherwise the reason that the kubelet puts into the pod's status."""
    containers: Mapping[str, ContainerAllocation] = field(default_factory=dict)
    """By name, init containers included; empty when refused."""
    refusal: Refusal | None = None
    """The facts behind a refusal."""
    numa_node_ids: tuple[int, ...] | None = None
    """The kernel's ids of the NUMA nodes, in the order of the bits of a mask."""

    @property
    def exact(self) -> bool:
        """Whether every hint is the best one.

        False when a search over more than 8 NUMA nodes reached its limit and the best hint found so far was taken.
        """
        hints = [self.refusal.best] if self.refusal else [got.affinity for got in self.containers.values()]
        return all(hint is None or hint.exact for hint in hints)

    @property
    def message(self) -> str:
        """The cause of the refusal as a sentence; empty when the pod was admitted."""
        if self.refusal is None:
            return ""
        from alignup.topology_manager.refusal_message import refusal_message  # noqa: PLC0415 - only a refusal needs words

        return refusal_message(self.refusal, self.numa_node_ids)
