"""Clusters whose kubelets are of several releases."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest

from alignup import read_machine, read_pod
from alignup.cluster import (
    REASONS,
    STRATEGIES,
    Cluster,
    Evaluation,
    read_amounts,
    read_node_resource_topologies,
)
from alignup.errors import AlignupWarning, ConfigError, InputError
from alignup.node import Node
from inputs.cluster_nodes import node_of, pod_of
from inputs.strategies import seeds

LEVEL = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
OWN = {"limits": {"cpu": "2", "memory": "1Gi"}}
FIELDS = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}

ACROSS = {
    "metadata": {"name": "p"},
    "spec": {
        "containers": [
            {"name": "c0", "resources": {"limits": {"cpu": "5", "memory": "1Gi", "a/gpu": "1"}}}
        ]
    },
}


def pod(allocated=None, pod_level=None, init=False):
    """Return a manifest: with a status, or with resources of the pod as a whole."""
    container = {"name": "c0", "resources": OWN}
    sidecar = {**container, "name": "s0", "restartPolicy": "Always"}
    spec = {"containers": [container], "initContainers": [sidecar] if init else []}
    if pod_level:
        spec["resources"] = pod_level

    made = {"metadata": {"name": "p"}, "spec": spec}
    if allocated:
        status = {"allocatedResources": allocated}
        made["status"] = {
            "containerStatuses": [{"name": "c0", **status}, {"name": "gone", **status}],
            "initContainerStatuses": [{"name": "s0", **status}],
        }

    return made


@pytest.mark.parametrize(
    ("version", "gates", "exclusive"),
    [
        ("1.31", {}, 2),
        ("1.33", {}, 2),
        ("1.33", {"PodLevelResources": True}, 2),
        ("1.34", {}, None),
        ("1.34", {"PodLevelResources": False}, 2),
        ("1.36", {}, None),
    ],
)
def test_pod_level_resources_by_release(version, gates, exclusive):
    node = Node(
        read_machine("align-up-article"), {**FIELDS, "featureGates": gates}, kubelet_version=version
    )
    cpus = node.admit(pod(pod_level=LEVEL)).containers["c0"].cpus
    if exclusive is None:
        assert cpus is None
    else:
        assert len(cpus) == exclusive


@pytest.mark.parametrize(
    ("version", "gates", "ordinary", "sidecar"),
    [
        ("1.31", {}, 2, 2),
        ("1.31", {"InPlacePodVerticalScaling": True}, 1, 2),
        ("1.33", {}, 1, 1),
        ("1.34", {}, 1, 1),
        ("1.34", {"InPlacePodVerticalScaling": False}, 2, 2),
        ("1.35", {}, 2, 2),
        ("1.36", {}, 2, 2),
    ],
)
def test_requests_from_a_status_by_release(version, gates, ordinary, sidecar):
    node = Node(
        read_machine("align-up-article"), {**FIELDS, "featureGates": gates}, kubelet_version=version
    )
    admission = node.admit(pod(allocated={"cpu": "1", "memory": "1Gi"}, init=True))
    assert [len(admission.containers[name].cpus or ()) for name in ("c0", "s0")] == [
        ordinary,
        sidecar,
    ]


def test_a_status_that_says_what_the_spec_says_changes_nothing():
    assert not read_pod(pod(allocated={"cpu": 2, "memory": "1Gi"})).readings
    assert not read_pod(pod()).readings


def claimed_status(manifest):
    """Return the status of a pod, of whose devices a claim stands for some."""
    mappings = [
        {"containerName": container["name"], "resourceName": resource, "requestName": "r"}
        for container in manifest["spec"]["containers"]
        for resource in container["resources"]["limits"]
        if resource.startswith("example.com/gpu")
    ]
    return {"extendedResourceClaimStatus": {"requestMappings": mappings}}


@pytest.mark.parametrize("version", ["1.32", "1.33", "1.34"])
@pytest.mark.parametrize("others", [{}, {"cpu": "1"}])
def test_a_container_without_memory_is_judged_as_its_kubelet_places_it(version, others):
    """Up to 1.33, a memory manager looks for a place for it where the pod has resources."""
    gates = {"PodLevelResources": True}
    memory = {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "evictionHard": {"memory.available": "1Gi"},
    }
    single = {"topologyManagerPolicy": "single-numa-node"}
    config = {**FIELDS, **single, **memory, "featureGates": gates}
    node = Node(read_machine("align-up-article"), config, kubelet_version=version)
    manifest = pod(pod_level=LEVEL)
    manifest["spec"]["containers"] = [{"name": "c0", "resources": {"limits": others}}]

    admission = node.try_admit(manifest)
    answer = Cluster.from_nodes([node]).evaluate(manifest)
    assert (answer.admitted.tolist(), REASONS[answer.reason[0]]) == (
        [admission.admitted],
        admission.reason,
    )
    assert admission.admitted is (version == "1.34" or bool(others))


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_nodes_of_all_releases_are_judged_as_they_decide(seed):
    """Random nodes in two releases each: the cluster's answers are the nodes' own."""
    random, nodes, scenarios = Random(seed), [], []
    while len(nodes) < 60:
        scenario, node = node_of(random)
        try:
            older = Node.from_dict({**scenario, "kubeletVersion": f"1.{random.randint(29, 35)}"})
        except ConfigError:
            continue

        nodes += [older, node]
        scenarios.append(scenario)

    cluster = Cluster.from_nodes(nodes)
    for number in range(25):
        scenario = random.choice(scenarios)
        manifest = pod_of(random, f"new-{number}", scenario["machine"], scenario["devices"])
        if number % 5 == 0:
            manifest["spec"]["resources"] = LEVEL
            manifest["metadata"]["annotations"] = {}
        if number % 5 == 1:
            manifest["status"] = claimed_status(manifest)

        made = read_pod(manifest)
        answer = cluster.evaluate(made, exact=True)
        for index, node in enumerate(nodes):
            try:
                admission = node.try_admit(made)
            except ConfigError:
                continue

            assert bool(answer.admitted[index]) == admission.admitted
            assert REASONS[answer.reason[index]] == admission.reason

        index = random.randrange(len(nodes))
        try:
            nodes[index].admit(made)
        except ConfigError:
            continue


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_node_is_worth_the_same_beside_nodes_of_another_release(strategy):
    """One that is asked itself is scored by what its own kubelet reads of the pod."""
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    machine = read_machine("align-up-article")
    older = Node(machine, FIELDS, kubelet_version="1.33")
    newer = Node(machine, {**FIELDS, "featureGates": gates}, kubelet_version="1.37")
    manifest = pod(pod_level={"limits": {"cpu": "3", "memory": "2Gi"}})
    together = Cluster.from_nodes([older, newer]).evaluate(manifest, strategy)
    alone = [Cluster.from_nodes([node]).evaluate(manifest, strategy) for node in (older, newer)]
    assert together.admitted.all()
    assert together.score.tolist() == [answer.score[0] for answer in alone]


def test_a_cluster_of_no_nodes_has_no_answer_to_a_pod_that_releases_read_otherwise():
    assert len(Cluster.from_nodes({}).evaluate(pod(pod_level=LEVEL)).admitted) == 0


def test_node_lines_name_their_release():
    line = {"name": "a", "machine": "align-up-article", "kubelet": FIELDS}
    lines = "\n".join(
        json.dumps({**line, "name": v, "kubeletVersion": v}) for v in ("1.33", "1.36")
    )
    cluster = Cluster.from_json_lines(lines)
    assert [str(node.config.version) for node in cluster.nodes] == ["1.33", "1.36"]
    of_one_release = Cluster.from_json_lines(lines, kubelet_version="1.34")
    assert [str(node.config.version) for node in of_one_release.nodes] == ["1.34", "1.34"]
    answer = cluster.evaluate(pod(pod_level=LEVEL), exact=True)
    assert answer.admitted.all()


def test_amounts_are_judged_by_a_release_too():
    """Kubelets before 1.36 offer masks of nodes without devices.

    So two lists can meet there.
    """
    resource = {"capacity": "1", "allocatable": "1", "available": "1"}
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "cpu", **dict.fromkeys(resource, cpus)},
                {"name": "a/gpu", **dict.fromkeys(resource, gpus)},
            ],
        }
        for number, (cpus, gpus) in enumerate((("2", "2"), ("4", "0")))
    ]
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "a"},
        "topologyPolicies": ["BestEffort"],
        "zones": zones,
    }
    limits = {"cpu": "5", "memory": "1Gi", "a/gpu": "1"}
    manifest = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c0", "resources": {"limits": limits}}]},
    }
    affinity = {
        version: int(
            read_node_resource_topologies(topology, kubelet_version=version)
            .evaluate(manifest)
            .affinity[0]
        )
        for version in ("1.35", "1.36")
    }

    assert affinity == {"1.35": 3, "1.36": 1}


def api_node(name, version):
    """Return a Node object as the API has it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": "z"}},
        "status": {"nodeInfo": {"kubeletVersion": version}},
    }


