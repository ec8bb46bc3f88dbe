"""A cluster: what it keeps, how it scores, how it follows its nodes, what it refuses to do.

Besides, what a pod asks of its rows, and the threads that share its work.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from _thread import start_new_thread
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from queue import SimpleQueue
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import alignup
from alignup import read_pod
from alignup.cluster import (
    REASONS,
    STRATEGIES,
    Cluster,
    Evaluation,
    read_amounts,
    read_node_resource_topologies,
)
from alignup.cluster.cluster import (
    Helpers,
    NodeAmounts,
    SharedWork,
    help_with,
    request_of,
    row_of_amounts,
)
from alignup.errors import InputError
from alignup.koordinator.effective import document_score
from alignup.kubernetes.quantity import LARGEST
from alignup.machine.device_inventory import Device
from alignup.node import Node
from checks.many_cases import check_each
from checks.memory_use import MEBI, at_most
from fakes.hint_providers import Saying, Wrapped, hint
from inputs.cluster_files import TOPOLOGY, node_line, pod_manifest
from inputs.machines import machine_of
from inputs.strategies import examples, seeds

GIBI = 1 << 30

LABEL = "node.koordinator.sh/numa-topology-policy"


def cluster_of(*lines):
    return Cluster.from_json_lines("\n".join(lines))


def amounts_of(numa_nodes=1, policy="none", **more):
    """Return a node of which only amounts are known: none, unless said otherwise."""
    return row_of_amounts(NodeAmounts(numa_nodes, policy, **more))


def test_the_public_name():
    assert alignup.Cluster is Cluster


def test_resources_by_node_and_numa_node():
    """Free and allocatable amounts are arrays; a device near to no node counts nowhere."""
    cluster = cluster_of(
        node_line("a", pods=[pod_manifest("old", cpus=3, memory="4Gi", gpu=1)]), node_line("b")
    )
    assert cluster.names == ("a", "b")
    assert len(cluster) == 2

    assert cluster.resources == ("cpu", "memory", "example.com/any", "example.com/gpu")
    assert cluster.allocatable("cpu").tolist() == [[7, 8], [7, 8]]
    assert cluster.free("cpu").tolist() == [[4, 8], [7, 8]]
    assert cluster.free("memory").tolist() == [[27 * GIBI, 32 * GIBI], [31 * GIBI, 32 * GIBI]]
    assert cluster.allocatable("memory")[0].tolist() == [31 * GIBI, 32 * GIBI]
    assert cluster.free("example.com/gpu").tolist() == [[0, 1], [1, 1]]
    assert cluster.allocatable("example.com/gpu").tolist() == [[1, 1], [1, 1]]
    assert cluster.free("example.com/any").tolist() == [[0, 0], [0, 0]]
    assert repr(cluster) == "<Cluster of 2 nodes: cpu, memory, example.com/any, example.com/gpu>"


def test_names_and_resources_that_are_not_there():
    cluster = cluster_of(node_line("a"))
    assert cluster.index("a") == 0
    with pytest.raises(InputError, match="name of one of its nodes, got 'b'"):
        cluster.index("b")
    for amounts in (cluster.free, cluster.allocatable):
        with pytest.raises(InputError, match="one of cpu, memory"):
            amounts("example.com/nothing")


def test_names_come_once():
    with pytest.raises(InputError, match="no other node has, got 'a'"):
        Cluster(["a", "a"], [amounts_of(), amounts_of()])


def test_nodes_without_names_are_numbered():
    node = Node.from_dict({"machine": machine_of(2, 2)})
    assert Cluster.from_nodes([node, node]).names == ("node-0", "node-1")
    assert Cluster.from_nodes({"x": node}).names == ("x",)


def test_more_resources_than_a_word_has_bits():
    """A node may have as many device resources as it likes; a pod asks for a few of them."""
    names = [f"example.com/{number:02}" for number in range(70)]
    devices = dict.fromkeys(names, ((1,),) * 3)
    cluster = Cluster(["a"], [amounts_of(1, "restricted", resources=devices)])
    assert cluster.resources == tuple(names)
    for number in (0, 63, 64, 69):
        assert cluster.evaluate(pod_manifest("new", **{f"{number:02}": 1})).admitted.all()
        assert not cluster.evaluate(pod_manifest("new", **{f"{number:02}": 2})).admitted.any()


def test_a_pod_that_asks_for_too_many_resources():
    cluster = cluster_of(node_line("a", devices={f"example.com/{n}": [] for n in range(30)}))
    with pytest.raises(InputError, match="at most 24 device resources, got 30"):
        cluster.evaluate(pod_manifest("new", **{str(n): 1 for n in range(30)}))


@pytest.mark.parametrize("threads", [0, 257])
def test_a_sensible_number_of_threads(threads):
    with pytest.raises(InputError, match="1 to 256 threads"):
        cluster_of(node_line("a")).evaluate(pod_manifest("new"), threads=threads)


def test_amounts_alone_cannot_be_asked():
    """They answer with upper bounds, whose refusals are certain."""
    cluster = Cluster(
        ["a"], [amounts_of(1, "restricted", resources={"example.com/gpu": ((1,),) * 3})]
    )
    with pytest.raises(InputError, match="amounts only: make it from nodes, as JSON lines"):
        cluster.evaluate(pod_manifest("new"), exact=True)
    assert not cluster.evaluate(pod_manifest("new", gpu=1)).exact.any()
    refused = cluster.evaluate(pod_manifest("new", gpu=2))
    assert not refused.admitted.any()
    assert refused.exact.all()


def offering(*nodes):
    """Return a provider of a user that has a resource on each of these NUMA nodes."""
    return Saying({"example.com/own": [hint(True, node) for node in nodes]})


def last_first(available, must_include, size):
    """Prefer the last devices: a device plugin that is a function."""
    others = [device for device in available if device not in must_include]
    return [*must_include, *reversed(others)][:size]


@pytest.mark.parametrize(
    "more",
    [{"providers": [offering(1)]}, {"wrap": Wrapped}, {"plugins": {"example.com/gpu": last_first}}],
    ids=["a provider of a user", "wrapped providers", "a device plugin"],
)
def test_nodes_that_others_take_part_in_are_exact_too(more):
    """They are asked themselves, and are left as they were."""
    nodes = [Node.from_dict(json.loads(node_line("a")), **options) for options in ({}, more)]
    cluster = Cluster.from_nodes(nodes)
    for manifest in (pod_manifest("new", gpu=1), pod_manifest("new", cpus=9)):
        answer = cluster.evaluate(manifest)
        assert answer.exact.all()
        for index, node in enumerate(nodes):
            admission = node.admit(manifest)
            assert (answer.admitted[index], REASONS[answer.reason[index]]) == (
                admission.admitted,
                admission.reason,
            )
            if not admission.admitted:
                continue
            affinity = admission.containers["c0"].affinity
            assert answer.affinity[index] == int(affinity.affinity)
            assert answer.preferred[index] == affinity.preferred
            node.remove("new")

        assert all(node.pods == () for node in nodes)


def test_nodes_that_go_beyond_kubelets_are_asked_themselves():
    """Devices that have to be on one PCIe root, and policies of containers."""
    line = json.loads(node_line("a", policy="none"))
    line["machine"]["pciDevices"] = [
        {"address": f"0000:0{root}:00.0", "class": "0302", "vendor": "10de", "device": "1"}
        | {"numaNode": root - 1}
        for root in (1, 2)
    ]
    machine, kubelet = line["machine"], line["kubelet"]
    devices = {
        "a.b/gpu": [{"id": "0000:01:00.0", "numa": 0}],
        "a.b/nic": [{"id": "0000:02:00.0", "numa": 1}],
    }
    paired = Node(machine, kubelet, devices, pair=["a.b/gpu,a.b/nic:required"])
    both = pod_manifest("both")
    both["spec"]["containers"][0]["resources"]["limits"] |= {"a.b/gpu": "1", "a.b/nic": "1"}

    beyond = Node(machine, kubelet, {}, beyond_kubelet=True)
    wide = pod_manifest("wide", cpus=9)
    wide["metadata"]["annotations"] = {"alignup.dev/policies": '{"c0": "single-numa-node"}'}

    for node, manifest in ((paired, both), (beyond, wide)):
        answer = Cluster.from_nodes([node]).evaluate(manifest)
        admission = node.try_admit(manifest)
        assert not admission.admitted
        assert (answer.admitted[0], REASONS[answer.reason[0]]) == (False, admission.reason)


def test_a_node_that_is_asked_is_scored_like_any_other():
    """Where the hint of a user's provider decides, the score follows the placement."""
    nodes = [
        Node.from_dict(json.loads(node_line("a")), providers=providers)
        for providers in ([], [offering(0)], [offering(1)])
    ]
    for strategy in STRATEGIES:
        answer = Cluster.from_nodes(nodes).evaluate(pod_manifest("new", gpu=1), strategy)
        assert answer.affinity.tolist() == [1, 1, 2]
        assert answer.score[0] == answer.score[1]
        assert np.isfinite(answer.score[2])


