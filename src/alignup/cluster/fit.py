"""Finds the nodes that have too little in sum for a pod, as the default scheduler's NodeResourcesFit does.

A kubelet's Topology Manager does not ask this: it ignores resources that its managers do not hand out, and those that
no device plugin has reported. `alignup.cluster.ranking` asks both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.node_totals import Totals
from alignup.kubernetes.node_sums import requested
from alignup.kubernetes.pod_requests import is_pinned_memory
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from alignup.cluster.cluster import Cluster
    from alignup.kubernetes.pod import Pod

__all__ = ["Fit", "Shortage"]

_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class Shortage:
    """The first resource that a node has too little of."""

    resource: str
    asked: int
    """CPUs in thousandths, memory in bytes, devices by number; as for the others."""
    free: int

    @property
    def reason(self) -> str:
        """The default scheduler's words."""
        return f"Insufficient {self.resource}"

    @property
    def message(self) -> str:
        """The amounts in words."""
        return f"{_amount(self.resource, self.asked)} asked, {_amount(self.resource, self.free)} free in sum"


class Fit:
    """The free sums of the nodes of a cluster, at the moment of its making.

    Args:
        cluster: the nodes; of nodes that are known by their amounts only, resources without amounts count as missing.
    """

    __slots__ = ("_free",)

    def __init__(self, cluster: Cluster) -> None:
        self._free: dict[str, npt.NDArray[np.int64]]
        if cluster.nodes:
            totals = Totals(cluster.nodes)
            self._free = {name: totals.free[:, number] for number, name in enumerate(totals.resources)}
        else:
            self._free = {name: cluster.free(name).sum(axis=1) for name in cluster.resources}
            if "cpu" in self._free:
                self._free["cpu"] = self._free["cpu"] * _MILLI

    def shortages(self, pod: Pod, count: int) -> list[Shortage | None]:
        """Return the shortage of each of the first `count` nodes; None where everything suffices.

        CPU and memory are named before other resources, and those by name.
        """
        found: list[Shortage | None] = [None] * count
        wanted = requested(pod)
        for resource in sorted(wanted, key=lambda name: (name != "cpu", name != "memory", name)):
            free = self._free.get(resource, np.zeros(count, np.int64))
            for index in np.flatnonzero(free < wanted[resource]).tolist():
                if found[index] is None:
                    found[index] = Shortage(resource, wanted[resource], int(free[index]))
        return found


def _amount(resource: str, amount: int) -> str:
    if is_pinned_memory(resource):
        return short_bytes(amount)
    return f"{amount / _MILLI:g}" if resource == "cpu" else str(amount)
