"""Ranking adds what a kubelet does not ask.

Is there enough in total, and does the node align anything.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from alignup import read_machine, read_pod
from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.cluster.ranking import MOST_PODS, Ranking, rank, replicas_that_fit
from alignup.cluster.shortages import Fit
from alignup.node import Node
from inputs.machines import machine_of
from inputs.small_claims import class_of, slice_of, template

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

ALIGNED = {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"}
GPUS = {"example.com/gpu": [{"id": "g0", "numa": [0]}, {"id": "g1", "numa": [1]}]}


def node(kubelet: dict[str, Any] | None = None, devices: dict[str, Any] | None = None) -> Node:
    """Return a node of 2 NUMA nodes with 8 CPUs and 32 GiB each."""
    return Node.from_dict(
        {"machine": machine_of(2, 4), "kubelet": kubelet or {}, "devices": devices or {}}
    )


def pod(limits: dict[str, Any], requests: dict[str, Any] | None = None, **annotations: str) -> Pod:
    resources = {"limits": limits, **({"requests": requests} if requests else {})}
    container = {"name": "c0", "resources": resources}
    metadata = {"name": "p", "annotations": annotations}
    return read_pod({"metadata": metadata, "spec": {"containers": [container]}})


def ranked(cluster: Cluster, replica: Pod) -> Ranking:
    return rank(cluster, replica, cluster.evaluate(replica), Fit(cluster))


def names(cluster: Cluster, ranking: Ranking) -> list[str]:
    return [cluster.names[index] for index in ranking.order]


def test_a_node_without_enough_in_sum_is_out() -> None:
    """The kubelet's verdict stays what it is."""
    cluster = Cluster.from_nodes({"plain": node(devices=GPUS)})
    guaranteed = pod({"cpu": "5000", "memory": "1Gi"})
    ranking = ranked(cluster, guaranteed)

    assert cluster.evaluate(guaranteed).admitted.all()
    assert len(ranking.order) == 0
    assert ranking.refusals == {"Insufficient cpu": 1}
    [refused] = ranking.refused
    assert refused.node == "plain"
    assert refused.reason == "Insufficient cpu"
    assert refused.message == "5000 asked, 16 free in total"


def test_nodes_that_align_nothing_come_last() -> None:
    """Whatever their score."""
    cluster = Cluster.from_nodes(
        {
            "plain": node(),
            "blind": node({"topologyManagerPolicy": "restricted"}),
            "best": node(ALIGNED),
        }
    )
    guaranteed = pod({"cpu": "10", "memory": "1Gi"})
    ranking = ranked(cluster, guaranteed)

    assert names(cluster, ranking) == ["best", "plain", "blind"]
    assert ranking.unmanaged == ("plain", "blind")
    assert cluster.evaluate(guaranteed).score.argmax() == 0


def test_nodes_of_which_claims_cannot_be_told_come_behind_those_that_meet_before_others() -> None:
    def with_device(near: int) -> Node:
        resources = [slice_of([near]), class_of(), template()]
        return Node.from_dict(
            {"machine": machine_of(2, 4), "kubelet": ALIGNED, "resources": resources}
        )

    limits = {"cpu": "2", "memory": "1Gi"}
    container = {"name": "c0", "resources": {"limits": limits, "claims": [{"name": "c"}]}}
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        claiming = read_pod(
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [container], "resourceClaims": claims},
            }
        )

    cluster = Cluster.from_nodes(
        {"far": with_device(1), "unknown": node(ALIGNED), "near": with_device(0)}
    )
    assert names(cluster, ranked(cluster, claiming)) == ["near", "unknown", "far"]

    cluster = Cluster.from_nodes({"far": with_device(1), "plain": node(), "near": with_device(0)})
    ranking = ranked(cluster, claiming)
    assert names(cluster, ranking) == ["near", "plain", "far"]
    assert ranking.unmanaged == ("plain",)

    ranking = rank(
        cluster, claiming, cluster.evaluate(claiming), Fit(cluster), require_dra_alignment=True
    )
    assert names(cluster, ranking) == ["near"]
    assert ranking.unmanaged == ()
    assert [refused.node for refused in ranking.refused] == ["plain", "far"]


