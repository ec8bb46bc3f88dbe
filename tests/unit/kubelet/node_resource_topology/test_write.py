"""What a node publishes is what a reader of NodeResourceTopology objects makes of it."""

from __future__ import annotations

import json
import sys
from random import Random

import pytest

from alignup import read_machine
from alignup.cluster import read_node_resource_topologies
from alignup.control_plane.publishers.fleet import FleetNode
from alignup.control_plane.publishers.publish import published_object
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.read import read_topology
from alignup.kubelet.node_resource_topology.write import (
    fingerprint,
    kubelet_topology_object,
    topology_object,
)
from alignup.kubelet.read import read_kubelet
from alignup.node import Node
from inputs.cluster_nodes import node_of
from inputs.kubelet_files import EXAMPLE, guaranteed
from inputs.strategies import seeds
from inputs.watched_objects import description, watched

ARCHIVE = EXAMPLE / "root.tar.xz"

PODS = [("default", "a"), ("default", "b"), ("kube-system", "a")]


@pytest.fixture(scope="module")
def kubelet():
    return read_kubelet(ARCHIVE)


def zones_of(written):
    """Return the resources of each zone of an object, by name."""
    return [
        {resource["name"]: resource for resource in zone["resources"]} for zone in written["zones"]
    ]


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_the_object_reads_back_as_the_amounts_of_the_node(seed) -> None:
    _, node = node_of(Random(seed))
    amounts = read_topology(topology_object("n", node), "n").amounts
    assert (amounts.policy, amounts.scope) == (
        node.config.topology_manager_policy,
        node.config.topology_manager_scope,
    )
    assert amounts.numa_nodes == len(node.machine.numa_nodes)
    assert amounts.distances == node.machine.distance_matrix
    if node.cpu is not None:
        free = int(node.cpu.free_cpus)
        assert amounts.resources["cpu"][2] == tuple(
            (cpus & free).bit_count() for cpus in node.machine.node_cpus
        )

    if node.memory is not None:
        kinds = {"memory"}
        for numa_node in node.machine.numa_nodes:
            kinds |= {f"hugepages-{pages.size}" for pages in numa_node.hugepages if pages.count}

        for column, by_kind in ((2, node.memory.free), (1, node.memory.allocatable)):
            counted = {kind: columns[column] for kind, columns in amounts.memory.items()}
            assert counted == {kind: by_node for kind, by_node in by_kind.items() if kind in kinds}

    for resource, (_, total, free) in amounts.devices.items():
        ids = set(node.devices.free[resource])
        for position, numa_id in enumerate(node.machine.numa_node_ids):
            near = [
                device
                for device in node.devices.pools[resource].devices
                if numa_id in (device.numa_nodes or ())
            ]
            assert free[position] == sum(device.id in ids and device.healthy for device in near)
            assert total[position] == sum(device.healthy for device in near)


def test_policies_are_named_in_the_older_way_too() -> None:
    names = {
        ("none", "container"): "None",
        ("best-effort", "container"): "BestEffortContainerLevel",
        ("restricted", "container"): "RestrictedContainerLevel",
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


def test_the_object_says_what_is_left_of_each_zone(kubelet):
    written = kubelet_topology_object("node-a", kubelet)
    assert (written["kind"], written["metadata"]["name"]) == ("NodeResourceTopology", "node-a")
    assert written["topologyPolicies"] == ["RestrictedContainerLevel"]
    names = [zone["name"] for zone in written["zones"]]
    zones = dict(zip(names, zones_of(written), strict=True))
    assert zones["node-0"]["cpu"] == {
        "name": "cpu",
        "capacity": "12",
        "allocatable": "11",
        "available": "1",
    }
    assert zones["node-3"]["cpu"]["available"] == "12"
    assert zones["node-0"]["memory"]["available"] == str(23622320128)
    assert zones["node-1"]["nvidia.com/gpu"]["available"] == "1"
    assert [cost["value"] for cost in written["zones"][0]["costs"]] == [10, 12, 32, 32]

    attributes = {attribute["name"]: attribute["value"] for attribute in written["attributes"]}
    assert attributes["topologyManagerPolicy"] == "restricted"
    assert attributes["nodeTopologyPodsFingerprint"] == fingerprint(
        (pod.namespace, pod.name) for pod in kubelet.records.listed
    )


def test_a_cluster_reads_the_object_as_the_node_is(kubelet, tmp_path):
    """What it judges of a simple pod is what the node says."""
    (tmp_path / "nodes.json").write_text(json.dumps(kubelet_topology_object("node-a", kubelet)))
    cluster = read_node_resource_topologies([kubelet_topology_object("node-a", kubelet)])
    for pod in (guaranteed("x", (5, 1)), guaranteed("x", (12, 1)), guaranteed("x", (1, 31))):
        assert bool(cluster.evaluate(pod).admitted[0]) is kubelet.node.try_admit(pod).admitted


def test_export_publish_and_fleet_write_the_same_object(kubelet) -> None:
    exported = kubelet_topology_object("n", kubelet)
    published = published_object("n", kubelet)
    del published["metadata"]["annotations"]
    simulated = FleetNode("n", kubelet.node, "{}").report(with_holdings=False)
    assert exported == published == simulated


def test_cpus_without_a_manager_and_what_a_zone_lacks_are_left_out() -> None:
    """As exporters do.

    A zone that counts CPUs gives them out exclusively, and a reader takes it so.
    """
    machine = read_machine("xeon-2s")
    devices = {"x/near": [{"id": "a", "numa": 1}], "x/anywhere": [{"id": "b"}]}
    config = {"topologyManagerPolicy": "restricted"}
    node = Node.from_dict({"machine": machine.to_dict(), "kubelet": config, "devices": devices})
    zones = zones_of(topology_object("n", node))
    assert [set(zone) for zone in zones] == [set(), {"x/near"}]


def test_a_device_that_is_ill_cannot_be_given_and_counts_as_there() -> None:
    devices = {"x/near": [{"id": "a", "numa": 1}, {"id": "b", "numa": 1, "healthy": False}]}
    node = Node.from_dict({"machine": "xeon-2s", "kubelet": {}, "devices": devices})
    amounts = zones_of(topology_object("n", node))[1]["x/near"]
    assert [amounts[key] for key in ("capacity", "allocatable", "available")] == ["2", "1", "1"]


def test_an_object_of_a_plain_install_has_no_fingerprint_and_says_what_is_missing(
    kubelet, monkeypatch
) -> None:
    whole = kubelet_topology_object("n", kubelet)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.warns(AlignupWarning, match=r"no fingerprint.*pip install 'alignup\[kubelet\]'"):
        written = kubelet_topology_object("n", kubelet)
    names = {attribute["name"] for attribute in written["attributes"]}
    assert names == {"topologyManagerPolicy", "topologyManagerScope"}
    assert written["zones"] == whole["zones"]


def test_fingerprints_that_are_known():
    """Of no pod: xxHash of nothing.

    The same code gives the original's answer for the 259 pods of its own test.
    """
    assert fingerprint([]) == "pfp0v001ef46db3751d8e999"
    assert fingerprint([("a", "b")]) == "pfp0v001b62c44d557501be8"


def test_the_order_of_pods_does_not_matter_and_names_do():
    assert fingerprint(PODS) == fingerprint(PODS[::-1])
    assert (
        len({fingerprint(PODS), fingerprint(PODS[:2]), fingerprint([("a", "default"), *PODS[1:]])})
        == 3
    )


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(InputError, match=r"pip install 'alignup\[kubelet\]'"):
        fingerprint(PODS)
