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
    made = Cluster.from_nodes(nodes_of(topologies))
    told = read_node_resource_topologies(TOPOLOGY.encode())

    assert made.names == told.names
    assert made.resources == told.resources
    for resource in told.resources:
        assert made.free(resource).tolist() == told.free(resource).tolist(), resource

    for one, other in zip(made.rows, told.rows, strict=True):
        assert (one.policy, one.pod_scope, one.distances) == (
            other.policy,
            other.pod_scope,
            other.distances,
        )


def test_pods_can_be_admitted(topologies) -> None:
    node = node_of(topologies[0])
    assert node.admit(manifest("p", 3, 1, 0))
    assert not node.admit(manifest("q", 64, 1, 0))


def test_what_others_hold_is_not_called_a_limit_of_the_machine(topologies) -> None:
    """It counts as reserved, since nobody tells whose it is."""
    node = node_of(topologies[0])
    free = sum(one.free for one in holdings_of(node).amounts("cpu").places)
    found = explain(node, manifest("q", free + 1, 1, 0))

    assert not found.never_fits
    assert "the machine has" not in found.cause
    assert found.cause.startswith("not enough cpu is free")


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
