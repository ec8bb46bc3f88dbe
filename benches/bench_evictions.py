"""Making room: 100 waiting pods on 1,000 nodes at 85 %, beside evaluations of a pod on these nodes.

And what a plan brings: 50 pods that wait on 200 nodes of a fleet, without evictions, by evicting
the cheapest pods, and as planned.
"""

from __future__ import annotations

from random import Random
from time import process_time

from alignup import Cluster, Node, Pod, plan_room, read_pod
from alignup.cluster.evictions import admits, without
from inputs.watched_objects import KUBELET
from rig.workload import node as fleet_node

GIBI = 1 << 30
NODES, WAITING = 1_000, 100
LEAST = 1 / 60_000
"""A plan takes no more processor time than so many evaluations: three seconds beside 0.1 ms."""
MACHINE = {
    "numaNodes": [
        {
            "id": numa_id,
            "memory": 64 * GIBI,
            "cores": [
                {"cpus": [cpu], "socket": numa_id} for cpu in range(16 * numa_id, 16 * numa_id + 16)
            ],
        }
        for numa_id in (0, 1)
    ]
}


def pod(name: str, cpus: int) -> Pod:
    limits = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
    containers = [{"name": "main", "image": "none", "resources": {"limits": limits}}]
    return read_pod({"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}})


def test_plan(benchmark):
    random = Random(0)
    nodes = {}
    for number in range(NODES):
        node = nodes[f"node-{number}"] = Node.from_dict(
            {"machine": MACHINE, "kubelet": KUBELET, "devices": {}}
        )
        for attempt in range(40):
            if len(node.cpu.free_cpus) < 0.15 * 31:
                break
            node.admit(pod(f"p-{number}-{attempt}", random.choice([1, 2, 2, 3, 4, 6])))

    waiting = [pod(f"w-{number}", random.choice([4, 6, 8])) for number in range(WAITING)]
    cluster = Cluster.from_nodes(nodes)
    start = process_time()
    for waiting_pod in waiting:
        cluster.evaluate(waiting_pod)

    evaluation = (process_time() - start) / WAITING
    seconds = []

    def planned():
        start = process_time()
        plan = plan_room(cluster, waiting)
        seconds.append(process_time() - start)
        return plan

    plan = benchmark.pedantic(planned, rounds=1)
    assert not plan.left_out
    copies = {name: node.copy() for name, node in nodes.items()}
    for step in plan.steps:
        if step.action == "evict":
            copies[step.node].remove(step.pod.uid)
        else:
            assert copies[step.node].admit(step.pod)

    benchmark.extra_info["evaluations"] = round(seconds[0] / evaluation)
    assert seconds[0] * LEAST <= evaluation


FLEET, FLEET_WAITING, FULL = 200, 50, 0.85


def fleet(random: Random) -> tuple[dict[str, Node], list[Pod]]:
    """Return nodes of 2 to 8 NUMA nodes whose CPUs are in use up to a part.

    With them come pods that wait there for alignment.
    """
    nodes = {}
    for number in range(FLEET):
        described = fleet_node(number, random)
        described["kubelet"]["topologyManagerPolicy"] = random.choice(
            ["single-numa-node", "restricted"]
        )
        node = nodes[described.pop("name")] = without(Node.from_dict(described), ())
        free_count = len(node.cpu.free_cpus)
        for attempt in range(free_count):
            node.admit(pod(f"{number}-{attempt}", random.choice([1, 1, 2, 2, 3, 4, 6])))
        while len(node.cpu.free_cpus) < (1 - FULL) * free_count:
            node.remove(random.choice(node.pods).uid)

    cluster, waiting = Cluster.from_nodes(nodes), []
    while len(waiting) < FLEET_WAITING:
        candidate = pod(f"w-{random.random()}", random.choice([3, 4, 6, 8]))
        best = cluster.evaluate(candidate, "most-allocated").best(1)
        if len(best):
            assert cluster.nodes[best[0]].admit(candidate)
        else:
            waiting.append(candidate)

    return nodes, waiting


def evicting_the_cheapest(nodes: dict[str, Node], waiting: list[Pod]) -> tuple[int, int, int]:
    """Return how many pods are placed, evicted, and of these find no other place.

    For each pod, the pods with the fewest CPUs of each node go one after the other until it is
    admitted there; the node is one on which fewest go.
    """

    def cheapest(node: Node, count: int) -> list[Pod]:
        return sorted(node.pods, key=lambda victim: victim.exclusive_cpus)[:count]

    now = {name: without(node, ()) for name, node in nodes.items()}
    most_pods = max(len(node.pods) for node in nodes.values())

    # all nodes without so many of their pods, judged at once
    fewer = [
        Cluster.from_nodes(
            {name: without(node, cheapest(node, count)) for name, node in now.items()}
        )
        for count in range(most_pods + 1)
    ]
    placed, evicted = 0, []
    for waiting_pod in waiting:
        choices = (
            (count, name)
            for count, cluster in enumerate(fewer)
            for index in cluster.evaluate(waiting_pod).admitted.nonzero()[0].tolist()
            if admits(cluster.nodes[index], waiting_pod) and (name := cluster.names[index])
        )
        count, name = next(choices, (0, ""))
        if not name:
            continue

        victims = cheapest(now[name], count)
        evicted += victims
        now[name] = without(now[name], victims)
        placed += bool(now[name].admit(waiting_pod))
        for number, cluster in enumerate(fewer):
            cluster.update(name, without(now[name], cheapest(now[name], number)))

    homeless = [
        waiting_pod
        for waiting_pod in evicted
        if not any(node.admit(waiting_pod) for node in now.values() if admits(node, waiting_pod))
    ]
    return placed, len(evicted), len(homeless)


def test_a_plan_beside_evicting_the_cheapest(benchmark):
    """Every pod that a plan evicts has a place, so that more pods run in the end."""
    nodes, waiting = fleet(Random(0))
    greedy = evicting_the_cheapest(nodes, waiting)
    plan = benchmark.pedantic(plan_room, (Cluster.from_nodes(nodes), waiting), rounds=1)
    benchmark.extra_info |= {
        "the cheapest: placed, evicted, lost": greedy,
        "planned: placed, evicted": (len(plan.placements), len(plan.evictions)),
    }
    print(benchmark.extra_info)
    assert len(plan.moves) == len(plan.evictions)
    assert len(plan.placements) >= greedy[0] - greedy[2]
