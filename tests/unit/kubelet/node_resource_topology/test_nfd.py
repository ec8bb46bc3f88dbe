"""Objects as the topology updater of Node Feature Discovery 0.18.3 fills them (tests/recorded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alignup import read_pod
from alignup.cluster import Cluster, read_node_resource_topologies
from inputs.machines import manifest

GIBI = 1 << 30
RECORDED = Path(__file__).parents[3] / "recorded" / "nfd" / "v0.18.3.jsonl"
ZONES = {
    record["name"]: record["zones"] for record in map(json.loads, RECORDED.read_text().splitlines())
}


def cluster_of(name: str) -> Cluster:
    document: dict[str, Any] = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n"},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": ZONES[name],
    }
    return read_node_resource_topologies(document)


@pytest.mark.parametrize(
    ("name", "free"),
    [
        ("reserved", {"cpu": [3, 4], "memory": [3 * GIBI, 4 * GIBI], "example.com/gpu": [2, 1]}),
        ("cpus-held", {"cpu": [3, 2], "memory": [3 * GIBI, 4 * GIBI], "example.com/gpu": [2, 1]}),
        ("gpu-held", {"cpu": [3, 4], "memory": [3 * GIBI, 4 * GIBI], "example.com/gpu": [1, 1]}),
        ("no-memory-manager", {"cpu": [3, 4], "example.com/gpu": [2, 1]}),
        # the NUMA nodes 0, 2 and 3 come as zones 0, 1 and 2: of 3 nothing is told
        ("gaps", {"cpu": [4, 0, 4]}),
        # a device near two NUMA nodes counts in both, and is taken from one
        ("near-two", {"cpu": [3, 4], "example.com/gpu": [1, 1]}),
        ("near-two-held", {"cpu": [3, 4], "example.com/gpu": [1, 0]}),
    ],
)
def test_what_is_free_is_what_the_zones_say(name: str, free: dict[str, list[int]]) -> None:
    cluster = cluster_of(name)
    assert {resource: cluster.free(resource).tolist()[0] for resource in cluster.resources} == free


@pytest.mark.parametrize("name", sorted(ZONES))
@pytest.mark.parametrize("cpus", [2, 4, 5])
def test_a_pod_is_admitted_where_one_zone_has_its_cpus(name: str, cpus: int) -> None:
    """Memory that no zone counts, as without a memory manager, is not known, and refuses nobody."""
    cluster = cluster_of(name)
    most = max(cluster.free("cpu").tolist()[0])
    pod = read_pod(manifest("p", cpus, 1, 0))
    assert cluster.evaluate(pod).admitted.tolist() == [cpus <= most]
