"""Nodes that are made up from NodeResourceTopology objects have exactly what these say is free."""

from __future__ import annotations

import pytest

from alignup import explain
from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.kubelet.node_resource_topology.read import node_of, nodes_of, read_topologies
from alignup.node.holdings import holdings_of
from inputs.cluster_files import TOPOLOGY
from inputs.machines import manifest


@pytest.fixture
def topologies():
    return read_topologies(TOPOLOGY.encode())


def test_what_is_free_is_free(topologies) -> None:
    """And policy, scope and distances are the object's."""
    cluster = Cluster.from_nodes(nodes_of(topologies))
    read_cluster = read_node_resource_topologies(TOPOLOGY.encode())

    assert cluster.names == read_cluster.names
    assert cluster.resources == read_cluster.resources
    for resource in read_cluster.resources:
        assert cluster.free(resource).tolist() == read_cluster.free(resource).tolist(), resource

    for row, read_row in zip(cluster.rows, read_cluster.rows, strict=True):
        assert (row.policy, row.pod_scope, row.distances) == (
            read_row.policy,
            read_row.pod_scope,
            read_row.distances,
        )


def test_pods_can_be_admitted(topologies) -> None:
    node = node_of(topologies[0])
    assert node.admit(manifest("p", 3, 1, 0))
    assert not node.admit(manifest("q", 64, 1, 0))


def test_what_others_hold_is_not_called_a_limit_of_the_machine(topologies) -> None:
    """It counts as reserved, since nobody tells whose it is."""
    node = node_of(topologies[0])
    free = sum(place.free for place in holdings_of(node).amounts("cpu").places)
    explanation = explain(node, manifest("q", free + 1, 1, 0))

    assert not explanation.never_fits
    assert "the machine has" not in explanation.cause
    assert explanation.cause.startswith("not enough cpu is free")


def test_a_zone_of_nothing_is_a_node_that_aligns_nothing() -> None:
    bare = {
        "kind": "NodeResourceTopology",
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "metadata": {"name": "bare"},
        "zones": [{"name": f"node-{number}"} for number in range(9)],
        "topologyPolicies": ["Restricted"],
    }
    node = node_of(read_topologies(bare)[0])

    assert (node.cpu, node.memory, node.devices) == (None, None, None)
    assert len(node.machine.numa_nodes) == 9