def test_best_comes_by_score_then_by_order():
    score = np.array([1.0, 5.0, -np.inf, 5.0, 2.0])
    no = np.zeros(5, np.uint8)
    answer = Evaluation(score > 0, no, no, no, score, no)
    assert answer.best().tolist() == [1, 3, 4, 0]
    assert answer.best(1).tolist() == [1]
    assert answer.best(3).tolist() == [1, 3, 4]
    assert answer.best(0).tolist() == []
    assert len(answer) == 5


def test_refusals_are_counted_by_reason():
    """Only reasons that occur are named, and nodes that admit the pod are none of them."""
    topology, unexpected = (
        REASONS.index(name) for name in ("TopologyAffinityError", "UnexpectedAdmissionError")
    )
    answer = Evaluation.empty(5)
    assert answer.refusals() == {}

    answer.reason[:] = [topology, 0, unexpected, topology, 0]
    assert answer.refusals() == {"TopologyAffinityError": 2, "UnexpectedAdmissionError": 1}


def scored(strategy, pod, cpu=(4, 8), policy="single-numa-node", **more):
    """Return the score of a pod on a node of two NUMA nodes with 8 CPUs and 4 devices each."""
    row = amounts_of(
        2,
        policy,
        distances=((10, 20), (20, 10)),
        resources={"cpu": ((8, 8), (8, 8), cpu), "example.com/gpu": ((4, 4), (4, 4), (2, 4))},
    )
    return Cluster(["a"], [row]).evaluate(pod_manifest("new", **pod), strategy, **more).score[0]


