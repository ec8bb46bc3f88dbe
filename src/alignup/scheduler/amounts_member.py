"""One node of which only a NodeResourceTopology object is known: counts what pods take that it does not list yet.

The object has amounts for each NUMA node. A pod that was bound since is subtracted where the kubelet would most likely
place it, until the object catches up: its fingerprint says of which pods it knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from alignup.node_resource_topology.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alignup.cluster.rows import NodeAmounts
    from alignup.kubernetes.pod import Pod
    from alignup.node_resource_topology.read import Topology
    from alignup.scheduler.objects import WatchedPod

__all__ = ["AmountsMember", "emptied", "taken_by"]


class AmountsMember:
    """The amounts that an object reports, and the pods that are bound to the node.

    Args:
        name: the name of the node.
        topology: what the object says.
        pods: the pods that are bound to the node; the object is taken to know them.
    """

    __slots__ = ("_pending", "amounts", "name", "pods", "topology")

    def __init__(self, name: str, topology: Topology, pods: Iterable[WatchedPod]) -> None:
        self.name, self.topology = name, topology
        self.pods: dict[str, WatchedPod] = {one.pod.uid: one for one in pods}
        self._pending: dict[str, tuple[int, float]] = {}
        self.amounts = topology.amounts

    @property
    def pending(self) -> tuple[str, ...]:
        """The uids of pods that are bound and that the object does not know yet."""
        return tuple(self._pending)

    def bind(self, bound: WatchedPod, mask: int, now: float) -> None:
        """Count a pod that was bound to the node.

        Args:
            bound: the pod.
            mask: the NUMA nodes where it would be placed, bit i for the i-th zone; 0: anywhere.
            now: seconds on any clock that never goes back.
        """
        uid = bound.pod.uid
        if uid not in self.pods:
            self._pending[uid] = mask, now
        self.pods[uid] = bound
        self._count()

    def gone(self, uid: str) -> None:
        """Forget a pod that has ended; what the object counted for it stays taken until the object changes."""
        self.pods.pop(uid, None)
        if self._pending.pop(uid, None) is not None:
            self._count()

    def report(self, topology: Topology, covered: Iterable[str]) -> bool:
        """Take in what another object says; return whether it made a difference.

        Args:
            topology: what it says.
            covered: the uids of the bound pods that it knows of.
        """
        before = self.amounts
        for uid in covered:
            self._pending.pop(uid, None)
        self.topology = topology
        self._count()
        return self.amounts != before

    def known_to(self, signature: str) -> list[str]:
        """Return the uids of pending pods that a report with this fingerprint knows of.

        A report knows pods in the order in which they were bound. If it matches no such set of pods, none of the
        pending pods is taken to be in it.
        """
        pending = list(self._pending)
        others = [
            (one.pod.namespace, one.pod.name) for uid, one in self.pods.items() if uid not in self._pending
        ]
        for known in range(len(pending), -1, -1):
            some = [self.pods[uid].pod for uid in pending[:known]]
            if fingerprint([*others, *[(pod.namespace, pod.name) for pod in some]]) == signature:
                return pending[:known]
        return []

    def older_than(self, moment: float) -> list[str]:
        """Return the uids of pods that were bound before a moment and are not known to the object."""
        return [uid for uid, (_, since) in self._pending.items() if since < moment]

    def _count(self) -> None:
        """Subtract the pods that the object does not know."""
        self.amounts = self.topology.amounts
        for uid, (mask, _) in self._pending.items():
            self.amounts = taken_by(self.amounts, self.pods[uid].pod, mask)


def taken_by(amounts: NodeAmounts, pod: Pod, mask: int) -> NodeAmounts:
    """Return what is left when a pod has taken what it asks for.

    Args:
        amounts: what there is.
        pod: the pod.
        mask: the NUMA nodes to take from first, the lowest first; the others give what these lack.
    """
    order = sorted(range(amounts.numa_nodes), key=lambda position: (not mask >> position & 1, position))
    cpus = amounts.cpus
    if cpus is not None and pod.exclusive_cpus:
        cpus = (cpus[0], cpus[1], _less(cpus[2], pod.exclusive_cpus, order))
    return replace(
        amounts,
        cpus=cpus,
        memory=_all_less(amounts.memory, dict(pod.memory), order),
        devices=_all_less(amounts.devices, dict(pod.devices), order),
    )


def emptied(amounts: NodeAmounts) -> NodeAmounts:
    """Return the amounts of the same node without pods."""
    cpus = amounts.cpus
    return replace(
        amounts,
        cpus=None if cpus is None else (cpus[0], cpus[1], cpus[1]),
        memory={name: (there, there) for name, (there, _) in amounts.memory.items()},
        devices={name: (there, there) for name, (there, _) in amounts.devices.items()},
    )


_Pairs = tuple[tuple[int, ...], tuple[int, ...]]


def _all_less(found: Mapping[str, _Pairs], asked: Mapping[str, int], order: list[int]) -> dict[str, _Pairs]:
    return {name: (there, _less(free, asked.get(name, 0), order)) for name, (there, free) in found.items()}


def _less(free: tuple[int, ...], wanted: int, order: list[int]) -> tuple[int, ...]:
    """Return what is left of amounts by NUMA node."""
    left = list(free)
    for position in order:
        given = min(left[position], wanted)
        left[position] -= given
        wanted -= given
    return tuple(left)