def test_a_pod_can_bring_its_policy_to_a_node_without_one() -> None:
    annotation = {
        "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy": "Restricted"}'
    }
    cluster = Cluster.from_nodes({"plain": node({"cpuManagerPolicy": "static"})})

    assert ranked(cluster, pod({"cpu": "2", "memory": "1Gi"}, **annotation)).unmanaged == ()


def test_why_each_node_refuses() -> None:
    """In the node's own words, and it stays as it was."""
    single = {**ALIGNED, "topologyManagerPolicy": "single-numa-node"}
    cluster = Cluster.from_nodes({"a": node(ALIGNED), "b": node(single)})
    ranking = ranked(cluster, pod({"cpu": "10", "memory": "1Gi"}))

    assert names(cluster, ranking) == ["a"]
    [refused] = ranking.refused
    assert (refused.node, refused.reason) == ("b", "TopologyAffinityError")
    assert "cpu does not fit into one NUMA node" in refused.message
    assert not cluster.nodes[1].pods


def test_nodes_known_by_amounts_only() -> None:
    """CPUs and memory that no zone counts are not known, and not missing.

    Why nodes refuse is told as far as amounts tell.
    """
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": "8", "available": "6"}],
        }
        for number in range(2)
    ]
    head = {"kind": "NodeResourceTopology", "apiVersion": "topology.node.k8s.io/v1alpha2"}
    objects = [
        {
            **head,
            "metadata": {"name": "bare"},
            "topologyPolicies": ["SingleNUMANode"],
            "zones": [{"name": "node-0"}],
        },
        {
            **head,
            "metadata": {"name": "full"},
            "topologyPolicies": ["SingleNUMANode"],
            "zones": zones,
        },
    ]
    cluster = read_node_resource_topologies(objects)

    four = ranked(cluster, pod({"cpu": "4", "memory": "1Gi"}))
    assert (names(cluster, four), four.refusals) == (["full", "bare"], {})
    assert ranked(cluster, pod({"cpu": "13"}, {"cpu": "12500m"})).refusals == {
        "Insufficient cpu": 1
    }
    [full] = ranked(cluster, pod({"cpu": "20", "memory": "1"})).refused
    assert full.message == "Insufficient cpu: 20 asked, 12 free in total"
    [bare, full] = ranked(cluster, pod({"cpu": "20", "example.com/gpu": "1"})).refused
    assert (bare.reason, full.reason) == ("Insufficient example.com/gpu", "Insufficient cpu")
    assert (bare.message, full.message) == (
        "1 asked, 0 free in total",
        "20 asked, 12 free in total",
    )
    nothing = ranked(cluster, pod({}))
    assert (names(cluster, nothing), nothing.unmanaged) == (["full", "bare"], ("bare",))


def full(cpus: int) -> Node:
    """Return an aligned node on which a pod holds so many CPUs."""
    busy_node = node(ALIGNED)
    busy_node.admit(pod({"cpu": str(cpus), "memory": "1Gi"}))
    return busy_node


def test_nodes_that_refuse_alike_are_one_group() -> None:
    """Whatever their amounts.

    The group with most nodes comes first, and tells the sentence of its first node.
    """
    nodes = {"a": full(6), "b": full(16), "c": full(15), "d": full(14), "e": node(ALIGNED)}
    replica = replace(pod({"cpu": "3", "memory": "1Gi"}), uid="new")
    ranking = ranked(Cluster.from_nodes(nodes), replica)
    [group] = ranking.groups

    assert group.nodes == ("b", "c", "d")
    assert (group.reason, group.cause) == (
        "TopologyAffinityError",
        "not enough cpu is free on the node",
    )
    assert group.message == ranking.refused[0].message


def test_causes_that_differ_are_groups_of_their_own() -> None:
    nodes = {"plain": node(), "full": full(16), "full too": full(16)}
    ranking = ranked(
        Cluster.from_nodes(nodes), replace(pod({"cpu": "17", "memory": "1Gi"}), uid="new")
    )

    groups = [(group.cause, group.nodes) for group in ranking.groups]
    assert groups == [
        ("not enough cpu is free on the node", ("full", "full too")),
        ("too little cpu in total", ("plain",)),
    ]