def test_scores():
    """Fractions are of what is free on the nodes of the placement.

    The document's are of what there is.
    """
    pod = {"cpus": 3, "gpu": 1}  # on node 0: 3 of 4 CPUs, 1 of 2 devices
    assert scored("least-numa-nodes", pod) == 100 - 12 + 6
    assert scored("most-allocated", pod) == pytest.approx(100 * (0.75 + 0.5) / 2)
    assert scored("least-allocated", pod) == pytest.approx(100 * (0.25 + 0.5) / 2)
    assert scored("balanced-allocation", pod) == pytest.approx(
        100 * (1 - np.var([0.75, 0.5], ddof=1))
    )
    cpus, devices = document_score(1, 4 + 3, 8), document_score(1, 2 + 1, 4)
    assert scored("document", pod) == pytest.approx((cpus + devices) / 2)
    assert scored("balanced-allocation", {"cpus": 3}) == 100


def test_scores_over_several_numa_nodes():
    """Every further node costs 12; without alignment all nodes count."""
    pod = {"cpus": 12}
    assert scored("least-numa-nodes", pod, policy="best-effort") == 100 - 24 + 6
    assert scored("least-numa-nodes", pod, policy="none") == 100 - 24
    assert scored("most-allocated", pod, policy="none") == pytest.approx(100)
    assert scored("least-numa-nodes", {"cpus": 3}, policy="none") == 100 - 24


def test_pods_that_ask_for_nothing_aligned_score_alike():
    manifest = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    cluster = cluster_of(node_line("a"))
    for strategy in STRATEGIES:
        assert cluster.evaluate(manifest, strategy).score.tolist() == [100]


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_wide_machines_are_exact(policy):
    """Beyond 8 NUMA nodes the answer is the node's own too.

    For one NUMA node, several, and too much.
    """
    line = json.loads(node_line("a", policy=policy, machine=machine_of(12, 4)))
    line["kubelet"]["topologyManagerPolicyOptions"] = {"max-allowable-numa-nodes": "12"}
    node = Node.from_dict(line)
    for index in range(5):
        assert node.admit(pod_manifest(f"old-{index}", cpus=3, memory="5Gi")).admitted

    cluster = Cluster.from_nodes([node])
    nothing = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    manifests = [
        pod_manifest("new", cpus=cpus, memory=memory)
        for cpus, memory in ((6, "4Gi"), (12, "4Gi"), (8, "40Gi"), (2, "9Ti"))
    ]
    for manifest in (nothing, *manifests):
        answer = cluster.evaluate(manifest)
        admission = node.try_admit(manifest)
        assert answer.exact.all()
        assert (answer.admitted[0], REASONS[answer.reason[0]]) == (
            admission.admitted,
            admission.reason,
        )

        mask = 0
        is_preferred = False
        if admission.admitted:
            hint_of_node = next(iter(admission.containers.values())).affinity
            if hint_of_node is not None:
                mask = int(hint_of_node.affinity or 0)
                is_preferred = hint_of_node.preferred

        assert answer.affinity[0] == mask
        assert answer.preferred[0] == is_preferred


def test_devices_without_a_place_that_an_init_container_leaves():
    """They bind the next container to no NUMA node.

    Those that a plugin calls near to no node rule out all.
    """
    manifest = pod_manifest("new", cpus=1, gpu=1)
    manifest["spec"]["initContainers"] = [{**manifest["spec"]["containers"][0], "name": "i"}]
    devices = [{"id": "a", "numa": None}, {"id": "b", "numa": [0]}, {"id": "c", "numa": [0]}]
    for first, admitted in ((None, True), ([], False)):
        devices[0]["numa"] = first
        cluster = cluster_of(
            node_line("a", machine=machine_of(1, 4), devices={"example.com/gpu": devices})
        )
        answer = cluster.evaluate(manifest)
        assert answer.exact[0]
        assert answer.admitted[0] == admitted
        admission = cluster.nodes[0].admit(manifest)
        assert admission.admitted == admitted


def test_amounts_are_small():
    """A node of 8 NUMA nodes and four resources takes less than two kilobytes.

    Python objects included.
    """
    amounts = NodeAmounts(
        8,
        "restricted",
        scope="pod",
        resources={
            "cpu": ((8,) * 8,) * 3,
            "memory": ((GIBI,) * 8,) * 3,
            **{f"example.com/{name}": ((1,) * 8,) * 3 for name in ("gpu", "nic")},
        },
    )
    row_of_amounts(amounts)  # makes the capacities, which nodes that are alike share
    with at_most(2_000 * 1_000 / MEBI):
        Cluster([str(n) for n in range(1_000)], [row_of_amounts(amounts) for _ in range(1_000)])