def topology_named(name, policy="BestEffort"):
    """Return a NodeResourceTopology object of two NUMA nodes."""
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "available": cpus},
                {"name": "memory", "available": "8Gi"},
                {"name": "a/gpu", "available": gpus},
            ],
        }
        for number, (cpus, gpus) in enumerate((("2", "2"), ("4", "0")))
    ]

    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "topologyPolicies": [policy],
        "zones": zones,
    }


@pytest.mark.parametrize("as_text", [False, True])
def test_node_objects_beside_topologies_tell_the_releases(as_text):
    """As `kubectl get nodes,noderesourcetopologies -o json` prints both in one List."""
    items = [
        api_node("old", "v1.35.4-gke.1"),
        topology_named("old"),
        topology_named("unknown"),
        topology_named("new"),
        api_node("new", "v1.36.1"),
    ]
    data = {"kind": "List", "apiVersion": "v1", "items": items}
    source = json.dumps(data).encode() if as_text else data
    cluster = read_node_resource_topologies(source)
    assert cluster.evaluate(ACROSS).affinity.tolist() == [3, 1, 1]

    cluster.update("old", read_amounts(topology_named("old"), "old"))  # of the same kubelet
    assert cluster.evaluate(ACROSS).affinity.tolist() == [3, 1, 1]

    of_one_release = read_node_resource_topologies(source, kubelet_version="1.35")
    assert of_one_release.evaluate(ACROSS).affinity.tolist() == [3, 3, 3]


