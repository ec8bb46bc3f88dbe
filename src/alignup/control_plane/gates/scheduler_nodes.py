"""The nodes as kube-scheduler has them: their objects, and the sums of the pods on them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from alignup.control_plane.gates.scheduler_rules import NodeLoad, refusal
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.control_plane.gates.waiting_pods import WaitingPod
    from alignup.kubernetes.node_fit import NodeObject

# Of so many different pods it is looked at which nodes may take them.
_MOST_LOOKED_AT: Final = 20


class SchedulerNodes:
    """Node objects by name, and the sums of the pods that count as bound to each.

    The load of a node is always that of the pods which `ClusterState` counts on it: who tells the
    one of a pod tells the other. Sums stay when an object goes, as long as its pods do.

    Attributes:
        objects: the nodes that are there.
        changed: the names of nodes on which more may fit than before, until somebody has asked
            them.
    """

    def __init__(self) -> None:
        self.objects: dict[str, NodeObject] = {}
        self.changed: set[str] = set()
        self._loads: dict[str, NodeLoad] = {}
        # Of all nodes that are there, what they have.
        self._totals: Counter[str] = Counter()

    def seen(self, node: NodeObject) -> bool:
        """Take in a node that is new or changed; return whether anything of it is."""
        before = self.objects.get(node.name)
        self.objects[node.name] = node
        if before == node:
            return False

        self._totals.update(node.allocatable)
        if before is not None:
            self._totals.subtract(before.allocatable)

        self.changed.add(node.name)
        return True

    def gone(self, name: str) -> None:
        """Take in that a node was deleted; an unknown one is no error."""
        before = self.objects.pop(name, None)
        if before is not None:
            self._totals.subtract(before.allocatable)

        # names of nodes may never come again
        empty = [
            other
            for other, load in self._loads.items()
            if not load.pods and other not in self.objects
        ]
        for other in empty:
            del self._loads[other]

    def load(self, name: str) -> NodeLoad:
        """Return the sums of a node's pods, to read or to change."""
        load = self._loads.get(name)
        if load is None:
            load = self._loads[name] = NodeLoad()
        return load

    def free(self, name: str) -> dict[str, int]:
        """Return what the sums of a node's pods leave; nothing, where it may take no pod."""
        node = self.objects.get(name)
        if node is None:
            return {}

        amounts = self.load(name).amounts
        return {
            resource: amount - amounts[resource] for resource, amount in node.allocatable.items()
        }

    def cpus_in_use(self, name: str) -> tuple[int, str]:
        """Return by what nodes are sorted, those in which least is used first."""
        return self.load(name).amounts["cpu"], name

    def refusal(self, pod: WaitingPod, name: str) -> str:
        """Return the scheduler's first reason not to put a pod on a node; empty: it would.

        A pod that was let go finds the label there that it asks for.
        """
        return self._refusal(pod, name, self.load(name))

    def _refusal(self, pod: WaitingPod, name: str, load: NodeLoad) -> str:
        """Return what `refusal` does, for a node that has certain sums."""
        node = self.objects[name]
        if not pod.is_gated:
            node = replace(node, labels={**node.labels, pod.label: "true"})
        return refusal(pod.kind.constrained, node, load)

    def that_may_take(self, pods: Iterable[WaitingPod]) -> list[str]:
        """Return the nodes that would take one of some pods if no other one were there.

        Where there are many different pods, these are all nodes.
        """
        different = list({pod.kind: pod for pod in pods}.values())
        if len(different) > _MOST_LOOKED_AT:
            return list(self.objects)

        empty = NodeLoad()
        return [
            name
            for name in self.objects
            if any(not self._refusal(pod, name, empty) for pod in different)
        ]

    def refusal_beside_others(self, pod: WaitingPod, name: str) -> str:
        """Return what `refusal` does for a pod that counts on the node already."""
        load = self.load(name)
        load.remove(pod.watched.pod)
        try:
            return self.refusal(pod, name)
        finally:
            load.add(pod.watched.pod)

    def would_take(self, pod: WaitingPod, name: str, load: NodeLoad) -> bool:
        """Return whether a node would take a pod if it had certain sums."""
        node = self.objects.get(name)
        return node is not None and not refusal(pod.kind.constrained, node, load)

    def most_of(self, pod: WaitingPod, name: str) -> int:
        """Return how many copies of a pod the sums of a node leave room for."""
        if pod.watched.pod.constraints.host_ports:
            return 1

        free = self.free(name)
        return min(pod.kind.most_in(free), free.get("pods", 0) - self.load(name).pods)

    def part_of(self, pod: WaitingPod) -> float:
        """Return the part of the cluster that a pod takes, of the resource it takes most of."""
        return max(
            (
                amount / self._totals[resource]
                for resource, amount in pod.kind.requests.items()
                if self._totals[resource] > 0
            ),
            default=0.0,
        )