def test_the_label_of_a_node_is_its_policy():
    """In a cluster as on the node itself.

    A pod too large for one NUMA node is refused where the label says so.
    """
    cluster = cluster_of(
        node_line("labelled", policy="none", labels={LABEL: "SingleNUMANode"}),
        node_line("plain", policy="none"),
    )
    answer = cluster.evaluate(pod_manifest("large", cpus=9))
    assert answer.admitted.tolist() == [False, True]


def test_a_cluster_has_one_default_of_exclusivity():
    """It is an argument of the scheduler, and there is one scheduler."""
    lines = [
        node_line(name, singleNUMANodeExclusive=value)
        for name, value in (("a", "Required"), ("b", "Preferred"))
    ]
    with pytest.raises(InputError, match="the same value for every node of a cluster"):
        cluster_of(*lines)


def annotated(uid, cpus, policy, exclusive=""):
    """A pod that brings a policy of its own."""
    spec = {"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive}
    made = pod_manifest(uid, cpus=cpus)
    made["metadata"]["annotations"] = {
        "scheduling.koordinator.sh/numa-topology-spec": json.dumps(spec)
    }
    return made


@pytest.mark.parametrize(
    ("new", "admitted", "masks"),
    [
        (annotated("new", 1, "SingleNUMANode"), [False, True, True, True], [0, 0b10, 0b01, 0b01]),
        (annotated("new", 1, "SingleNUMANode", "Preferred"), [True] * 4, [0b10, 0b10, 0b01, 0b01]),
        (annotated("new", 9, "Restricted"), [False, False, True, True], [0, 0, 0b11, 0b11]),
        (
            annotated("new", 9, "Restricted", "Preferred"),
            [False, True, True, True],
            [0, 0b11, 0b11, 0b11],
        ),
        (annotated("new", 9, "BestEffort"), [False, False, True, True], [0, 0, 0b11, 0b11]),
    ],
)
def test_a_cluster_knows_who_holds_the_nodes(new, admitted, masks):
    """A pod across NUMA nodes, a SingleNUMANode pod in node 1, another pod, and nobody."""
    nodes = [
        Node.from_dict({"machine": machine_of(2, 4), "kubelet": {"cpuManagerPolicy": "static"}})
        for _ in range(4)
    ]
    nodes[0].admit(annotated("wide", 9, "Restricted"))
    nodes[1].admit(pod_manifest("filler", cpus=8))
    nodes[1].admit(annotated("single", 2, "SingleNUMANode"))
    nodes[1].remove("filler")
    nodes[2].admit(pod_manifest("plain", cpus=2))
    cluster = Cluster.from_nodes(nodes)
    answer = cluster.evaluate(new)

    assert answer.exact.all()
    assert answer.admitted.tolist() == admitted
    assert answer.affinity.tolist() == masks


def test_several_pods_on_one_node_are_judged_as_each_alone():
    """Those of which amounts cannot tell ask the node itself, here too."""
    kubelet = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}
    nodes = [Node.from_dict({"machine": machine_of(2, 4), "kubelet": kubelet}) for _ in range(2)]
    nodes[0].admit(pod_manifest("filler", cpus=6))
    cluster = Cluster.from_nodes(nodes)
    pods = [
        *(read_pod(pod_manifest(f"p{cpus}", cpus=cpus)) for cpus in range(1, 10)),
        read_pod(annotated("wide", 9, "Restricted")),
        read_pod(annotated("single", 2, "SingleNUMANode")),
    ]
    scratch = Evaluation.empty(2)
    for index in range(2):
        jobs = [(cluster.job(pod), pod) for pod in pods]
        admitted = cluster.judge_on_node(index, jobs, "least-numa-nodes", scratch)
        assert admitted == [bool(cluster.evaluate(pod).admitted[index]) for pod in pods]
        assert set(admitted) == {True, False}

    with pytest.raises(InputError, match="strategy"):
        cluster.judge_on_node(0, [], "most", scratch)


def test_what_nodes_admit_and_remove_is_seen_at_once():
    """Nothing has to be told: amounts, verdicts and scores follow.

    A copy of a node is another node.
    """
    cluster = cluster_of(node_line("a"), node_line("b"))
    large = pod_manifest("large", cpus=7, memory="20Gi", gpu=1)
    before = cluster.evaluate(large)
    node = cluster.nodes[0]
    for uid in ("x", "y"):
        assert node.admit(pod_manifest(uid, cpus=6, memory="20Gi", gpu=1)).admitted

    node.copy().remove("x")
    assert cluster.free("cpu").tolist() == [[1, 2], [7, 8]]
    assert cluster.free("memory")[0].tolist() == [11 * GIBI, 12 * GIBI]
    assert cluster.free("example.com/gpu").tolist() == [[0, 0], [1, 1]]
    assert cluster.evaluate(large).admitted.tolist() == [False, True]
    node.remove("y")
    assert cluster.evaluate(large).admitted.tolist() == [True, True]
    assert cluster.evaluate(large).affinity.tolist() == [2, 1]
    node.remove("x")
    assert cluster.evaluate(large).score.tolist() == before.score.tolist()