SMALL = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}


def replica(name="p", **limits):
    """Return a Guaranteed pod, or one that asks for nothing."""
    resources = {"limits": limits} if limits else {}
    return read_pod(
        {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c0", "resources": resources}]},
        }
    )


def small_node(policy="restricted"):
    """Return a node of 2 NUMA nodes of 4 CPUs, one of which is reserved."""
    return Node(read_machine("align-up-article"), {**SMALL, "topologyManagerPolicy": policy})


@pytest.mark.parametrize(
    ("policy", "cpus", "count"),
    [
        ("restricted", "3", 2),
        ("restricted", "4", 1),
        ("best-effort", "5", 1),
        ("single-numa-node", "5", 0),
    ],
)
def test_as_many_as_the_node_admits_one_after_the_other(policy, cpus, count):
    empty_node = small_node(policy)
    manifest = replica(cpu=cpus, memory="1Mi")
    assert replicas_that_fit([empty_node, empty_node], manifest) == [count, count]
    assert not empty_node.pods


def test_pods_that_are_there_count():
    busy_node = small_node()
    busy_node.admit(replica("old", cpu="3", memory="1Mi"))
    assert replicas_that_fit([busy_node], replica(cpu="3", memory="1Mi")) == [1]


def test_totals_count_where_nothing_is_pinned():
    """Fractions of CPUs are shared, and there are 8 to share, of which one is reserved."""
    assert replicas_that_fit([small_node()], replica(cpu="1500m", memory="1Mi")) == [4]


def test_pods_that_ask_for_nothing_are_as_many_as_a_kubelet_runs():
    busy_node = small_node()
    busy_node.admit(replica("old"))
    assert replicas_that_fit([busy_node], replica()) == [MOST_PODS - 1]


def test_what_no_node_has_fits_nowhere():
    assert replicas_that_fit([small_node()], replica(cpu="1", memory="1Mi", **{"a/gpu": "1"})) == [
        0
    ]


@pytest.mark.parametrize(
    ("kubelet", "count"), [({"maxPods": 3}, 2), ({"podsPerCore": 1}, 7), ({"maxPods": 250}, 109)]
)
def test_there_are_no_more_replicas_than_pods_that_the_kubelet_runs(kubelet, count):
    busy_node = Node(read_machine("align-up-article"), {**SMALL, **kubelet})
    busy_node.admit(replica("old"))
    assert replicas_that_fit([busy_node], replica()) == [count]


def test_a_node_that_cannot_have_the_policy_of_a_pod_refuses_in_its_words():
    """No policy is for more than eight NUMA nodes; the other nodes are ranked all the same."""
    annotation = {
        "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy": "BestEffort"}'
    }
    pod = replace(replica(cpu="1", memory="1Mi"), annotations=annotation)
    wide_node = Node(machine_of(9, 1), {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
    none_node = small_node("none")
    cluster = Cluster.from_nodes({"wide": wide_node, "small": none_node})
    ranking = rank(cluster, pod, cluster.evaluate(pod), Fit(cluster))
    assert ranking.order == (1,)
    (refused,) = ranking.refused
    assert refused.message.startswith("expected 1 to 8 NUMA nodes under policy 'best-effort'")
    assert replicas_that_fit(cluster.nodes, pod) == [0, 7]


def test_a_pod_counts_that_also_requests_what_no_node_has():
    """Without a Static memory manager a kubelet admits pages of a size that there are none of."""
    busy_node = small_node()
    pages = {"hugepages-16Mi": "16Mi"}
    assert busy_node.admit(replica("old", cpu="5500m", memory="1Mi", **pages))
    assert replicas_that_fit([busy_node], replica(cpu="1500m", memory="1Mi")) == [1]


def test_a_pod_may_come_where_too_much_is_requested_of_what_it_does_not_request():
    """Without a Static memory manager a kubelet admits more memory than there is."""
    busy_node = small_node()
    assert busy_node.admit(replica("old", cpu="1", memory="1Ti"))
    assert replicas_that_fit([busy_node], replica(cpu="1")) == [6]
