#!/usr/bin/env python3
"""A hint provider of your own: licences of a simulator, tied to cards in NUMA nodes.

    licences.py

A node asks it as it asks its own managers. Pods request licences like devices, and a refusal names
them. Three pods are admitted on the catalog machine `xeon-2s` until there are too few licences.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from alignup import AllocationError, BitMask, Container, Node, Pod, TopologyHint, read_machine

RESOURCE = "example.com/licence"


@dataclass
class Licences:
    """Licences by NUMA node, by position; those of a node serve only there."""

    free: list[int]
    holdings: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)

    def topology_hints(
        self, _pod: Pod, container: Container
    ) -> dict[str, list[TopologyHint]] | None:
        """Offer each NUMA node that has enough, and all together where none has."""
        return self.hints(dict(container.devices).get(RESOURCE, 0))

    def pod_topology_hints(self, pod: Pod) -> dict[str, list[TopologyHint]] | None:
        """Offer the same for a pod as a whole."""
        return self.hints(dict(pod.devices).get(RESOURCE, 0))

    def hints(self, count: int) -> dict[str, list[TopologyHint]] | None:
        """Return the hints; None where no licence is asked for.

        There are no hints at all where there are too few licences.
        """
        if not count:
            return None

        hints = [
            TopologyHint(BitMask([node]), True)
            for node, free in enumerate(self.free)
            if free >= count
        ]
        if sum(self.free) >= count:
            hints.append(TopologyHint(BitMask(range(len(self.free))), len(self.free) == 1))

        return {RESOURCE: hints}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Take licences, of the affinity's nodes first."""
        requested = dict(container.devices).get(RESOURCE, 0)
        near = range(len(self.free)) if affinity.affinity is None else affinity.affinity
        taken: dict[int, int] = {}
        for node in near:
            taken[node] = min(self.free[node], requested - sum(taken.values()))

        if sum(taken.values()) < requested:
            message = f"expected {requested} licences near the affinity, got {sum(taken.values())}"
            raise AllocationError(message, resources=(RESOURCE,))

        for node, count in taken.items():
            self.free[node] -= count
        self.holdings[pod.uid, container.name] = taken

    def release(self, pod_uid: str, container_name: str) -> None:
        """Give back what a container holds."""
        for node, count in self.holdings.pop((pod_uid, container_name), {}).items():
            self.free[node] += count

    def account(self, pod: Pod, container: Container | None) -> dict[str, object]:
        """Say in a refusal how many were asked for and free."""
        requested = dict((container or pod).devices).get(RESOURCE, 0)
        sentence = f"{requested} asked, {sum(self.free)} free"
        return {RESOURCE: lambda: sentence} if requested else {}

    def copy(self) -> Licences:
        """Return an independent provider, for what-if questions."""
        holdings = {key: taken.copy() for key, taken in self.holdings.items()}
        return Licences(self.free.copy(), holdings)


def pod(name: str, cpus: int, licences: int) -> dict:
    """Return the manifest of a pod."""
    limits = {"cpu": str(cpus), "memory": "1Gi", RESOURCE: licences}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    kubelet = {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static"}
    node = Node(read_machine("xeon-2s"), kubelet, providers=[Licences([1, 3])])
    for name, licences in (("first", 2), ("second", 1), ("third", 2)):
        admission = node.admit(pod(name, 8, licences))
        if admission:
            print(name, f"CPUs {admission.containers['main'].cpus}")
        else:
            print(name, f"{admission.reason}: {admission.message}")