def test_another_node_in_a_nodes_place():
    """The new one may be of another machine, and have resources that no other node has."""
    cluster = cluster_of(node_line("a"), node_line("b"), node_line("c"))
    first, _, last = cluster.nodes
    devices = {"example.com/tpu": [{"id": "t", "numa": [11]}]}
    line = json.loads(
        node_line("b", machine=machine_of(12, 8), policy="restricted", devices=devices)
    )
    line["kubelet"]["topologyManagerPolicyOptions"] = {"max-allowable-numa-nodes": "12"}
    node = Node.from_dict(line)
    cluster.update("b", node)

    assert cluster.nodes == (first, node, last)
    assert cluster.resources[-1] == "example.com/tpu"
    assert cluster.free("example.com/tpu").tolist() == [[0] * 12, [0] * 11 + [1], [0] * 12]
    answer = cluster.evaluate(pod_manifest("new", cpus=2, tpu=1))
    assert answer.admitted.all()  # a node passes over resources that no plugin of its own has
    assert answer.affinity.tolist() == [1, 1 << 11, 1]
    assert node.admit(pod_manifest("new", cpus=2, tpu=1)).admitted
    later_answer = cluster.evaluate(pod_manifest("other", cpus=2, tpu=1))
    assert later_answer.admitted.tolist() == [True, False, True]


def test_another_object_in_an_objects_place():
    """What a node publishes anew replaces what it said before."""
    objects = yaml.safe_load(TOPOLOGY)["items"]
    cluster = read_node_resource_topologies(objects)
    assert cluster.evaluate(pod_manifest("new", cpus=9, gpu=2)).admitted.all()
    zones = json.loads(json.dumps(objects[0]["zones"]))
    for zone in zones:
        for resource in zone["resources"]:
            resource["available"] = "0"

    cluster.update("worker-a", read_amounts({**objects[0], "zones": zones}, "worker-a"))
    assert cluster.free("cpu").tolist() == [[0, 0]]
    assert not cluster.evaluate(pod_manifest("new", cpus=1)).admitted.any()
    zones[0]["resources"].append({"name": "example.com/tpu", "capacity": "3"})
    cluster.update("worker-a", read_amounts({**objects[0], "zones": zones[:1]}, "worker-a"))
    assert cluster.free("example.com/tpu").tolist() == [[3]]
    cluster.update("worker-a", read_amounts(objects[0], "worker-a"))
    assert cluster.free("cpu").tolist() == [[3, 9]]


def test_an_update_of_another_kind():
    """A cluster is of nodes or of objects, and stays so; nothing is changed by a refused update."""
    nodes = cluster_of(node_line("a"))
    objects = read_node_resource_topologies(TOPOLOGY.encode())
    with pytest.raises(InputError, match="a Node"):
        nodes.update("a", read_amounts(yaml.safe_load(TOPOLOGY)["items"][0], "a"))
    with pytest.raises(InputError, match="amounts of a NodeResourceTopology object"):
        objects.update("worker-a", nodes.nodes[0])
    for cluster in (nodes, objects):
        with pytest.raises(InputError, match="name of one of its nodes"):
            cluster.update("b", nodes.nodes[0])
    with pytest.raises(InputError, match="kind"):
        read_amounts({"kind": "Pod"}, "worker-a")
    assert objects.free("cpu").tolist() == [[3, 9]]


def test_threads_that_judge_while_nodes_change():
    """Pods come and go, nodes are replaced and judged at the same time.

    No answer is torn apart, and none is lost.
    """
    cluster = cluster_of(*(node_line(str(number)) for number in range(20)))
    pods = [pod_manifest(f"p{number}", cpus=1 + number, gpu=number % 2) for number in range(6)]
    over = Event()

    def change(seed):
        random = Random(seed)
        while not over.is_set():
            name = str(random.randrange(10 * seed, 10 * seed + 10))
            node = cluster.nodes[int(name)]
            if node.pods:
                node.remove(node.pods[0].uid)
            else:
                node.admit(random.choice(pods))

            if random.random() < 0.1:
                cluster.update(name, node.copy())

    with ThreadPoolExecutor(2) as pool:
        changing = [pool.submit(change, seed) for seed in range(2)]
        try:
            for number in range(300):
                answer = cluster.evaluate(pods[number % 6], threads=1 + number % 2)
                assert answer.exact.all()
                assert set(answer.affinity.tolist()) <= {0, 1, 2}
        finally:
            over.set()

        for done in changing:
            done.result()

    for manifest in pods:
        answer = cluster.evaluate({**manifest, "metadata": {"name": "new", "uid": "new"}})
        for index, node in enumerate(cluster.nodes):
            own = node.try_admit({**manifest, "metadata": {"name": "new", "uid": "new"}})
            assert answer.admitted[index] == own.admitted


