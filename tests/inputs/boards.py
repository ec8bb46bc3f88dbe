"""Boards of nodes that are reduced to amounts, and what they answer."""

from __future__ import annotations

import numpy as np

from alignup.core.amounts.board import Distances, Row
from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger
from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from alignup.core.amounts.memory_ledger import MemoryCapacity, MemoryLedger

NONE, BEST_EFFORT, RESTRICTED, SINGLE = range(4)
NEAR = Distances(((10, 20), (20, 10)))


def memory(nodes=2, **types):
    return MemoryLedger(
        MemoryCapacity(
            {kind: [amount] * nodes for kind, amount in (types or {"memory": 100}).items()}
        )
    )


def devices(nodes=2, places=(1, 1, 2, 2)):
    return DeviceLedger(DeviceInventory(nodes, list(places), (1 << len(places)) - 1, len(places)))


def cpus(*counts):
    return CpuLedger.from_counts(CpuCapacity.from_counts(list(counts), list(counts)), list(counts))


def row(nodes=2, policy=RESTRICTED, **more):
    fields = {
        "pod_scope": False,
        "cpu": None,
        "memory": None,
        "devices": {},
        "distances": None,
        **more,
    }
    return Row(numa_nodes=nodes, policy=policy, **fields)


def full_row(policy=RESTRICTED):
    return row(
        policy=policy, cpu=cpus(4, 4), memory=memory(), devices={"gpu": devices()}, distances=NEAR
    )


def asking(cpus=0, memory=0, gpus=0, *, containers=1, is_reusable=False):
    """Return the requests of a pod of equal containers, the pod's own first."""

    def request(times=1):
        sizes = (("memory", memory * times),) if memory else ()
        counts = (("gpu", gpus * times),) if gpus else ()
        return cpus * times, sizes, counts, is_reusable

    return [request(containers), *[request() for _ in range(containers)]]


def answers(count):
    return [
        np.zeros(count, kind)
        for kind in (np.uint8, np.uint8, np.uint64, np.uint8, np.float64, np.uint8)
    ]


def judged(board, job, strategy=0, nodes=None):
    """Return (admitted, reason, affinity, preferred, score, exact) of each node."""
    got = answers(len(board))
    stop = len(board) if nodes is None else len(nodes)
    board.judge(job, strategy, 0, stop, nodes, *got)
    return list(zip(*[column.tolist() for column in got], strict=True))
