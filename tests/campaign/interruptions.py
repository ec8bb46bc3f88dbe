"""Raises from a signal handler in random operations on nodes and a cluster.

Under the sanitizers (`.ci/sanitize`).

    python tests/campaign/interruptions.py SECONDS [THREADS]

SIGALRM comes at random moments, once or again and again, while pods are admitted, tried, resized
and removed, and a cluster is updated and asked; other threads use the same nodes meanwhile. Every
fifty operations all pods are removed: a node that has not all it had, or a cluster that disagrees
with its nodes, ends it.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event
from unittest.mock import patch

from alignup import Node
from alignup.cluster import Cluster

GPU = "example.com/gpu"
KUBELET = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0-1",
    "featureGates": {"InPlacePodVerticalScalingExclusiveCPUs": True},
}
RESERVED = {
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
ROUND = 50


class Interrupted(BaseException):
    """What nobody catches."""


def node_of(kubelet):
    devices = {GPU: [{"id": f"g{i}", "numa": i % 2} for i in range(8)]}
    document = {
        "machine": "xeon-2s",
        "kubelet": kubelet,
        "devices": devices,
        "kubeletVersion": "1.33",
    }
    return Node.from_dict(document)


def pod(uid, *amounts):
    containers = []
    for i, (cpus, gpus) in enumerate(amounts):
        requests = {"cpu": str(cpus), "memory": "1Gi", GPU: str(gpus)}
        resources = {"requests": requests, "limits": requests}
        containers.append({"name": f"c{i}", "resources": resources})

    return {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": containers}}


def given_out(node):
    """Return what is given out, as each ledger counts it."""
    memory = None
    if node.memory is not None:
        memory = node.memory.ledger.free

    return (
        node.cpu.ledger.given,
        {name: pool.ledger.given for name, pool in node.pools.items()},
        memory,
    )


class Operations:
    """Random operations on nodes and a cluster of copies of them.

    `handle` ends them at random moments.
    """

    def __init__(self, seed):
        self.random = Random(seed)
        self.nodes = [node_of(KUBELET), node_of({**KUBELET, **RESERVED})]
        self.empty = [given_out(node) for node in self.nodes]
        self.cluster = Cluster.from_nodes({"a": self.nodes[0].copy(), "b": self.nodes[1].copy()})
        self.done = Counter()
        self.interrupted = Counter()
        self.number = 0
        self.again = 0

    def handle(self, _signal, frame):
        while frame is not None:  # only in what is tried, however late it comes
            if frame.f_code is Operations.operate.__code__:
                if self.again:
                    self.again -= 1
                    signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-6, 2e-4))
                raise Interrupted
            frame = frame.f_back

    def operate(self, kind, node, uid, uids):
        if kind == "remove":
            node.remove(self.random.choice(uids))
        elif kind == "resize":
            amounts = {"cpu": str(self.random.choice([1, 2, 4])), "memory": "1Gi"}
            node.resize(self.random.choice(uids), {"c0": {"requests": amounts, "limits": amounts}})
        elif kind == "update":
            self.cluster.update(self.random.choice("ab"), node.copy())
        elif kind == "evaluate":
            self.cluster.evaluate(pod(uid, (4, 1)), threads=self.random.choice([1, 2]))
        else:
            amounts = [
                (self.random.choice([1, 2, 4, 70]), self.random.choice([0, 0, 1, 2]))
                for _ in range(self.random.choice([1, 1, 2]))
            ]
            if kind == "try":
                node.try_admit(pod(uid, *amounts))
            else:
                node.admit(pod(uid, *amounts))

    def attempt(self):
        """Try one operation, and interrupt it."""
        self.number += 1
        node = self.random.choice(self.nodes)
        uids = [pod_record.uid for pod_record in node.pods if pod_record.uid.startswith("main")]
        kinds = ["admit", "admit", "admit", "try", "update", "evaluate"]
        if uids:
            kinds += ["remove", "remove", "resize"]

        kind = self.random.choice(kinds)
        self.done[kind] += 1

        try:
            moment = self.random.uniform(1e-6, self.random.choice([1e-4, 1e-3, 1e-2]))
            # while what the first one interrupted is being undone
            self.again = self.random.choice([0, 0, 0, 1, 5])
            signal.setitimer(signal.ITIMER_REAL, moment)
            self.operate(kind, node, f"main{self.number}", uids)
        except Interrupted:
            self.interrupted[kind] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def look(self):
        """Remove all pods, and compare."""
        for node in self.nodes:
            for pod_record in node.pods:
                node.remove(pod_record.uid)
        assert [given_out(node) for node in self.nodes] == self.empty
        admitted = self.cluster.evaluate(pod("new", (4, 1))).admitted.tolist()
        assert admitted == [
            node.try_admit(pod("new", (4, 1))).admitted for node in self.cluster.nodes
        ]


def come_and_go(nodes, seed, is_over, barrier):
    """Admit and remove pods of one's own, until all others are to look."""
    random, number = Random(seed), 0
    while not is_over():
        for _ in range(ROUND):
            number += 1
            uid, node = f"t{seed}-{number}", random.choice(nodes)
            if node.admit(pod(uid, (random.randint(1, 4), random.randint(0, 1)))).admitted:
                node.remove(uid)
        barrier.wait(600)
        barrier.wait(600)


def main(seconds, threads):
    sys.setswitchinterval(1e-4)
    # Python itself drops what is raised while a generator is closed
    sys.unraisablehook = lambda _: None
    tried, over, barrier = Operations(1), Event(), Barrier(threads)
    signal.signal(signal.SIGALRM, tried.handle)
    stop = time.monotonic() + seconds
    with (
        ThreadPoolExecutor(threads) as pool,
        # helpers take part, however little there is to do
        patch("alignup.cluster.cluster._WORTH_A_THREAD", 0),
    ):
        futures = [
            pool.submit(come_and_go, tried.nodes, seed, over.is_set, barrier)
            for seed in range(1, threads)
        ]
        try:
            while not over.is_set():
                for _ in range(ROUND):
                    tried.attempt()
                barrier.wait(600)
                tried.look()
                if time.monotonic() > stop:
                    over.set()
                barrier.wait(600)
        finally:
            over.set()
            if sys.exc_info()[0] is not None:
                barrier.abort()

        for future in futures:
            future.result()

    done, interrupted = sum(tried.done.values()), sum(tried.interrupted.values())
    sys.stdout.write(
        f"interruptions, {threads} threads: {done} operations, {interrupted} interrupted: nothing "
        "found\n"
    )
    sys.stdout.write(f"interrupted by kind: {dict(sorted(tried.interrupted.items()))}\n")
    assert all(tried.interrupted[kind] for kind in tried.done), tried.interrupted


if __name__ == "__main__":
    threads = 1
    if len(sys.argv) > 2:
        threads = int(sys.argv[2])
    main(float(sys.argv[1]), threads)
