"""Lets threads use nodes and clusters at once.

Under the thread sanitizer, to find races (`.ci/sanitize`).

    python tests/campaign/threads.py SECONDS [SCENARIO...]

Each scenario is one of the sentences of `docs/threads.md`; without names, all are tried. Answers
are looked at too: one that is torn apart ends it. A cluster of nodes that change reads their
amounts without a lock, and again if they changed meanwhile: the sanitizer does not know such
sequence locks, and is not to be asked about that scenario.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event
from unittest.mock import patch

from alignup import Node, read_machine
from alignup.cluster import Cluster

THREADS = 4
NODES = 40
MACHINE = read_machine("align-up-article")
CONFIG = {
    "topologyManagerPolicy": "best-effort",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "None",
}


def pod(number, cpus):
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": f"p{number}", "uid": f"u{number}"},
        "spec": {"containers": [container]},
    }


def come_and_go(node, seed, is_over):
    """Admit and remove pods of one's own."""
    random, uids, number = Random(seed), [], 0
    while not is_over():
        number += 1
        if uids and random.random() < 0.5:
            node.remove(uids.pop())
        elif node.admit(pod(f"{seed}-{number}", random.randint(1, 6))).admitted:
            uids.append(f"u{seed}-{number}")
        node.try_admit(pod("trial", 2))
    for uid in uids:
        node.remove(uid)


def judge(cluster, seed, is_over):
    """Ask a cluster, alone and with helpers, however little there is to do."""
    while not is_over():
        answer = cluster.evaluate(pod("new", 1 + seed), threads=1 + seed % 2)
        assert set(answer.affinity.tolist()) <= {0, 1, 2, 3}
        cluster.free("cpu")


def own_nodes(pool, is_over):
    """Nodes that share nothing but their machine."""
    nodes = [Node(MACHINE, CONFIG) for _ in range(THREADS)]
    return [pool.submit(come_and_go, node, seed, is_over) for seed, node in enumerate(nodes)]


def one_node(pool, is_over):
    node = Node(MACHINE, CONFIG)
    return [pool.submit(come_and_go, node, seed, is_over) for seed in range(THREADS)]


def one_cluster(pool, is_over):
    cluster = Cluster.from_nodes([Node(MACHINE, CONFIG) for _ in range(NODES)])
    return [pool.submit(judge, cluster, seed, is_over) for seed in range(THREADS)]


def changing_cluster(pool, is_over):
    """Answers are those before or after a change."""
    cluster = Cluster.from_nodes([Node(MACHINE, CONFIG) for _ in range(NODES)])
    half = THREADS // 2
    asking = [pool.submit(judge, cluster, seed, is_over) for seed in range(half)]
    return asking + [
        pool.submit(come_and_go, cluster.nodes[seed], seed, is_over) for seed in range(half)
    ]


SCENARIOS = {
    scenario.__name__: scenario for scenario in (own_nodes, one_node, one_cluster, changing_cluster)
}


def main(seconds, names):
    sys.setswitchinterval(1e-4)
    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    for scenario in scenarios:
        over = Event()
        with (
            ThreadPoolExecutor(THREADS) as pool,
            patch("alignup.cluster.cluster._WORTH_A_THREAD", 0),
        ):
            running = scenario(pool, over.is_set)
            time.sleep(seconds / len(scenarios))
            over.set()
            for future in running:
                future.result()
        sys.stdout.write(f"{scenario.__name__}: nothing found\n")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
