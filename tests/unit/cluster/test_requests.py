"""What a pod asks of a cluster's rows."""

from __future__ import annotations

import pytest

from alignup.cluster.cluster import REASONS, Cluster
from alignup.cluster.rows import request_of
from alignup.kubernetes.pod import Pod
from alignup.kubernetes.quantity import LARGEST
from alignup.node import Node
from machines import machine_of


def pod_of(first: str, second: str) -> Pod:
    """Return a pod of an init container and another one, with so much memory."""

    def container(name: str, memory: str) -> dict[str, object]:
        return {"name": name, "resources": {"limits": {"cpu": "2", "memory": memory}}}

    spec = {"initContainers": [container("i", first)], "containers": [container("c", second)]}
    return Pod.from_manifest({"metadata": {"name": "p"}, "spec": spec})


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
    assert [request_of(one)[1] for one in pod.all_containers] == [(("memory", 1024),), (("memory", LARGEST),)]


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("managed", ["Static", "None"])
@pytest.mark.parametrize("memory", [("512m", "1Gi"), ("1Gi", "512m"), ("1500m", "1500m")])
def test_rows_refuse_a_fraction_of_a_byte_as_nodes_do(
    scope: str, policy: str, managed: str, memory: tuple[str, str]
) -> None:
    kubelet = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": managed,
        **({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]} if managed == "Static" else {}),
    }
    node = Node.from_dict({"machine": machine_of(2, 4), "kubelet": kubelet})
    answer = Cluster.from_nodes([node]).evaluate(pod_of(*memory))
    own = node.try_admit(pod_of(*memory))

    assert own.admitted is (managed == "None")
    assert (bool(answer.admitted[0]), REASONS[answer.reason[0]]) == (own.admitted, own.reason)
