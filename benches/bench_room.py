"""Making room: 100 waiting pods on 1,000 nodes at 85 %, beside one evaluation of a pod on all of these nodes."""

from __future__ import annotations

from random import Random
from time import process_time

from alignup import Cluster, Node, Pod, plan_room
from watched import KUBELET

GIBI = 1 << 30
NODES, WAITING = 1_000, 100
LEAST = 1 / 60_000
"""A plan takes no more processor time than so many evaluations: three seconds beside 0.1 ms."""
MACHINE = {
    "numaNodes": [
        {
            "id": one,
            "memory": 64 * GIBI,
            "cores": [{"cpus": [cpu], "socket": one} for cpu in range(16 * one, 16 * one + 16)],
        }
        for one in (0, 1)
    ]
}


def pod(name: str, cpus: int) -> Pod:
    limits = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
    containers = [{"name": "main", "image": "none", "resources": {"limits": limits}}]
    return Pod.from_manifest({"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}})


def test_plan(benchmark):
    random = Random(0)
    nodes = {}
    for number in range(NODES):
        node = nodes[f"node-{number}"] = Node.from_dict({"machine": MACHINE, "kubelet": KUBELET, "devices": {}})
        for tried in range(40):
            if len(node.cpu.free_cpus) < 0.15 * 31:
                break
            node.admit(pod(f"p-{number}-{tried}", random.choice([1, 2, 2, 3, 4, 6])))
    waiting = [pod(f"w-{number}", random.choice([4, 6, 8])) for number in range(WAITING)]
    cluster = Cluster.from_nodes(nodes)
    start = process_time()
    for one in waiting:
        cluster.evaluate(one)
    evaluation = (process_time() - start) / WAITING
    took = []

    def planned():
        start = process_time()
        plan = plan_room(cluster, waiting)
        took.append(process_time() - start)
        return plan

    plan = benchmark.pedantic(planned, rounds=1)
    assert not plan.left_out
    copies = {name: node.copy() for name, node in nodes.items()}
    for step in plan.steps:
        if step.action == "evict":
            copies[step.node].remove(step.pod.uid)
        else:
            assert copies[step.node].admit(step.pod)
    benchmark.extra_info["evaluations"] = round(took[0] / evaluation)
    assert took[0] * LEAST <= evaluation
