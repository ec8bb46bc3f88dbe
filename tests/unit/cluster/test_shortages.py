"""What a node has too little of in total is told as the default scheduler tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from alignup import read_pod
from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.cluster.shortages import Fit
from alignup.node import Node
from inputs.cluster_files import TOPOLOGY
from inputs.machines import machine_of

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

GPUS = {"example.com/gpu": [{"id": "g0", "numa": [0]}, {"id": "g1", "numa": [1]}]}


def node() -> Node:
    """Return a node of 2 NUMA nodes with 8 CPUs and 32 GiB each."""
    return Node.from_dict({"machine": machine_of(2, 4), "devices": GPUS})


def pod(limits: dict[str, Any], requests: dict[str, Any] | None = None) -> Pod:
    resources = {"limits": limits, **({"requests": requests} if requests else {})}
    container = {"name": "c0", "resources": resources}
    return read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})


def told(cluster: Cluster, request: Pod) -> list[list[tuple[str, str]]]:
    """Return for each node what it has too little of."""
    shortages = Fit(cluster).shortages(request)
    return [[(shortage.reason, shortage.message) for shortage in short] for short in shortages]


@pytest.mark.parametrize(
    ("request_of_pod", "reason", "message"),
    [
        (pod({"cpu": "5000", "memory": "1Gi"}), "Insufficient cpu", "5000 asked, 16 free in total"),
        (
            pod({"cpu": "1", "memory": "9000Gi"}),
            "Insufficient memory",
            "9000Gi asked, 63.9Gi free in total",
        ),
        (pod({"example.com/nic": 1}), "Insufficient example.com/nic", "1 asked, 0 free in total"),
        (
            pod({"hugepages-2Mi": "4Mi", "cpu": 1}),
            "Insufficient hugepages-2Mi",
            "4Mi asked, 0 free in total",
        ),
        (pod({"cpu": "17"}, {"cpu": "16500m"}), "Insufficient cpu", "16.5 asked, 16 free in total"),
    ],
)
def test_a_shortage_names_the_resource_and_the_amounts(
    request_of_pod: Pod, reason: str, message: str
) -> None:
    assert told(Cluster.from_nodes([node()]), request_of_pod) == [[(reason, message)]]


def test_what_pods_hold_already_is_not_free() -> None:
    """Fractions of CPUs count too, which no CPU manager hands out."""
    holder = node()
    holder.admit(pod({"cpu": "16", "memory": "1Gi"}, {"cpu": "15500m", "memory": "1Gi"}))
    cluster = Cluster.from_nodes([holder])

    [short] = told(cluster, pod({"cpu": "1", "memory": "1Gi"}))
    assert short == [("Insufficient cpu", "1 asked, 0.5 free in total")]


def test_cpus_and_memory_come_before_other_resources() -> None:
    limits = {"example.com/gpu": 3, "memory": "9000Gi", "cpu": "5000", "example.com/any": 1}
    [short] = told(Cluster.from_nodes([node()]), pod(limits))
    assert [reason for reason, _ in short] == [
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient example.com/any",
        "Insufficient example.com/gpu",
    ]


def test_of_amounts_only_the_free_ones_of_all_numa_nodes_are_summed() -> None:
    """Node 0 has 3 CPUs left, node 1 has 9."""
    cluster = read_node_resource_topologies(TOPOLOGY.encode())
    [short, *_] = told(cluster, pod({"cpu": "20"}))
    assert short == [("Insufficient cpu", "20 asked, 12 free in total")]


def zones(*amounts: dict[str, int]) -> Cluster:
    """Return a node of which an exporter tells these amounts, by zone."""
    return read_node_resource_topologies(
        {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "node1"},
            "zones": [
                {
                    "name": f"node-{number}",
                    "type": "Node",
                    "resources": [
                        {"name": name, "capacity": 4, "allocatable": amount, "available": amount}
                        for name, amount in zone.items()
                    ],
                }
                for number, zone in enumerate(amounts)
            ],
        }
    )


@pytest.mark.parametrize(
    ("amounts", "reasons"),
    [
        ([{"cpu": 4}, {"cpu": 4}], []),
        ([{"memory": 1 << 40}, {}], ["Insufficient hugepages-2Mi"]),
        ([{"cpu": 0}, {"cpu": 0}], []),
        ([{"cpu": 0}, {"cpu": 1}], ["Insufficient cpu"]),
        ([{"cpu": 4}, {"memory": 1}], ["Insufficient memory", "Insufficient hugepages-2Mi"]),
        ([{"example.com/gpu": 4}, {}], []),
    ],
)
def test_cpus_and_memory_that_no_exporter_counts_are_not_missing(
    amounts: list[dict[str, int]], reasons: list[str]
) -> None:
    """A kubelet without a static CPU manager, or a Static memory manager, tells of none."""
    request = pod({"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "2Mi"})
    [short] = told(zones(*amounts), request)
    assert [reason for reason, _ in short] == reasons


def test_devices_that_no_exporter_counts_are_missing() -> None:
    [short] = told(zones({"cpu": 4}), pod({"cpu": "4", "example.com/gpu": 1}))
    assert [reason for reason, _ in short] == ["Insufficient example.com/gpu"]


def test_a_node_with_as_many_pods_as_its_kubelet_takes_is_full():
    full = Node.from_dict({"machine": machine_of(2, 4), "kubelet": {"maxPods": 1}})
    full.admit(pod({"cpu": "1"}))
    cluster = Cluster.from_nodes({"full": full, "free": node()})
    sentence = "Too many pods", "as many pods run there as its kubelet takes"
    assert told(cluster, pod({"cpu": "1"})) == [[sentence], []]
    assert [short[0] for short in told(cluster, pod({"cpu": "5000"}))[0]] == [
        "Too many pods",
        "Insufficient cpu",
    ]
    assert Fit(cluster).shortages(pod({"cpu": "1"}))[0][0].cause == "too many pods"