def test_threads_that_read_amounts_while_nodes_bring_resources():
    """The rows are laid out anew meanwhile, and the old ones are gone."""
    machine = alignup.read_machine("align-up-article")
    config = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    count = 3_000
    cluster = Cluster.from_nodes([Node(machine, config)] * count)
    cpus, indices, over = cluster.free("cpu"), np.arange(count), Event()

    def change():
        try:
            for turn in range(200):
                devices = {f"example.com/new-{turn}": [Device("a", (0,))]}
                cluster.update(f"node-{turn}", Node(machine, config, devices))
        finally:
            over.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(change)
        while not over.is_set():
            assert (cluster.free("cpu") == cpus).all()
            assert (cluster.nodes_with("cpu", [1], indices) == 0b11).all()

        done.result()


def test_an_update_keeps_one_default_of_exclusivity():
    machine = alignup.read_machine("align-up-article")
    preferred = Node(machine, single_numa_node_exclusive="Preferred")
    cluster = Cluster.from_nodes([Node(machine), Node(machine)])
    with pytest.raises(InputError, match="the same value for every node of a cluster"):
        cluster.update("node-0", preferred)
    alone = Cluster.from_nodes([Node(machine)])
    alone.update("node-0", preferred)
    assert alone.nodes == (preferred,)


@examples(40)
@given(
    seed=st.integers(0, 1 << 20),
    amounts=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    resource=st.sampled_from(["cpu", "memory", "example.com/any", "example.com/gpu"]),
)
def test_numa_nodes_with_enough_are_those_of_the_table(seed, amounts, resource):
    """`nodes_with` says in masks what `free` says in amounts."""
    random = Random(seed)
    lines = [
        node_line(
            f"n{number}", pods=[pod_manifest(f"p{number}", cpus=random.randint(1, 7), memory="4Gi")]
        )
        for number in range(4)
    ]
    cluster = cluster_of(*lines)
    unit = GIBI if resource == "memory" else 1
    indices = np.array(random.sample(range(4), random.randint(0, 4)), np.int64)
    masks = cluster.nodes_with(resource, [unit * amount for amount in amounts], indices)
    assert masks.shape == (len(indices), len(amounts))

    for line, index in zip(masks.tolist(), indices, strict=True):
        free = cluster.free(resource)[index].tolist()
        for mask, amount in zip(line, amounts, strict=True):
            expected = sum(1 << node for node, units in enumerate(free) if units >= unit * amount)
            if sum(free) < unit * amount:
                expected = -1
            assert mask == expected


def test_numa_nodes_with_enough_are_asked_of_known_resources_and_nodes():
    cluster = cluster_of(node_line("a"))
    with pytest.raises(InputError, match="expected one of cpu"):
        cluster.nodes_with("example.com/none", [1], np.array([0]))
    with pytest.raises(IndexError, match="expected indices of 1 nodes, got 1"):
        cluster.nodes_with("cpu", [1], np.array([1]))
    with pytest.raises(ValueError, match="expected an array of 1 lines of 2 elements"):
        cluster.nodes_with("cpu", [1, 2], np.array([0]), np.zeros((1, 1), np.int64))


def nothing(start, stop):
    """Do a range of nothing."""


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("length", "part"), [(0, 4), (1, 4), (4, 4), (5, 4), (1000, 7)])
def test_every_element_is_done_once(length, part, threads):
    helpers, done = Helpers(), []
    for _ in range(3):
        done.clear()
        helpers.share(lambda start, stop: done.extend(range(start, stop)), length, part, threads)
        assert sorted(done) == list(range(length))


def test_helpers_stay():
    """The second run starts no thread."""
    helpers, names = Helpers(), []
    barrier = threading.Barrier(2, timeout=60)

    def both(start, stop):  # noqa: ARG001  # a range
        barrier.wait()
        names.append(threading.get_ident())

    for _ in range(3):
        helpers.share(both, 2, 1, 2)
    assert len(names) == 6
    assert len(set(names)) == 2


def test_a_helper_that_has_not_begun_is_not_waited_for():
    """The only helper is busy elsewhere, so the caller does everything."""
    helpers, release, done = Helpers(), threading.Event(), []
    helpers.share(nothing, 2, 1, 2)  # the helper is there
    busy = SharedWork(lambda _start, _stop: release.wait(60), 1, 1)
    helpers._queue.put(busy)
    try:
        helpers.share(lambda start, stop: done.append((start, stop)), 3, 1, 2)
        assert done == [(0, 1), (1, 2), (2, 3)]
    finally:
        release.set()
        busy.end()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_is_raised(threads):
    def fail(start, stop):
        if start == 40:
            raise ValueError(f"expected better, got {start} to {stop}")

    with pytest.raises(ValueError, match="got 40 to 50"):
        Helpers().share(fail, 100, 10, threads)


def test_a_forked_process_starts_threads_of_its_own(monkeypatch):
    helpers = Helpers()
    helpers.share(nothing, 4, 1, 2)
    first = helpers._queue
    monkeypatch.setattr(os, "getpid", lambda: -1)
    helpers.share(nothing, 4, 1, 2)
    assert helpers._queue is not first


def test_an_error_of_a_helper_is_raised():
    helpers, caller = Helpers(), threading.get_ident()
    barrier = threading.Barrier(2, timeout=60)

    def fail(start, stop):  # noqa: ARG001  # a range
        barrier.wait()
        if threading.get_ident() != caller:
            raise ValueError("of a helper")

    for _ in range(2):
        with pytest.raises(ValueError, match="of a helper"):
            helpers.share(fail, 2, 1, 2)


