"""What the benchmarks run: lists of hints that are hard to merge, machines, and pods.

The pods want something of all resources.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alignup import read_pod
from alignup.topology_manager.hints import HintList
from inputs.machines import GIBI, machine_of
from models import topology_manager as model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from alignup import Node, Pod
    from alignup.topology_manager.admission import ContainerAllocation

FACTOR = float(os.environ.get("ALIGNUP_BENCH_FACTOR", "4"))
"""How much slower than promised this machine may be.

The promises are for the machine that the README names; what catches a regression on any machine are
compare.py and instructions.py.
"""

EVERY_MASK = range(1, 256)
STRETCHES = 20

# What makes a merge hard at 8 nodes: who prefers which of all 255 masks. The third is the worst for
# everybody who walks the product, because every permutation is looked at and none ends it.
HARD = {
    "preferred-exists": lambda _provider: lambda mask: mask.bit_count() == 1,
    "none-in-common": lambda provider: lambda mask: mask == 1 << provider,
    "every-mask-none-preferred": lambda _provider: lambda _mask: False,
}


def pairs_of(name: str, lists: int) -> list[list[model.Hint]]:
    """Return a list of all 255 hints for each of so many providers."""
    return [
        [(mask, HARD[name](provider)(mask)) for mask in EVERY_MASK] for provider in range(lists)
    ]


def providers_of(pairs: Sequence[Sequence[model.Hint]]) -> list[dict[str, HintList]]:
    """Return the same as providers hand them to a policy."""
    return [{"resource": HintList(model.hint_list(hints))} for hints in pairs]


@dataclass(frozen=True)
class Demand:
    """What one container asks for."""

    cpus: int
    gibi: int
    devices: Mapping[str, int]

    def manifest(self, uid: str) -> dict[str, Any]:
        """Return a Guaranteed pod of one container."""
        limits = {
            "cpu": str(self.cpus),
            "memory": f"{self.gibi}Gi",
            **{r: str(n) for r, n in self.devices.items()},
        }
        container = {
            "name": "c0",
            "image": "i",
            "resources": {"limits": limits, "requests": limits},
        }
        return {
            "metadata": {"uid": uid, "name": uid, "namespace": "default"},
            "spec": {"containers": [container]},
        }


ONE_NODE = Demand(4, 8, {"example.com/gpu": 1, "example.com/nic": 1})


def scenario(numa_nodes: int, policy: str = "restricted", cores: int = 8) -> dict[str, Any]:
    """Return a node as `Node.from_dict` takes it, with so many cores a NUMA node.

    It has memory and two kinds of devices.
    """
    return {
        "machine": machine_of(numa_nodes, cores),
        "kubelet": {
            "topologyManagerPolicy": policy,
            "topologyManagerScope": "container",
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        },
        "devices": {
            f"example.com/{kind}": [
                {"id": f"{kind}{n:02}", "numa": [n // 2]} for n in range(2 * numa_nodes)
            ]
            for kind in ("gpu", "nic")
        },
    }


def pod_of(demands: list[Demand], uid: str = "pod") -> Pod:
    """Return a pod with a container for each demand."""
    manifest = demands[0].manifest(uid)
    manifest["spec"]["containers"] = [
        {**demand.manifest(uid)["spec"]["containers"][0], "name": f"c{number}"}
        for number, demand in enumerate(demands)
    ]
    return read_pod(manifest)


def loaded(node: Node, load: float, random: Random) -> Node:
    """Put pods on a node until about such a part is in use.

    Each sits on one NUMA node where the policy has its way.
    """
    for number in range(round(2 * len(node.machine.numa_nodes) * load)):
        cpus = random.choice([4, 6, 8, 8])
        demand = Demand(
            cpus,
            random.choice([4, 12, 16]),
            {f"example.com/{kind}": random.randint(0, 2) for kind in ("gpu", "nic")},
        )
        node.admit(demand.manifest(f"old-{number}"))
    return node


def bank(first: int, second: int) -> int:
    """Return how far two of 64 nodes are apart.

    They are the same, a pair, on a board of 8, in a rack of 16, or anywhere else.
    """
    for width, distance in ((1, 10), (2, 15), (8, 20), (16, 25)):
        if first // width == second // width:
            return distance
    return 30


def big_scenario(policy: str, *, closest: bool) -> dict[str, Any]:
    """Return a node of 64 NUMA nodes, 128 sockets and 256 CPUs.

    It has memory everywhere, and a device in each NUMA node.
    """
    nodes = [
        {
            "id": node,
            "memory": 8 * GIBI,
            "distances": [bank(node, neighbour) for neighbour in range(64)],
            "cores": [
                {"cpus": [4 * node + cpu, 4 * node + cpu + 1], "socket": 2 * node + cpu // 2}
                for cpu in (0, 2)
            ],
        }
        for node in range(64)
    ]
    options = {"max-allowable-numa-nodes": "64"}
    if closest:
        options["prefer-closest-numa-nodes"] = "true"

    return {
        "machine": {"numaNodes": nodes},
        "kubelet": {
            "topologyManagerPolicy": policy,
            "topologyManagerPolicyOptions": options,
            "cpuManagerPolicy": "static",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 63, "limits": {"memory": "1Gi"}}],
        },
        "devices": {
            "example.com/nic": [{"id": f"nic{node:02}", "numa": [node]} for node in range(64)]
        },
    }


def summary(
    allocation: ContainerAllocation,
) -> tuple[int | None, bool | None, str, dict[str, tuple[str, ...]]]:
    """Return what a container got: mask, preferred, CPUs, devices."""
    mask = preferred = None
    affinity = allocation.affinity
    if affinity is not None:
        preferred = affinity.preferred
        mask = None if affinity.affinity is None else int(affinity.affinity)

    return mask, preferred, str(allocation.cpus), dict(allocation.devices)


def quietest(seconds: list[float], part: float) -> float:
    """Return a quantile of the quietest of 20 stretches.

    Other processes come and go, what we do stays.
    """
    length = max(len(seconds) // STRETCHES, 1)
    stretches = [
        sorted(seconds[start : start + length])
        for start in range(0, len(seconds) - length + 1, length)
    ]
    return min(stretch[int(length * part)] for stretch in stretches)
