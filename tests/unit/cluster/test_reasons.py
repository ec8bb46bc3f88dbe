"""The short reasons of a cluster blame what the node's own explanation blames."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from alignup import explain, read_pod
from alignup.cluster import REASONS, Cluster, read_node_resource_topologies
from alignup.cluster.ranking import layouts_of, rank, refusal_texts
from alignup.cluster.shortages import Fit
from alignup.cluster.simulation import Simulation
from alignup.cluster.traces import Arrival
from alignup.errors import ConfigError
from alignup.explanations.cause import causes_of
from alignup.explanations.trial import tried
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from inputs.cluster_nodes import node_of, pod_of
from inputs.strategies import seeds
from inputs.watched_objects import description

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

WORDS = {
    "too little": "is free on the node",
    "one node": "no NUMA node has enough",
    "spread": "more NUMA nodes than on an empty machine",
    "allocation": "left to allocate",
    "whole cores": "cannot be allocated as whole cores",
}
ALL = {"cpu", "memory", "gpu", "nic", "fpga", "hugepages-2Mi", "hugepages-1Gi", "hugepages-16Gi"}
PAIRS = 2000


def pairs(seed: int, count: int):
    """Yield random nodes with pods that they refuse, and the causes."""
    random = Random(seed)
    refusals = 0
    while refusals < count:
        scenario, node = node_of(random)
        for number in range(6):
            pod = read_pod(
                pod_of(random, f"new-{number}", scenario["machine"], scenario["devices"])
            )
            try:
                trial = tried(node, pod)
            except ConfigError:
                continue

            if not trial.admission:
                refusals += 1
                yield node, pod, causes_of(node, trial)


def check(reason: str, causes) -> None:
    """Check a short reason against the causes that an explanation tells."""
    kind, sentence = causes[0].kind, "; ".join(cause.sentence for cause in causes)
    blamed = {name.rpartition("/")[2] for cause in causes for name in cause.resources}
    assert {word.strip(",;") for word in reason.split()} & ALL == blamed, (reason, sentence)
    if kind == "conflict":
        assert "no set of NUMA nodes suits" in reason or " only on NUMA node" in reason, (
            reason,
            sentence,
        )
    elif kind == "pod policy":
        assert ("exclusivity" in reason) is ("exclusivity" in sentence), (reason, sentence)
        assert "exclusivity" in reason or "the pod's policy" in reason
    else:
        assert WORDS[kind] in reason, (reason, kind, sentence)


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_a_ranking_blames_what_the_node_blames(seed) -> None:
    for node, pod, causes in pairs(seed, PAIRS // 20):
        cluster = Cluster.from_nodes({"n": node})
        [refused] = rank(cluster, pod, cluster.evaluate(pod), Fit(cluster)).refused
        check(refused.cause, causes)


def test_a_ranking_blames_what_an_explanation_says() -> None:
    for node, pod, _ in pairs(99, 20):
        explanation = explain(node, pod)
        cluster = Cluster.from_nodes({"n": node})
        [refused] = rank(cluster, pod, cluster.evaluate(pod), Fit(cluster)).refused
        assert {word.strip(",;") for word in refused.cause.split()} & ALL == {
            name.rpartition("/")[2] for name in explanation.blamed
        }


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_simulation_and_an_extender_blame_what_the_node_blames(seed) -> None:
    for node, pod, causes in pairs(100 + seed, 30):
        cluster = Cluster.from_nodes({"n": node})
        answer = cluster.evaluate(pod)
        [text] = refusal_texts(cluster, layouts_of(cluster), pod, answer, np.array([0]))
        check(text.removeprefix("NUMA: "), causes)
        report = Simulation(cluster).run([Arrival(0.0, pod, 1.0)])
        if report.causes:
            [(reason, cause)] = report.causes
            assert reason == REASONS[answer.reason[0]]
            check(cause, causes)


def line(name: str, machine: str, **kubelet: Any) -> str:
    fields: dict[str, Any] = {"name": name, "machine": machine}
    if kubelet:
        fields["kubelet"] = kubelet
    return json.dumps(fields)


def pod(**limits: str) -> Pod:
    container = {"name": "c", "resources": {"limits": limits}}
    return read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})


def causes_in(lines: list[str], manifest: Pod) -> dict[str, str]:
    cluster = Cluster.from_json_lines("\n".join(lines))
    return {
        refused.node: refused.cause
        for refused in rank(cluster, manifest, cluster.evaluate(manifest), Fit(cluster)).refused
    }


def test_a_neighbour_with_a_memory_manager_puts_no_blame_on_memory() -> None:
    aligned = line(
        "aligned", "xeon-2s", topologyManagerPolicy="single-numa-node", cpuManagerPolicy="static"
    )
    causes = causes_in([line("plain", "xeon-2s"), aligned], pod(cpu="65", memory="1Mi"))
    assert causes["aligned"] == "no NUMA node has enough cpu"


def test_cpus_that_an_empty_node_would_spread_as_well_are_in_conflict() -> None:
    causes = causes_in([line("r", "epyc-2s-nps4")], pod(cpu="40", memory="64Gi"))
    assert causes == {"r": "no set of NUMA nodes suits cpu and memory"}


def zones(
    policy: str, resource: str, *available: int, capacity: int = 8, **others: int
) -> dict[str, Any]:
    """Return a NodeResourceTopology object with amounts of one resource.

    Each zone has the same amounts of the others.
    """
    unused = [
        {"name": name, "capacity": str(amount), "available": str(amount)}
        for name, amount in others.items()
    ]
    zone_objects = []
    for number, free in enumerate(available):
        amounts = {"name": resource, "capacity": str(capacity), "available": str(free)}
        zone_objects.append(
            {"name": f"node-{number}", "type": "Node", "resources": [amounts, *unused]}
        )

    return {
        "kind": "NodeResourceTopology",
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "metadata": {"name": f"{policy}-{resource}"},
        "topologyPolicies": [policy],
        "zones": zone_objects,
    }


def test_amounts_blame_what_the_node_manages_and_tell_spread_from_conflict() -> None:
    objects = [
        zones("SingleNUMANodeContainerLevel", "cpu", 8, 8),
        zones("RestrictedContainerLevel", "cpu", 3, 3),
        zones("RestrictedContainerLevel", "memory", 1 << 30, 1 << 30, capacity=1 << 31, cpu=2),
    ]
    cluster = read_node_resource_topologies(objects)
    small = pod(cpu="4", memory="1Mi")
    causes = {
        refused.node: refused.cause
        for refused in rank(cluster, small, cluster.evaluate(small), Fit(cluster)).refused
    }
    assert (
        causes["RestrictedContainerLevel-cpu"]
        == "cpu would need more NUMA nodes than on an empty machine"
    )
    assert causes["RestrictedContainerLevel-memory"] == "no set of NUMA nodes suits cpu and memory"

    wide = pod(cpu="9", memory="1Mi")
    causes = {
        refused.node: refused.cause
        for refused in rank(cluster, wide, cluster.evaluate(wide), Fit(cluster)).refused
    }
    assert causes["SingleNUMANodeContainerLevel-cpu"] == "no NUMA node has enough cpu"


@pytest.mark.parametrize("most_asked", [0, 1, 4, 9])
def test_of_many_nodes_those_that_are_not_asked_say_what_those_alike_say(
    monkeypatch, most_asked: int
) -> None:
    lines = [line(f"n{number}", "epyc-2s-nps4") for number in range(9)]
    cluster = Cluster.from_json_lines("\n".join(lines))
    wide = pod(cpu="40", memory="64Gi")
    answer = cluster.evaluate(wide)
    monkeypatch.setattr("alignup.cluster.ranking.MOST_ASKED", most_asked)
    texts = refusal_texts(cluster, layouts_of(cluster), wide, answer, np.arange(9))
    assert set(texts) == {"NUMA: no set of NUMA nodes suits cpu and memory"}


@pytest.mark.parametrize("blind", [True, False])
def test_a_simulation_takes_requests_of_exbibytes(blind) -> None:
    cluster = Cluster.from_json_lines(line("n", "xeon-2s"))
    sizes = ("9Ei", "8Ei", "1E", "9.2e18", "1Gi")
    pods = [pod(cpu="1", memory=size) for size in sizes] + [
        pod(cpu="9Ei", memory="1Gi"),
        pod(cpu="9e18"),
    ]
    events = [
        Arrival(float(number), replace(large_pod, uid=str(number), name=str(number)), 1.0)
        for number, large_pod in enumerate(pods)
    ]
    report = Simulation(cluster, blind=blind).run(events)
    assert (report.placed, report.no_room) == (1, len(pods) - 1)


def test_a_simulation_tells_the_cause_of_each_moment() -> None:
    """Pods that ask for the same are refused by the same node, which has changed meanwhile."""

    def arrival(number: int, **limits: str) -> Arrival:
        return Arrival(float(number), replace(pod(**limits), uid=str(number), name=str(number)))

    wide = {"cpu": "3", "memory": "1Gi", "example.com/gpu": "2"}
    small = {"cpu": "2", "memory": "1Gi"}
    cluster = Cluster.from_json_lines(json.dumps({"name": "n", **description()}))
    events = [arrival(0, **wide), arrival(1, **small), arrival(2, **small), arrival(3, **wide)]
    causes = {cause: count for (_, cause), count in Simulation(cluster).run(events).causes.items()}
    assert causes == {"no NUMA node has enough gpu": 1, "no NUMA node has enough gpu and cpu": 1}


def test_a_pod_with_a_policy_of_its_own_is_blamed_as_a_whole(monkeypatch) -> None:
    """On a node of policy none it is judged in one piece: each of its containers would fit."""
    cluster = Cluster.from_json_lines(line("n", "xeon-2s", cpuManagerPolicy="static"))
    containers = [
        {"name": name, "resources": {"limits": {"cpu": "40", "memory": "1Gi"}}}
        for name in ("first", "second")
    ]
    spec = {"numaTopologyPolicy": "SingleNUMANode"}
    annotated = read_pod(
        {
            "metadata": {
                "name": "p",
                "annotations": {"scheduling.koordinator.sh/numa-topology-spec": json.dumps(spec)},
            },
            "spec": {"containers": containers},
        }
    )
    single_numa_node = TOPOLOGY_POLICIES.index("single-numa-node")
    monkeypatch.setattr("alignup.cluster.ranking.MOST_ASKED", 0)
    texts = refusal_texts(
        cluster,
        layouts_of(cluster),
        annotated,
        cluster.evaluate(annotated),
        np.arange(1),
        own_policy=single_numa_node,
    )

    assert texts == ["NUMA: no NUMA node has enough cpu"]