def test_a_helper_ends_when_its_queue_is_closed_and_leaves_it_closed():
    queue, done = SimpleQueue(), []
    over = SharedWork(lambda start, stop: done.append((start, stop)), 4, 1)
    over.end()
    for work in (over, SharedWork(lambda start, stop: done.append((start, stop)), 2, 1), None):
        queue.put(work)

    help_with(queue)
    assert done == [(0, 1), (1, 2)]
    assert queue.get_nowait() is None


@pytest.fixture
def running_helpers(monkeypatch):
    """Return a list with an element for each helper that was started and has not ended.

    How many threads the interpreter counts would not do: one that an earlier test has started is
    counted when it runs for the first time.
    """
    running = []

    def start(help_with, arguments):
        running.append(help_with)
        return start_new_thread(run, (help_with, arguments))

    def run(help_with, arguments):
        try:
            help_with(*arguments)
        finally:
            running.pop()

    monkeypatch.setattr("alignup.cluster.cluster.start_new_thread", start)
    return running


def wait_until_none(running):
    """Wait until a list is empty."""
    patience = time.monotonic() + 60
    while running:
        assert time.monotonic() < patience
        time.sleep(0.01)


class Interrupted(BaseException):
    """What nobody catches."""


def test_an_exception_at_any_moment_leaves_nothing_held(running_helpers):
    """As a signal handler raises it: between any two instructions of the caller's thread.

    Whatever comes, nothing is being done any more when the call is over, and the next one works.
    """
    helpers, own_code = Helpers(), (Helpers, SharedWork)
    codes = {
        function.__code__
        for owner in own_code
        for function in vars(owner).values()
        if hasattr(function, "__code__")
    }
    is_open, doing, late = False, [], []
    left = 0

    def run(start, stop):
        doing.append(start)
        if not is_open:
            late.append(start)
        time.sleep(1e-4)
        done.extend(range(start, stop))
        doing.pop()

    def interrupt(frame, event, _argument):
        nonlocal left
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event in ("opcode", "line"):  # Python 3.12.1 tells of lines only
            left -= 1
            if left == 0:
                raise Interrupted
        return interrupt

    before = sys.gettrace()
    for moment in count(1):
        left, done, is_open = moment, [], True
        was_interrupted = True
        sys.settrace(interrupt)
        try:
            helpers.share(run, 8, 2, 3)
            was_interrupted = False
        except Interrupted:
            pass
        finally:
            sys.settrace(before)

        assert doing == []
        is_open = False
        time.sleep(1e-4)
        is_open, done = True, []
        helpers.share(run, 8, 2, 3)
        assert sorted(done) == list(range(8))
        assert doing == []
        is_open = False
        if not was_interrupted:
            break

    assert moment > 20
    assert late == []
    assert running_helpers
    del helpers
    wait_until_none(running_helpers)


def test_helpers_end_with_their_cluster(monkeypatch, running_helpers):
    monkeypatch.setattr("alignup.cluster.cluster._WORTH_A_THREAD", 0)
    for _ in range(20):
        cluster = Cluster.from_nodes([Node(alignup.read_machine("align-up-article"))] * 40)
        cluster.evaluate(pod_manifest("p", cpus=1, memory="1Gi"), threads=2)
        assert running_helpers
        del cluster

    wait_until_none(running_helpers)


def pod_of(first: str, second: str):
    """Return a pod of an init container and another one, with so much memory."""

    def container(name: str, memory: str) -> dict[str, object]:
        return {"name": name, "resources": {"limits": {"cpu": "2", "memory": memory}}}

    spec = {"initContainers": [container("i", first)], "containers": [container("c", second)]}
    return read_pod({"metadata": {"name": "p"}, "spec": spec})


def test_a_request_is_what_the_record_says() -> None:
    pod = pod_of("1Ki", "2Ki")

    assert request_of(pod) == (2, (("memory", 2048),), (), False)
    assert [request_of(container) for container in pod.all_containers] == [
        (2, (("memory", 1024),), (), True),
        (2, (("memory", 2048),), (), False),
    ]


def test_a_fraction_of_a_byte_is_more_than_any_node_has() -> None:
    """So that it has no hints and fails to allocate; the containers beside it are asked as ever."""
    pod = pod_of("1Ki", "512m")

    assert request_of(pod)[1] == (("memory", LARGEST),)
    assert [request_of(container)[1] for container in pod.all_containers] == [
        (("memory", 1024),),
        (("memory", LARGEST),),
    ]


def test_rows_refuse_a_fraction_of_a_byte_as_nodes_do() -> None:
    kinds = product(
        ("container", "pod"),
        ("none", "best-effort", "restricted", "single-numa-node"),
        ("Static", "None"),
        (("512m", "1Gi"), ("1Gi", "512m"), ("1500m", "1500m")),
    )
    check_each(rows_refuse_a_fraction_of_a_byte, [(str(kind), kind) for kind in kinds])


