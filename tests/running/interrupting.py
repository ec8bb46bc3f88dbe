"""A node that exceptions from outside interrupt.

And a program in which a signal's handler raises at random moments.
"""

from __future__ import annotations

import random
import signal
import sys
from typing import TYPE_CHECKING, Any

from alignup.node import Node
from alignup.node.holdings import holdings_of

if TYPE_CHECKING:
    from types import FrameType

GPU = "example.com/gpu"
GIB = "1Gi"


class Interrupted(BaseException):
    """What nobody catches."""


def node_of(**more: Any) -> Node:
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0-1",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": GIB}}],
        **more.pop("kubelet", {}),
    }
    devices = {GPU: [{"id": f"g{i}", "numa": i % 2} for i in range(8)]}
    return Node.from_dict({"machine": "xeon-2s", "kubelet": kubelet, "devices": devices, **more})


def container(name: str, cpu: str = "2", memory: str = GIB, gpus: int = 1) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    if gpus:
        amounts[GPU] = str(gpus)
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}}


def pod(uid: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": uid, "uid": uid, **spec.pop("metadata", {})}
    return {
        "metadata": metadata,
        "spec": {"containers": list(containers or (container("c"),)), **spec},
    }


def state(node: Node) -> tuple[object, ...]:
    """Return all that can be seen of a node, and what its ledgers and managers keep."""
    ledger = None if node.memory is None else node.memory.ledger

    return (
        node.pods,
        holdings_of(node),
        str(node.shared_cpus),
        node.cpu and node.cpu.ledger.given,
        {resource: pool.ledger.given for resource, pool in node.pools.items()},
        ledger and (ledger.free, ledger.groups, ledger.alone, ledger.unused),
        {admitted.uid: dict(node.manager.affinities(admitted.uid)) for admitted in node.pods},
        {
            admitted.uid: [
                node.allocation(admitted.uid, each.name) for each in admitted.all_containers
            ]
            for admitted in node.pods
        },
        node.occupancy,
    )


def interrupt_at_random(seed: int) -> None:
    """Raise in thousands of operations on a node, and look after each what is held."""
    draw, node = random.Random(seed), node_of()
    fresh = state(node)

    def handle(_: int, frame: FrameType | None) -> None:
        while frame is not None:  # only in what is tried, however late it comes
            if frame.f_code is operate.__code__:
                raise Interrupted
            frame = frame.f_back

    def operate(uid: str, uids: list[str]) -> None:
        if uids and draw.random() < 0.4:
            node.remove(draw.choice(uids))
            return

        manifest = pod(
            uid, container("c", draw.choice(["1", "2", "4", "70"]), gpus=draw.choice([0, 1, 2]))
        )
        admit = node.try_admit if draw.random() < 0.2 else node.admit
        admit(manifest)

    was = signal.signal(signal.SIGALRM, handle)
    interruptions = 0
    try:
        for number in range(3000):
            uids = [admitted.uid for admitted in node.pods]
            try:
                # once, or again and again while what the first one interrupted is being undone
                signal.setitimer(
                    signal.ITIMER_REAL, draw.uniform(1e-6, 4e-4), draw.choice([0, 0, 0, 5e-5])
                )
                operate(f"p{number}", uids)
            except Interrupted:
                interruptions += 1

            signal.setitimer(signal.ITIMER_REAL, 0)
            assert {admitted.uid for admitted in node.pods} - {f"p{number}"} <= set(uids)

            if number % 50 == 49:
                for admitted in node.pods:
                    node.remove(admitted.uid)
                assert state(node)[1:6] == fresh[1:6]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)

    assert interruptions


if __name__ == "__main__":
    interrupt_at_random(int(sys.argv[1]))
