"""The nodes of a cluster as Koordinator's scheduler sees them, under both profiles."""

from __future__ import annotations

import json
from random import Random

import pytest

from alignup import read_pod
from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.cluster.koordinator import judge_nodes
from alignup.cluster.shortages import Fit
from alignup.errors import InputError
from alignup.node import Node
from inputs.cluster_files import TOPOLOGY, node_line, pod_manifest
from inputs.machines import machine_of

LABEL = "node.koordinator.sh/numa-topology-policy"


def pod(uid, cpus, policy="", exclusive="", **more):
    """Return a Guaranteed pod that may bring a policy."""
    manifest = pod_manifest(uid, cpus=cpus, **more)
    if policy:
        spec = {"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive}
        manifest["metadata"]["annotations"] = {
            "scheduling.koordinator.sh/numa-topology-spec": json.dumps(spec)
        }
    return manifest


def node(label="", pods=(), policy="none", scope="container", **more):
    """Return a node of two NUMA nodes with eight CPUs each, with these pods on it."""
    kubelet = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "cpuManagerPolicy": "static",
    }
    made_node = Node.from_dict(
        {"machine": machine_of(2, 4), "kubelet": kubelet, "labels": {LABEL: label}, **more}
    )
    for manifest in pods:
        assert made_node.admit(manifest).admitted
    return made_node


def judged(nodes, manifest, profile="document"):
    return judge_nodes(Cluster.from_nodes(nodes), read_pod(manifest), profile)


def test_each_node_has_a_verdict_and_a_placement():
    """Full nodes score higher than empty ones, and a mismatch is for good."""
    judgements = judged(
        [node(), node(pods=[pod("old", 4)]), node("Restricted")], pod("new", 2, "SingleNUMANode")
    )
    assert [judgement.admitted for judgement in judgements] == [True, True, False]
    assert [judgement.numa_nodes for judgement in judgements] == [(0,), (0,), None]
    assert judgements[1].score > judgements[0].score > 90
    assert judgements[2].verdict.status.code == "UnschedulableAndUnresolvable"
    assert "Restricted" in judgements[2].message


def test_profiles_differ_in_what_a_pod_across_nodes_is():
    """The scheduler protects whoever has a CPU set in one NUMA node.

    The document protects only SingleNUMANode pods.
    """
    nodes = [node(pods=[pod("old", 2)])]
    wide = pod("new", 9, "Restricted")
    assert judged(nodes, wide, "document")[0].numa_nodes == (0, 1)
    refused = judged(nodes, wide, "scheduler")[0]
    assert not refused.admitted
    assert refused.message.startswith("Unaligned NUMA Hint cause cpu")


def test_a_refusal_names_exclusivity_and_the_pod():
    nodes = [node(pods=[pod("old", 9, "Restricted")])]
    judgement = judged(nodes, pod("new", 1, "SingleNUMANode"))[0]
    assert judgement.message == (
        "exclusivity (singleNUMANodeExclusive Required) keeps it away from pod 'default/old' "
        "across NUMA nodes 0+1"
    )


def test_the_default_of_exclusivity_is_the_nodes():
    nodes = [node(pods=[pod("old", 1, "SingleNUMANode")], singleNUMANodeExclusive="Preferred")]
    assert judged(nodes, pod("new", 9, "Restricted"))[0].numa_nodes == (0, 1)


def test_the_scheduler_knows_single_numa_node_in_pod_scope_only():
    """So it leaves nodes in container scope to the kubelet.

    The document does not tell them apart.
    """
    nodes = [node(policy="single-numa-node", scope=scope) for scope in ("container", "pod")]
    silent = pod("new", 1)
    assert [judgement.verdict.policy for judgement in judged(nodes, silent, "scheduler")] == [
        "",
        "SingleNUMANode",
    ]
    assert [judgement.verdict.policy for judgement in judged(nodes, silent)] == [
        "SingleNUMANode"
    ] * 2


def test_fractions_of_cpus_and_other_memory_count():
    """A Burstable pod is placed by its requests.

    Without a memory manager, on the machine's memory.
    """
    manifest = pod("new", 1, "SingleNUMANode", memory="33Gi")
    assert judged([node()], manifest)[0].message.startswith(
        "Unaligned NUMA Hint cause cpu prefer [11]"
    )
    manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    assert judged([node()], manifest)[0].numa_nodes == (0,)


def test_totals_and_devices():
    """What a node lacks altogether refuses it; devices are aligned with the rest."""
    nodes = Cluster.from_json_lines(
        "\n".join([node_line("a", policy="none"), node_line("b", policy="none", devices={})])
    )
    judgements = judge_nodes(nodes, read_pod(pod("new", 1, "SingleNUMANode", gpu=1)))
    assert [judgement.admitted for judgement in judgements] == [True, False]
    assert judgements[1].message == "Insufficient example.com/gpu"
    both = judge_nodes(nodes, read_pod(pod("new", 1, "SingleNUMANode", gpu=2)))
    assert "NUMA" in both[0].message


@pytest.mark.parametrize("seed", range(20))
def test_totals_are_those_of_the_default_scheduler(seed):
    """What `rank` finds too little of, and nothing else.

    Overhead and requests of the pod as a whole are included.
    """
    draw = Random(seed)
    nodes = [node(pods=[pod("old", draw.randint(1, 14))]) for _ in range(3)]
    for cluster in Cluster.from_nodes(nodes), read_node_resource_topologies(TOPOLOGY.encode()):
        for number in range(5):
            manifest = pod(
                f"p{number}", draw.randint(1, 16), memory=f"{draw.choice([1, 40, 70])}Gi"
            )
            container = manifest["spec"]["containers"][0]
            for name, amount in (
                ("example.com/gpu", "2"),
                ("ephemeral-storage", "2"),
                ("hugepages-2Mi", "2Mi"),
            ):
                if draw.random() < 0.3:
                    container["resources"]["limits"][name] = amount

            if draw.random() < 0.5:
                manifest["spec"]["overhead"] = {"cpu": str(draw.randint(1, 4)), "memory": "1Gi"}
            parsed = read_pod(manifest)
            expected = Fit(cluster).shortages(parsed)
            for verdict, short in zip(judge_nodes(cluster, parsed), expected, strict=True):
                first = verdict.message.split("; ")[0]
                is_total = first.startswith("Insufficient ") and not first.startswith(
                    "Insufficient NUMA "
                )
                assert (first if is_total else None) == (short[0].reason if short else None)


def test_topologies_are_judged_by_their_amounts():
    """A kubelet's policy in container scope is none for the scheduler.

    Node 0 has 3 CPUs left, node 1 has 9.
    """
    cluster = read_node_resource_topologies(TOPOLOGY.encode())
    wide = read_pod(pod("new", 4, "SingleNUMANode"))
    assert judge_nodes(cluster, wide, "scheduler")[0].numa_nodes == (1,)
    assert judge_nodes(cluster, read_pod(pod("new", 99)))[0].message == "Insufficient cpu"
    assert (
        judge_nodes(cluster, read_pod(pod("new", 1, none=1)))[0].message
        == "Insufficient example.com/none"
    )


def test_what_a_pod_must_not_ask_is_an_error_of_each_node():
    judgement = judged([node()], pod("new", 1, "Bogus"), "scheduler")[0]
    assert (judgement.admitted, judgement.verdict.status.code) == (False, "Error")
    with pytest.raises(InputError, match="one of document, scheduler, got 'x' at the profile"):
        judged([node()], pod("new", 1), "x")
