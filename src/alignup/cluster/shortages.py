"""Tells what nodes have too little of in total, in the default scheduler's words.

A kubelet's Topology Manager does not ask whether sums suffice: it ignores resources that its
managers do not hand out, and those that no device plugin has reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.node_totals import Totals, counted_amounts
from alignup.kubernetes.node_fit import requests_of
from alignup.kubernetes.pod import Pod, is_pinned_memory
from alignup.records import Record
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from alignup.cluster.cluster import Cluster, Ints, Truths

_MILLI: Final = 1000
_PODS: Final = "pods"


class Shortage(Record):
    """A resource that a node has too little of; `pods`: as many run there as its kubelet takes.

    Attributes:
        request: CPUs in thousandths, memory in bytes, devices by number.
        free: in the same units.
    """

    resource: str
    request: int
    free: int

    @property
    def reason(self) -> str:
        """The default scheduler's words."""
        if self.resource == _PODS:
            return "Too many pods"
        return f"Insufficient {self.resource}"

    @property
    def cause(self) -> str:
        """A few words without amounts."""
        if self.resource == _PODS:
            return "too many pods"
        return f"too little {self.resource} in total"

    @property
    def message(self) -> str:
        """The amounts in words."""
        if self.resource == _PODS:
            return "as many pods run there as its kubelet takes"

        request = _amount(self.resource, self.request)
        free = _amount(self.resource, self.free)
        return f"{request} asked, {free} free in total"


class Fit:
    """The free sums of the nodes of a cluster, at the moment of its making.

    Args:
        cluster: the nodes; of nodes that are known by their amounts only, devices without amounts
            count as missing, and CPUs and memory as not counted: where no manager hands them out,
            exporters leave them out.
    """

    def __init__(self, cluster: Cluster) -> None:
        # By resource, what each node has left: CPUs in thousandths, memory in bytes, devices by
        # number.
        self.free: dict[str, Ints]
        self._count = len(cluster)
        # By node, the resources that no sum bounds.
        self._unbounded: Sequence[frozenset[str]] = [frozenset()] * len(cluster)
        # By node, whether its CPUs and its memory are counted.
        self._counts_cpus = np.ones(self._count, np.bool_)
        self._counts_memory = np.ones(self._count, np.bool_)
        # By node, whether it takes no further pod; of amounts only, this is not known.
        self._is_full = np.zeros(self._count, np.bool_)
        if cluster.nodes:
            totals = Totals(cluster.nodes)
            free = totals.free
            self.free = {name: free[:, number] for number, name in enumerate(totals.resources)}
            self._unbounded = totals.unbounded
            # those known by amounts come last
            self._is_full[: len(cluster.nodes)] = totals.pods_left <= 0
        else:
            self.free = {name: cluster.free(name).sum(axis=1) for name in cluster.resources}
            if "cpu" in self.free:
                self.free["cpu"] = self.free["cpu"] * _MILLI

            self._counts_cpus = self._counted(cluster, lambda name: name == "cpu")
            self._counts_memory = self._counted(cluster, is_pinned_memory)

    def _counted(self, cluster: Cluster, is_meant: Callable[[str], bool]) -> Truths:
        """Return which nodes have an allocatable amount of some of these resources."""
        counted: Truths = np.zeros(self._count, np.bool_)
        for name in filter(is_meant, cluster.resources):
            counted |= cluster.allocatable(name).any(axis=1)
        return counted

    def shortages(self, pod: Pod) -> list[list[Shortage]]:
        """Return what each node has too little of.

        The number of pods comes first, then CPU and memory, then other resources by name.
        """
        shortages_of_nodes: list[list[Shortage]] = [
            [Shortage(_PODS, 1, 0)] if is_full else [] for is_full in self._is_full.tolist()
        ]
        requests = counted_amounts(requests_of(pod))
        for resource in sorted(requests, key=lambda name: (name != "cpu", name != "memory", name)):
            free = self.free.get(resource, np.zeros(self._count, np.int64))
            for index in np.flatnonzero(free < requests[resource]).tolist():
                if resource in self._unbounded[index] or not self._is_counted(resource, index):
                    continue

                shortages_of_nodes[index].append(
                    Shortage(resource, requests[resource], int(free[index]))
                )
        return shortages_of_nodes

    def _is_counted(self, resource: str, index: int) -> bool:
        """Return whether a node's amount of a resource is known, where it has too little."""
        if resource == "cpu":
            return bool(self._counts_cpus[index])
        return not is_pinned_memory(resource) or bool(self._counts_memory[index])


def _amount(resource: str, amount: int) -> str:
    if is_pinned_memory(resource):
        return short_bytes(amount)
    if resource == "cpu":
        return f"{amount / _MILLI:g}"
    return str(amount)
