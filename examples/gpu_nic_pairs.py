#!/usr/bin/env python3
"""A device plugin's preference: GPUs and NICs behind one PCIe switch go together.

    gpu_nic_pairs.py

NUMA nodes are too coarse if a node has several switches: the kubelet takes any free NIC of the
node. A plugin may say which devices it prefers (GetPreferredAllocation). This one serves both
resources, and gives the second resource what lies behind the switches of the first. Two pods are
admitted without it and with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from alignup import Node, read_machine

GPU, NIC = "nvidia.com/gpu", "example.com/nic"


class Pairs:
    """Prefers devices behind the same switches.

    Args:
        switches: the switch of each device, by its id.
    """

    def __init__(self, switches: Mapping[str, str]) -> None:
        self.switches = switches
        self.last: tuple[str, set[str]] = ("", set())
        """The resource that was asked for last, and the switches of what was preferred of it."""

    def of(self, resource: str) -> Callable[[Sequence[str], Sequence[str], int], list[str]]:
        """Return the preference for one of the resources."""

        def preferred(
            available: Sequence[str], must_include: Sequence[str], size: int
        ) -> list[str]:
            last_resource, switches = self.last
            preferred_switches = switches if last_resource != resource else set()
            chosen = sorted(
                available,
                key=lambda device: (
                    device not in must_include,
                    self.switches[device] not in preferred_switches,
                ),
            )[:size]
            self.last = (resource, {self.switches[device] for device in chosen})
            return chosen

        return preferred


def make_node(pairs: Pairs | None) -> Node:
    """Return a node of two switches; NICs are listed in the other order than GPUs."""
    devices = {
        GPU: [{"id": f"gpu{i}", "numa": 0} for i in range(4)],
        NIC: [{"id": f"nic{i}", "numa": 0} for i in range(2)],
    }
    plugins = {GPU: pairs.of(GPU), NIC: pairs.of(NIC)} if pairs else {}
    kubelet = {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static"}
    return Node(read_machine("xeon-2s"), kubelet, devices, plugins)


SWITCHES = {"gpu0": "b", "gpu1": "b", "gpu2": "a", "gpu3": "a", "nic0": "a", "nic1": "b"}


def placed(node: Node) -> list[tuple[str, str]]:
    """Admit two pods of a GPU and a NIC each, and return what they got."""
    pairs = []
    for name in ("one", "two"):
        limits = {"cpu": "4", "memory": "1Gi", GPU: 1, NIC: 1}
        manifest = {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        }
        devices = node.admit(manifest).containers["c"].devices
        pairs.append((devices[GPU][0], devices[NIC][0]))
    return pairs


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for label, plugin in (("without", None), ("with", Pairs(SWITCHES))):
        pods = placed(make_node(plugin))
        paired = sum(SWITCHES[gpu] == SWITCHES[nic] for gpu, nic in pods)
        print(f"{label} the plugin: {pods}, {paired} of {len(pods)} behind one switch")