def rows_refuse_a_fraction_of_a_byte(
    scope: str, policy: str, managed: str, memory: tuple[str, str]
) -> None:
    kubelet = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": managed,
    }
    if managed == "Static":
        kubelet["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "1Gi"}}]

    node = Node.from_dict({"machine": machine_of(2, 4), "kubelet": kubelet})
    answer = Cluster.from_nodes([node]).evaluate(pod_of(*memory))
    admission = node.try_admit(pod_of(*memory))

    assert admission.admitted is (managed == "None")
    assert bool(answer.admitted[0]) == admission.admitted
    assert REASONS[answer.reason[0]] == admission.reason


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_init_containers_hand_their_memory_on_in_a_cluster_as_on_the_node(seed: int) -> None:
    """Where memory is short, in either scope, of one type and of two.

    On nodes that hold some already.
    """
    random = Random(seed)
    for _ in range(30):
        machine = machine_of(random.choice([2, 3, 4]), 2)
        pages = random.random() < 0.5
        if pages:
            for numa_node in machine["numaNodes"]:
                numa_node["hugepages"] = {"1Gi": random.choice([4, 8])}

        kubelet = {
            "topologyManagerPolicy": random.choice(
                ["best-effort", "restricted", "single-numa-node"]
            ),
            "topologyManagerScope": random.choice(["container", "pod"]),
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        }
        version = random.choice(["1.29", "1.31", "1.36"])
        node = Node.from_dict({"machine": machine, "kubelet": kubelet, "kubeletVersion": version})

        def container(name: str, *, pages: bool = pages) -> dict[str, Any]:
            limits = {"cpu": "1", "memory": f"{random.choice([1, 2, 16, 31, 32, 34, 64])}Gi"}
            if pages and random.random() < 0.7:
                limits["hugepages-1Gi"] = f"{random.choice([1, 4, 5, 8])}Gi"

            fields = {"name": name, "resources": {"limits": limits}}
            if name.startswith("i") and random.random() < 0.2:
                fields["restartPolicy"] = "Always"
            return fields

        def pod(uid: str, inits: int) -> dict[str, Any]:
            spec = {"initContainers": [container(f"i{number}") for number in range(inits)]}
            spec["containers"] = [container(f"c{number}") for number in range(random.randint(1, 2))]
            return {"metadata": {"name": uid, "uid": uid}, "spec": spec}

        node.admit(pod("first", 0))
        cluster = Cluster.from_nodes([node])
        for number in range(3):
            manifest = pod(f"p{number}", random.randint(1, 3))
            answer = cluster.evaluate(manifest)
            assert bool(answer.admitted[0]) == bool(node.try_admit(manifest)), manifest


def test_an_answer_is_a_table_of_columns():
    """As data frames take them, with the kernel's ids of NUMA nodes."""
    kubelet = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    restricted = {**kubelet, "topologyManagerPolicy": "restricted"}
    machine = machine_of(2, 2)
    odd = {
        "numaNodes": [
            {**numa_node, "id": 8 + 8 * numa_node["id"], "distances": []}
            for numa_node in machine["numaNodes"]
        ]
    }
    nodes = {
        "plain": Node.from_dict({"machine": machine, "kubelet": restricted}),
        "odd": Node.from_dict({"machine": odd, "kubelet": restricted}),
        "none": Node.from_dict({"machine": machine, "kubelet": kubelet}),
        "small": Node.from_dict({"machine": machine_of(1, 1), "kubelet": restricted}),
    }
    amounts = {"cpu": "4", "memory": "1Mi"}
    container = {"name": "c", "resources": {"limits": amounts}}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    cluster = Cluster.from_nodes(nodes)
    table = cluster.evaluate(pod).to_dict()

    assert {len(column) for column in table.values()} == {4}
    assert table["node"] == ["plain", "odd", "none", "small"]
    assert table["admitted"] == [True, True, True, False]
    assert table["reason"] == ["", "", "", "TopologyAffinityError"]
    assert table["numaNodes"][1] == [16]
    assert (table["numaNodes"][2], table["numaNodes"][3]) == ([], [])
    assert table["score"][3] is None
    assert all(reason in REASONS for reason in table["reason"])

    before = cluster.evaluate(pod)
    cluster.update("odd", Node.from_dict({"machine": machine, "kubelet": restricted}))
    assert before.to_dict()["numaNodes"][1] == [16]
    assert cluster.evaluate(pod).to_dict()["numaNodes"][1] == [1]
    cluster.update("plain", Node.from_dict({"machine": odd, "kubelet": restricted}))
    assert cluster.evaluate(pod).to_dict()["numaNodes"][0] == [16]


def test_an_answer_of_amounts_has_positions():
    row = row_of_amounts(
        NodeAmounts(2, "single-numa-node", "container", {"cpu": ((4, 4), (4, 4), (1, 4))})
    )
    amounts = {"cpu": "2", "memory": "1Mi"}
    container = {"name": "c", "resources": {"limits": amounts}}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    table = Cluster(["a"], [row]).evaluate(pod).to_dict()
    assert (table["node"], table["numaNodes"], table["exact"]) == (["a"], [[1]], [False])
