"""What the rules say of a pod on a node is what a real kube-scheduler does with it there.

Pods and nodes are drawn at random. Each pod is pinned to one node, in the way that the keeper of
gates pins it, and is bound there or not; what is bound counts for the next.
"""

from __future__ import annotations

import os
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates.node_affinity import pinned
from alignup.control_plane.gates.scheduler_rules import NodeLoad, refusal
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.node_fit import NodeObject, node_object
from rig.servers import Server, control_plane

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.rig]

PODS = "/api/v1/namespaces/default/pods"
PAIRS = int(os.environ.get("ALIGNUP_PAIRS", "150"))
SEED = int(os.environ.get("ALIGNUP_SEED", "57"))
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
ZONES = ("east", "west")


@pytest.fixture(scope="module")
def plane() -> Iterator[Any]:
    with control_plane() as plane:
        yield plane


def drawn_node(random: Random, name: str) -> dict[str, Any]:
    """Return a Node object."""
    taints = []
    if random.random() < 0.4:
        value = random.choice(("", "v", "w"))
        taints.append({"key": "k", "value": value, "effect": random.choice(EFFECTS)})

    labels = {"zone": random.choice(ZONES), "kubernetes.io/hostname": name}
    if random.random() < 0.5:
        labels["gen"] = str(random.randint(1, 9))

    amounts = {
        "cpu": f"{random.randint(2, 12) * 500}m",
        "memory": f"{random.randint(1, 8)}Gi",
        "pods": str(random.randint(3, 12)),
        "ephemeral-storage": f"{random.randint(1, 8)}Gi",
    }
    if random.random() < 0.5:
        amounts["example.com/gpu"] = str(random.randint(0, 4))
    if random.random() < 0.3:
        amounts["hugepages-2Mi"] = f"{2 * random.randint(1, 40)}Mi"

    spec: dict[str, Any] = {"taints": taints}
    if random.random() < 0.2:
        spec["unschedulable"] = True

    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def drawn_resources(random: Random) -> dict[str, Any]:
    requests = {}
    if random.random() < 0.8:
        requests["cpu"] = f"{random.randint(0, 6) * 250}m"
    if random.random() < 0.6:
        requests["memory"] = f"{random.randint(0, 1500)}Mi"
    if random.random() < 0.2:
        requests["ephemeral-storage"] = f"{random.randint(0, 2)}Gi"

    limits = {}
    if random.random() < 0.3:
        limits["example.com/gpu"] = str(random.randint(0, 2))
    if random.random() < 0.1 and {"cpu", "memory"} & requests.keys():
        limits["hugepages-2Mi"] = f"{2 * random.randint(1, 10)}Mi"

    return {"requests": requests | limits, "limits": limits}


def drawn_requirement(random: Random) -> dict[str, Any]:
    """Return a requirement of a term of a node affinity."""
    drawn = random.randrange(5)
    if drawn == 0:
        return {
            "key": "zone",
            "operator": random.choice(("In", "NotIn")),
            "values": random.sample(ZONES, random.randint(1, 2)),
        }
    if drawn == 1:
        return {"key": "gen", "operator": random.choice(("Exists", "DoesNotExist"))}
    if drawn == 2:
        values = [random.choice(("0", "5", "05"))]
        return {"key": "gen", "operator": random.choice(("Gt", "Lt")), "values": values}
    if drawn == 3:
        return {"key": "zone", "operator": random.choice(("Gt", "Lt")), "values": ["1"]}
    return {"key": "missing", "operator": "NotIn", "values": ["x"]}


def drawn_toleration(random: Random) -> dict[str, Any]:
    toleration: dict[str, Any] = {"operator": random.choice(("Exists", "Equal", ""))}
    if toleration["operator"] != "Exists":
        toleration |= {"key": "k", "value": random.choice(("", "v"))}
    elif random.random() < 0.6:
        toleration["key"] = random.choice(("k", "x", "node.kubernetes.io/unschedulable"))
    if random.random() < 0.5:
        toleration["effect"] = random.choice(EFFECTS)
    return toleration


def drawn_pod(random: Random, name: str) -> dict[str, Any]:
    containers: list[dict[str, Any]] = [
        {"name": f"c{number}", "image": "x", "resources": drawn_resources(random)}
        for number in range(random.randint(1, 2))
    ]
    spec: dict[str, Any] = {"containers": containers, "terminationGracePeriodSeconds": 0}
    if random.random() < 0.3:
        init = {"name": "init", "image": "x", "resources": drawn_resources(random)}
        if random.random() < 0.5:
            init["restartPolicy"] = "Always"
        spec["initContainers"] = [init]
    if random.random() < 0.3:
        port = {"containerPort": 80, "hostPort": random.choice((80, 81))}
        if random.random() < 0.5:
            port["hostIP"] = random.choice(("127.0.0.1", "127.0.0.2"))
        port["protocol"] = random.choice(("TCP", "UDP"))
        containers[0]["ports"] = [port]
    if random.random() < 0.3:
        spec["nodeSelector"] = {"zone": random.choice(ZONES)}
    if random.random() < 0.5:
        spec["tolerations"] = [drawn_toleration(random) for _ in range(random.randint(1, 2))]
    if random.random() < 0.4:
        terms = [
            {"matchExpressions": [drawn_requirement(random) for _ in range(random.randint(1, 2))]}
            for _ in range(random.randint(1, 2))
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def outcome(server: Server, name: str) -> tuple[str, str]:
    """Return the node that a pod was bound to, and what the scheduler says of it."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pod = server.get(f"{PODS}/{name}")
        if pod["spec"].get("nodeName"):
            return pod["spec"]["nodeName"], ""
        for condition in pod.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                return "", condition["message"]
        time.sleep(0.01)

    raise AssertionError(f"nothing became of {name}")


def test_the_rules_are_those_of_kube_scheduler(plane) -> None:
    server = Server(plane.kubeconfig)
    random = Random(SEED)
    nodes: dict[str, NodeObject] = {}
    loads: dict[str, NodeLoad] = {}
    for number in range(12):
        manifest = drawn_node(random, f"node-{number}")
        status, answer = server.asked("POST", "/api/v1/nodes", manifest)
        assert status == 201, answer
        nodes[manifest["metadata"]["name"]] = node_object(answer)
        loads[manifest["metadata"]["name"]] = NodeLoad()

    seen: dict[str, int] = {}
    for number in range(PAIRS):
        name = f"pod-{number}"
        manifest = drawn_pod(random, name)
        node_name = random.choice(sorted(nodes))
        manifest["spec"]["affinity"] = pinned(manifest["spec"].get("affinity"), [node_name])
        status, answer = server.asked("POST", PODS, manifest)
        assert status == 201, answer["message"]

        pod = read_pod(answer)
        expected = refusal(pod, nodes[node_name], loads[node_name])
        bound_to, message = outcome(server, name)
        assert bool(bound_to) == (expected == ""), (manifest, nodes[node_name], expected, message)
        if bound_to:
            assert bound_to == node_name
            loads[node_name].add(pod)
        else:
            assert expected in message, (expected, message)
            server.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

        kind = expected.partition(" ")[0] if expected.startswith("Insufficient") else expected
        seen[kind] = seen.get(kind, 0) + 1

    assert len(seen) >= 6, seen
