"""What came of an admission: verdict, reason, and what each container got."""

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
    """What one container got."""

    affinity: TopologyHint | None = None
    """Its merged hint; bit i of the mask is `machine.numa_nodes[i]`. None where nothing was decided (policy none)."""
    cpus: CPUSet | None = None
    """Its exclusive CPUs; None: it runs in the shared pool."""
    memory: tuple[MemoryBlock, ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Device ids by resource."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict on one pod."""

    admitted: bool
    reason: str = ""
    """Empty when admitted; else the word that the kubelet puts into the pod's status."""
    containers: Mapping[str, ContainerAllocation] = field(default_factory=dict)
    """By name, init containers included; empty when refused."""
    refusal: Refusal | None = None
    """The facts behind a refusal."""
    numa_node_ids: tuple[int, ...] | None = None
    """What the kernel calls the nodes that masks number by position."""

    @property
    def exact(self) -> bool:
        """Whether every hint is the best there is.

        False when a search over more than 8 NUMA nodes ran into its stated limit and the best so far was taken.
        """
        hints = [self.refusal.best] if self.refusal else [got.affinity for got in self.containers.values()]
        return all(hint is None or hint.exact for hint in hints)

    @property
    def message(self) -> str:
        """Why the pod was refused, in a sentence; empty when it was admitted."""
        if self.refusal is None:
            return ""
        from alignup.topology_manager.refusal_message import refusal_message  # noqa: PLC0415 - only a refusal needs words

        return refusal_message(self.refusal, self.numa_node_ids)
