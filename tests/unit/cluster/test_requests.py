"""What a pod asks of a cluster's rows."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup import read_pod
from alignup.cluster.cluster import REASONS, Cluster, request_of
from alignup.kubernetes.quantity import LARGEST
from alignup.node import Node
from checks.many_cases import check_each
from inputs.machines import machine_of
from inputs.strategies import seeds

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod


def pod_of(first: str, second: str) -> Pod:
    """Return a pod of an init container and another one, with so much memory."""

    def container(name: str, memory: str) -> dict[str, object]:
        return {"name": name, "resources": {"limits": {"cpu": "2", "memory": memory}}}

    spec = {"initContainers": [container("i", first)], "containers": [container("c", second)]}
    return read_pod({"metadata": {"name": "p"}, "spec": spec})


def test_a_request_is_what_the_record_says() -> None:
    pod = pod_of("1Ki", "2Ki")

    assert request_of(pod) == (2, (("memory", 2048),), (), False)
    assert [request_of(one) for one in pod.all_containers] == [
        (2, (("memory", 1024),), (), True),
        (2, (("memory", 2048),), (), False),
    ]


def test_a_fraction_of_a_byte_is_more_than_any_node_has() -> None:
    """So that it has no hints and fails to allocate; the containers beside it are asked as ever."""
    pod = pod_of("1Ki", "512m")

    assert request_of(pod)[1] == (("memory", LARGEST),)
    assert [request_of(one)[1] for one in pod.all_containers] == [
        (("memory", 1024),),
        (("memory", LARGEST),),
    ]


def test_rows_refuse_a_fraction_of_a_byte_as_nodes_do() -> None:
    kinds = product(
        ("container", "pod"),
        ("none", "best-effort", "restricted", "single-numa-node"),
        ("Static", "None"),
        (("512m", "1Gi"), ("1Gi", "512m"), ("1500m", "1500m")),
    )
    check_each(rows_refuse_a_fraction_of_a_byte, [(str(kind), kind) for kind in kinds])


def rows_refuse_a_fraction_of_a_byte(
    scope: str, policy: str, managed: str, memory: tuple[str, str]
) -> None:
    kubelet = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": managed,
        **(
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}
            if managed == "Static"
            else {}
        ),
    }
    node = Node.from_dict({"machine": machine_of(2, 4), "kubelet": kubelet})
    answer = Cluster.from_nodes([node]).evaluate(pod_of(*memory))
    own = node.try_admit(pod_of(*memory))

    assert own.admitted is (managed == "None")
    assert (bool(answer.admitted[0]), REASONS[answer.reason[0]]) == (own.admitted, own.reason)


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_init_containers_hand_their_memory_on_in_a_cluster_as_on_the_node(seed: int) -> None:
    """Where memory is short, in either scope, of one type and of two, on nodes that hold some already."""
    random = Random(seed)
    for _ in range(30):
        machine = machine_of(random.choice([2, 3, 4]), 2)
        pages = random.random() < 0.5
        for one in machine["numaNodes"] if pages else ():
            one["hugepages"] = {"1Gi": random.choice([4, 8])}
        kubelet = {
            "topologyManagerPolicy": random.choice(
                ["best-effort", "restricted", "single-numa-node"]
            ),
            "topologyManagerScope": random.choice(["container", "pod"]),
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        }
        version = random.choice(["1.29", "1.31", "1.36"])
        node = Node.from_dict({"machine": machine, "kubelet": kubelet, "kubeletVersion": version})

        def container(name: str, *, pages: bool = pages) -> dict[str, Any]:
            limits = {"cpu": "1", "memory": f"{random.choice([1, 2, 16, 31, 32, 34, 64])}Gi"}
            if pages and random.random() < 0.7:
                limits["hugepages-1Gi"] = f"{random.choice([1, 4, 5, 8])}Gi"
            always = (
                {"restartPolicy": "Always"}
                if name.startswith("i") and random.random() < 0.2
                else {}
            )
            return {"name": name, "resources": {"limits": limits}, **always}

        def pod(uid: str, inits: int) -> dict[str, Any]:
            spec = {"initContainers": [container(f"i{number}") for number in range(inits)]}
            spec["containers"] = [container(f"c{number}") for number in range(random.randint(1, 2))]
            return {"metadata": {"name": uid, "uid": uid}, "spec": spec}

        node.admit(pod("first", 0))
        cluster = Cluster.from_nodes([node])
        for number in range(3):
            asked = pod(f"p{number}", random.randint(1, 3))
            assert bool(cluster.evaluate(asked).admitted[0]) == bool(node.try_admit(asked)), asked
