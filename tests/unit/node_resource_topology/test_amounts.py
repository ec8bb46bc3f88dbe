"""What a node publishes is what a reader of NodeResourceTopology objects makes of it."""

from __future__ import annotations

from random import Random

import pytest

from alignup.node import Node
from alignup.node_resource_topology.amounts import topology_object
from alignup.node_resource_topology.read import read_topology
from cluster_cases import node_of
from watched import description, watched


@pytest.mark.parametrize("seed", range(30))
def test_the_object_reads_back_as_the_amounts_of_the_node(seed) -> None:
    _, node = node_of(Random(seed))
    found = read_topology(topology_object("n", node), "n")
    amounts = found.amounts
    assert (amounts.policy, amounts.scope) == (
        node.config.topology_manager_policy,
        node.config.topology_manager_scope,
    )
    assert amounts.numa_nodes == len(node.machine.numa_nodes)
    assert amounts.distances == node.machine.distance_matrix
    if node.cpu is not None:
        free = int(node.cpu.free_cpus)
        assert amounts.cpus[2] == tuple((cpus & free).bit_count() for cpus in node.machine.node_cpus)
    if node.memory is not None:
        assert {kind: pair[1] for kind, pair in amounts.memory.items()} == node.memory.free
        assert {kind: pair[0] for kind, pair in amounts.memory.items()} == node.memory.allocatable
    for resource, (total, free) in amounts.devices.items():
        ids = set(node.devices.free[resource])
        for position, numa_id in enumerate(node.machine.numa_node_ids):
            near = [one for one in node.devices.pools[resource].devices if numa_id in (one.numa_nodes or ())]
            assert free[position] == sum(one.id in ids and one.healthy for one in near)
            assert total[position] == sum(one.healthy for one in near)


def test_policies_are_named_in_the_older_way_too() -> None:
    names = {
        ("none", "container"): "None",
        ("best-effort", "container"): "BestEffort",
        ("restricted", "pod"): "RestrictedPodLevel",
        ("single-numa-node", "container"): "SingleNUMANodeContainerLevel",
        ("single-numa-node", "pod"): "SingleNUMANodePodLevel",
    }
    for (policy, scope), name in names.items():
        node = Node.from_dict(description(topologyManagerPolicy=policy, topologyManagerScope=scope))
        assert topology_object("n", node)["topologyPolicies"] == [name]


def test_the_fingerprint_is_of_the_pods_that_are_there() -> None:
    node = Node.from_dict(description())
    before = topology_object("n", node)["attributes"]
    node.admit(watched("a").pod)
    assert topology_object("n", node)["attributes"] != before
    node.remove("uid-a")
    assert topology_object("n", node)["attributes"] == before
