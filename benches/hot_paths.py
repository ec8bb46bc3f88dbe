"""The six paths that users wait for, so that instructions.py can count what each of them takes.

Runs under `valgrind --tool=callgrind --dump-before=getppid`, which writes down what was counted at
every call of `os.getppid`: each path is run between two of them, after the same work has been done
once. A line on standard output names the path and says how often it was run.
"""

from __future__ import annotations

import gc
import os
from random import Random
from typing import TYPE_CHECKING, Any

from alignup import Cluster, Node, read_pod
from alignup.topology_manager.policy import make_policy
from cases import ONE_NODE, Demand, loaded, pairs_of, pod_of, providers_of, scenario

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 100
NODES = 10_000
STATES = 50
LOADS = (0.2, 0.5, 0.8)
STRATEGY = "least-allocated"
SIXTEEN = [Demand(4, 4, {}), Demand(1, 2, {"example.com/gpu": 1})] * 8


def count(name: str, times: int, run: Callable[[], Any]) -> None:
    """Run between two marks what is to be counted, and say so."""
    gc.collect()
    os.getppid()
    run()
    os.getppid()
    print(name, times, flush=True)


def one_node() -> None:
    """A container of CPU, memory and two devices on 8 NUMA nodes: tried, admitted, removed."""
    pod = read_pod(ONE_NODE.manifest("pod"))
    empty = Node.from_dict(scenario(8))
    nodes = [empty.copy() for _ in range(TIMES)]

    def each(do: Callable[[Node], Any]) -> Callable[[], None]:
        def run() -> None:
            for node in nodes:
                do(node)

        return run

    work = {
        "try_admit": each(lambda node: node.try_admit(pod)),
        "admit": each(lambda node: node.admit(pod)),
        "remove": each(lambda node: node.remove("pod")),
    }
    for run in work.values():
        run()

    for name, run in work.items():
        count(name, TIMES, run)
        assert all(len(node.pods) == (name == "admit") for node in nodes)


def merge() -> None:
    """Four lists of 255 hints, none of them preferred."""
    providers, policy = (
        providers_of(pairs_of("every-mask-none-preferred", 4)),
        make_policy("restricted", 8),
    )

    def run() -> None:
        for _ in range(TIMES):
            policy.merge(providers)

    run()
    count("merge of 4 by 255", TIMES, run)


def many_nodes() -> None:
    """One pod against 10,000 nodes of 8 NUMA nodes, a fifth to four fifths in use."""
    random = Random(1)
    empty = Node.from_dict(scenario(8))
    states = [loaded(empty.copy(), random.choice(LOADS), random) for _ in range(STATES)]
    cluster = Cluster.from_nodes(random.choice(states).copy() for _ in range(NODES))
    for name, demands in (("1 container", [ONE_NODE]), ("16 containers", SIXTEEN)):
        pod = pod_of(demands)
        assert cluster.evaluate(pod, STRATEGY).admitted.any()
        count(f"10,000 nodes, {name}", 1, lambda pod=pod: cluster.evaluate(pod, STRATEGY))


if __name__ == "__main__":
    gc.disable()
    one_node()
    merge()
    many_nodes()