def test_node_objects_that_do_not_help_are_named():
    with pytest.warns(
        AlignupWarning, match="Node objects without a NodeResourceTopology are ignored: b, c"
    ):
        read_node_resource_topologies(
            [api_node("c", "v1.33.1"), topology_named("a"), api_node("b", "v1.33.1")]
        )
    with pytest.raises(
        InputError, match=r"kubelet 1\.29 or later.* at status\.nodeInfo\.kubeletVersion of node a"
    ):
        read_node_resource_topologies([api_node("a", "v1.12.1"), topology_named("a")])
    with pytest.raises(InputError, match="no NodeResourceTopology in"):
        read_node_resource_topologies([api_node("a", "v1.33.1")])


def test_each_kubelet_of_amounts_reads_the_pod_in_its_way():
    """1.33 pins the containers of a pod with resources of its own.

    1.36 lets them share, so that nothing is aligned.
    """
    objects = []
    for name, version in (("a", "v1.33.1"), ("b", "v1.36.1"), ("c", "v1.33.9")):
        objects += [api_node(name, version), topology_named(name, "SingleNUMANode")]

    limits = {"cpu": "5", "memory": "1Gi"}
    manifest = {
        "metadata": {"name": "p"},
        "spec": {
            "resources": {"limits": limits},
            "containers": [{"name": "c0", "resources": {"limits": limits}}],
        },
    }
    for order in (objects, objects[2:] + objects[:2]):
        cluster = read_node_resource_topologies(order)
        expected = [name == "b" for name in cluster.names]
        assert cluster.evaluate(manifest).admitted.tolist() == expected
        made = read_pod(manifest)
        into = Evaluation.empty(len(cluster))
        cluster.judge(cluster.job(made), made, "least-numa-nodes", into, 0, 2, np.array([1, 2]))
        assert into.admitted.tolist() == [False, *expected[1:]]


def test_a_node_line_may_carry_the_node_object():
    line = {
        "machine": "align-up-article",
        "kubelet": FIELDS,
        "nodeObject": api_node("a", "v1.33.4-eks-1"),
    }
    newer = {**line, "name": "b", "kubeletVersion": "1.35"}
    cluster = Cluster.from_json_lines("\n".join(map(json.dumps, ({**line, "name": "a"}, newer))))
    assert [str(node.config.version) for node in cluster.nodes] == ["1.33", "1.35"]
    assert [node.labels for node in cluster.nodes] == [{"zone": "z"}] * 2

    node = Node.from_dict({**line, "labels": {"zone": "y"}})
    assert (str(node.config.version), node.labels) == ("1.33", {"zone": "y"})
    assert str(Node.from_dict(line, kubelet_version="1.31").config.version) == "1.31"
    with pytest.raises(InputError, match="a Node object, got 3 at nodeObject"):
        Node.from_dict({**line, "nodeObject": 3})
