"""A node as a NodeResourceTopology object, and as metrics."""

from __future__ import annotations

import json
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from alignup.cluster import Cluster
from alignup.errors import InputError
from alignup.kubelet.read import read_kubelet_node
from alignup.node_resource_topology.export import node_resource_topology, prometheus_text
from alignup.node_resource_topology.fingerprint import fingerprint
from kubelet_files import EXAMPLE, guaranteed

ARCHIVE = EXAMPLE / "root.tar.xz"


@pytest.fixture(scope="module")
def found():
    return read_kubelet_node(ARCHIVE)


def test_the_object_says_what_is_left_of_each_zone(found):
    made = node_resource_topology(found, "node-a")
    assert (made["kind"], made["metadata"]["name"]) == ("NodeResourceTopology", "node-a")
    assert made["topologyPolicies"] == ["RestrictedContainerLevel"]
    zones = {zone["name"]: {one["name"]: one for one in zone["resources"]} for zone in made["zones"]}
    assert zones["node-0"]["cpu"] == {"name": "cpu", "capacity": "12", "allocatable": "11", "available": "1"}
    assert zones["node-3"]["cpu"]["available"] == "12"
    assert zones["node-0"]["memory"]["available"] == str(23622320128)
    assert zones["node-1"]["nvidia.com/gpu"]["available"] == "1"
    assert [cost["value"] for cost in made["zones"][0]["costs"]] == [10, 12, 32, 32]
    attributes = {one["name"]: one["value"] for one in made["attributes"]}
    assert attributes["topologyManagerPolicy"] == "restricted"
    assert attributes["nodeTopologyPodsFingerprint"] == fingerprint(
        (pod.namespace, pod.name) for pod in found.records.listed
    )
    assert attributes["alignupSource"].startswith("cpu_manager_state, memory_manager_state")


def test_a_cluster_reads_the_object_as_the_node_is(found, tmp_path):
    """What it judges of a simple pod is what the node says."""
    (tmp_path / "nodes.json").write_text(json.dumps(node_resource_topology(found, "node-a")))
    cluster = Cluster.from_node_resource_topologies([node_resource_topology(found, "node-a")])
    for pod in (guaranteed("x", (5, 1)), guaranteed("x", (12, 1)), guaranteed("x", (1, 31))):
        assert bool(cluster.evaluate(pod).admitted[0]) is found.node.try_admit(pod).admitted


def test_metrics_tell_what_is_free_and_how_containers_are_aligned(found):
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(prometheus_text(found))
        for sample in family.samples
    }
    assert samples["alignup_node_resource_free", ("numa_nodes", "3"), ("resource", "cpu")] == 12
    assert samples["alignup_node_resource_held", ("numa_nodes", "0"), ("resource", "memory")] == 9 * 2**30
    assert samples["alignup_node_resource_free", ("numa_nodes", "none"), ("resource", "example.com/nic")] == 1
    spread = {value for key, value in samples.items() if key[0] == "alignup_node_container_numa_nodes"}
    assert spread == {1.0}


def test_missing_extras_say_which(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"pip install 'alignup\[metrics\]'"):
        prometheus_text(found)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(InputError, match=r"pip install 'alignup\[kubelet\]'"):
        node_resource_topology(found, "node-a")
