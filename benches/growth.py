"""Prints how the cost of an answer grows, as tables of Markdown.

    python benches/growth.py

Each figure is the quickest of many: of one admission, or of one pod that is judged on a whole
cluster. One in bold is a knee: from the size before, costs grew by a steeper power of the size than
before.
"""

from __future__ import annotations

from math import log
from time import perf_counter
from typing import TYPE_CHECKING, Any

from alignup import Cluster, Node, read_pod
from cases import Demand, pod_of, scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from alignup import Pod

ROUNDS = 300
STEEP = 0.75
"""The least by which the power of the size is higher at a knee."""

GPU = "example.com/gpu"


def quickest(work: Callable[[], Any], undo: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Return the seconds of the quickest of many times."""
    best = float("inf")
    for _ in range(rounds):
        start = perf_counter()
        work()
        best = min(best, perf_counter() - start)
        undo()
    return best


def admitting(node: Node, pod: Pod) -> float:
    """Return the seconds of an admission."""
    assert node.try_admit(pod).admitted
    return quickest(lambda: node.admit(pod), lambda: node.remove(pod.uid))


def wide(numa_nodes: int) -> Node:
    """Return a node that may have so many NUMA nodes."""
    description = scenario(numa_nodes)
    if numa_nodes > 8:
        description["kubelet"]["topologyManagerPolicyOptions"] = {
            "max-allowable-numa-nodes": str(numa_nodes)
        }
    return Node.from_dict(description)


def by_numa_nodes() -> Iterator[tuple[int, float]]:
    pod = pod_of([Demand(4, 8, {GPU: 1})])
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64):
        yield count, admitting(wide(count), pod)


def by_devices() -> Iterator[tuple[int, float]]:
    """A pod of all but one of them."""
    for count in (2, 8, 32, 64, 128, 256, 512):
        description = scenario(8, "best-effort")
        description["devices"] = {
            GPU: [{"id": f"g{number}", "numa": [number % 8]} for number in range(count)]
        }
        yield (
            count,
            admitting(Node.from_dict(description), pod_of([Demand(4, 8, {GPU: count - 1})])),
        )


def by_containers() -> Iterator[tuple[int, float]]:
    description = scenario(8, cores=16)
    for count in (1, 2, 4, 8, 16, 32):
        yield count, admitting(Node.from_dict(description), pod_of([Demand(1, 1, {})] * count))


def by_pods() -> Iterator[tuple[int, float]]:
    """On a node that holds so many others, each with a share of the CPUs."""
    pod = pod_of([Demand(4, 8, {GPU: 1})])
    node = wide(8)
    admitted = 0
    for count in (0, 10, 100, 300, 900):
        for number in range(admitted, count):
            name, requests = f"p{number}", {"cpu": "10m", "memory": "16Mi"}
            containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
            assert node.admit(
                {"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}}
            )
        admitted = count
        yield count, admitting(node, pod)


def by_nodes(kinds: int) -> Iterator[tuple[int, float]]:
    """One pod on a cluster of so many nodes, which are in so many states; 0: in one each."""
    policies = ("best-effort", "restricted", "single-numa-node")
    pod = read_pod(Demand(4, 8, {GPU: 1}).manifest("pod"))
    for count in (1_000, 2_000, 5_000, 10_000, 20_000, 50_000):
        nodes = []
        for number in range(kinds or count):
            description = scenario(8, policies[number % 3])
            if not kinds:
                description["machine"]["numaNodes"][7]["memory"] += number << 12
            nodes.append(Node.from_dict(description))
            for pod_number in range(number % 4):
                nodes[-1].admit(
                    Demand(4 + number % 5, 4, {GPU: pod_number}).manifest(f"old-{pod_number}")
                )

        cluster = Cluster.from_nodes(nodes[number % len(nodes)].copy() for number in range(count))
        assert cluster.evaluate(pod).admitted.any()
        # called at once
        yield count, quickest(lambda: cluster.evaluate(pod), lambda: None, 60)  # noqa: B023


AXES = {
    "NUMA nodes": by_numa_nodes,
    "devices, all but one asked for": by_devices,
    "containers": by_containers,
    "pods on the node": by_pods,
    "nodes in 60 states": lambda: by_nodes(60),
    "nodes of which each differs": lambda: by_nodes(0),
}


def table(name: str, points: Iterable[tuple[int, float]]) -> Iterator[str]:
    """Yield the lines of one table, in microseconds."""
    measured = list(points)
    slopes = []
    cells = []
    for number, (size, seconds) in enumerate(measured):
        text = f"{seconds * 1e6:,.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"
        if number and measured[number - 1][0]:
            before, seconds_before = measured[number - 1]
            slope = log(seconds / seconds_before) / log(size / before)
            if slopes and slope > max(min(slopes), 0) + STEEP:
                text = f"**{text}**"
            slopes.append(slope)

        cells.append(text)

    yield f"| {name} | " + " | ".join(f"{size:,}" for size, _ in measured) + " |"
    yield "|---|" + "--:|" * len(measured)
    yield "| µs | " + " | ".join(cells) + " |"
    yield ""


def main() -> None:
    """Print all tables."""
    for name, axis in AXES.items():
        for line in table(name, axis()):
            print(line, flush=True)


if __name__ == "__main__":
    main()
