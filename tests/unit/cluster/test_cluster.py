"""A cluster as arrays: what it keeps, how it scores, what it refuses to do."""

from __future__ import annotations

import json

import numpy as np
import pytest

import alignup
from alignup.cluster import Cluster, Evaluation
from alignup.cluster.shape import CpuShape, DeviceShape, Row, Shape
from alignup.core.amounts.board import Board, Job
from alignup.errors import ConfigError, InputError
from alignup.koordinator.exclusivity import document_score
from alignup.kubernetes.pod import Pod
from alignup.node import Node
from cluster_files import node_line, pod_manifest
from fakes import Saying
from machines import machine_of

GIBI = 1 << 30


def cluster_of(*lines):
    return Cluster.from_json_lines("\n".join(lines))


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
    assert cluster.shapes[0] == cluster.shapes[1]
    assert "2 nodes in 1 shapes" in repr(cluster)


def test_names_and_resources_that_are_not_there():
    cluster = cluster_of(node_line("a"))
    assert cluster.index("a") == 0
    with pytest.raises(InputError, match="name of one of its nodes, got 'b'"):
        cluster.index("b")
    for amounts in (cluster.free, cluster.allocatable):
        with pytest.raises(InputError, match="one of cpu, memory"):
            amounts("example.com/nothing")


def test_names_come_once():
    shape = Shape(1, "none", "container")
    with pytest.raises(InputError, match="no other node has, got 'a'"):
        Cluster(["a", "a"], [shape, shape], [Row(), Row()])


def test_nodes_without_names_are_numbered():
    node = Node.from_dict({"machine": machine_of(2, 2)})
    assert Cluster.from_nodes([node, node]).names == ("node-0", "node-1")
    assert Cluster.from_nodes({"x": node}).names == ("x",)


def test_more_resources_than_a_word_has_bits():
    names = [f"example.com/{number:02}" for number in range(65)]
    shape = Shape(1, "none", "container", devices=tuple((name, DeviceShape((1,), (1,))) for name in names))
    with pytest.raises(InputError, match="at most 64 device resources"):
        Cluster(["a"], [shape], [Row()])


def test_the_last_bit_of_a_word():
    """64 resources fit, the last one too."""
    names = [f"example.com/{number:02}" for number in range(64)]
    shape = Shape(
        1, "restricted", "container", devices=tuple((name, DeviceShape((1,), (1,))) for name in names)
    )
    cluster = Cluster(["a"], [shape], [Row(devices=dict.fromkeys(names, (1,)))])
    pod = Pod.from_manifest(pod_manifest("new", **{"63": 1}))
    assert cluster.evaluate(pod).admitted.all()
    assert not cluster.evaluate(Pod.from_manifest(pod_manifest("new", **{"63": 2}))).admitted.any()


def test_a_pod_that_asks_for_too_many_resources():
    cluster = cluster_of(node_line("a", devices={f"example.com/{n}": [] for n in range(30)}))
    with pytest.raises(InputError, match="at most 24 device resources, got 30"):
        cluster.evaluate(pod_manifest("new", **{str(n): 1 for n in range(30)}))


@pytest.mark.parametrize("threads", [0, 257])
def test_a_sensible_number_of_threads(threads):
    with pytest.raises(InputError, match="1 to 256 threads"):
        cluster_of(node_line("a")).evaluate(pod_manifest("new"), threads=threads)


def test_amounts_alone_cannot_be_asked_or_read_again():
    cluster = Cluster(["a"], [Shape(1, "none", "container")], [Row()], upper_bound=True)
    for wrong in (lambda: cluster.evaluate(pod_manifest("new"), exact=True), lambda: cluster.refresh(0)):
        with pytest.raises(InputError, match="made from nodes"):
            wrong()
    assert not cluster.evaluate(pod_manifest("new")).exact.any()


def test_providers_of_your_own_make_an_upper_bound():
    """What a foreign provider will say cannot be told; a refusal that it cannot change is certain all the same."""
    plain = Node.from_dict(json.loads(node_line("a")))
    foreign = Node.from_dict(json.loads(node_line("a")), providers=[Saying(None)])
    cluster = Cluster.from_nodes([plain, foreign])
    assert cluster.evaluate(pod_manifest("new")).exact.tolist() == [True, False]
    refused = cluster.evaluate(pod_manifest("new", cpus=9))
    assert refused.admitted.tolist() == [False, False]
    assert refused.exact.tolist() == [True, True]


def test_best_comes_by_score_then_by_order():
    score = np.array([1.0, 5.0, -np.inf, 5.0, 2.0])
    no = np.zeros(5, np.uint8)
    answer = Evaluation(score > 0, no, no, no, score, no)
    assert answer.best().tolist() == [1, 3, 4, 0]
    assert answer.best(1).tolist() == [1]
    assert answer.best(3).tolist() == [1, 3, 4]
    assert answer.best(0).tolist() == []
    assert len(answer) == 5


def scored(strategy, pod, cpu=(4, 8), policy="single-numa-node", **more):
    """Return the score of a pod on a node of two NUMA nodes with 8 CPUs and 4 devices each."""
    shape = Shape(
        2,
        policy,
        "container",
        distances=((10, 20), (20, 10)),
        cpu=CpuShape((8, 8), (8, 8)),
        devices=(("example.com/gpu", DeviceShape((1, 2), (4, 4))),),
    )
    row = Row(cpu=cpu, devices={"example.com/gpu": (2, 4)})
    return Cluster(["a"], [shape], [row]).evaluate(pod_manifest("new", **pod), strategy, **more).score[0]


def test_scores():
    """Fractions are of what is free on the nodes of the placement; the document's are of what there is."""
    pod = {"cpus": 3, "gpu": 1}  # on node 0: 3 of 4 CPUs, 1 of 2 devices
    assert scored("least-numa-nodes", pod) == 100 - 12 + 6
    assert scored("most-allocated", pod) == pytest.approx(100 * (0.75 + 0.5) / 2)
    assert scored("least-allocated", pod) == pytest.approx(100 * (0.25 + 0.5) / 2)
    assert scored("balanced-allocation", pod) == pytest.approx(100 * (1 - np.var([0.75, 0.5], ddof=1)))
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
    manifest = {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    cluster = cluster_of(node_line("a"))
    for strategy in (
        "least-numa-nodes",
        "least-allocated",
        "most-allocated",
        "balanced-allocation",
        "document",
    ):
        assert cluster.evaluate(manifest, strategy).score.tolist() == [100]


def test_wide_machines_are_judged_by_single_nodes():
    """Beyond 8 NUMA nodes a single node that has everything is exact, and so is its absence where only that will do."""
    cpu = CpuShape((8,) * 12, (8,) * 12)
    memory = (("memory", (8 * GIBI,) * 12),)
    shapes = [
        Shape(12, policy, "container", cpu=cpu, memory=memory)
        for policy in ("restricted", "single-numa-node")
    ]
    rows = [
        Row(cpu=(2,) * 10 + (8, 2), whole_cpus=30, memory=((GIBI,) * 10 + (8 * GIBI,) * 2,), bound=(0,) * 12)
        for _ in shapes
    ]
    cluster = Cluster(["a", "b"], shapes, rows)
    fits = cluster.evaluate(pod_manifest("new", cpus=6, memory="4Gi"))
    assert fits.affinity.tolist() == [1 << 10, 1 << 10]
    assert fits.exact.all()
    refused = cluster.evaluate(pod_manifest("new", cpus=8, memory="9Gi"))
    assert refused.admitted.tolist() == [True, False]
    assert refused.exact.tolist() == [False, True]
    nothing = {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert cluster.evaluate(nothing).exact.all()


def test_the_kernel_checks_what_it_is_given():
    """A wrong array or index is an error, never a crash."""
    cluster = cluster_of(node_line("a"))
    arrays = cluster._arrays
    job = cluster.job(Pod.from_manifest(pod_manifest("new")))
    answer = cluster.empty_evaluation()
    for start, stop, nodes in ((0, 2, None), (-1, 1, None), (0, 1, np.array([7]))):
        with pytest.raises(IndexError):
            cluster.judge(job, "document", answer, start, stop, nodes)
    with pytest.raises(ValueError, match="demands of a pod"):
        Job(arrays.board, [(0, [], [], False)])
    for demand in ((0, [(9, 1)], [], False), (0, [], [(9, 1)], False), (0, [(0, 1)] * 9, [], False)):
        with pytest.raises(ValueError, match="expected"):
            Job(arrays.board, [demand, demand])
    fixed = {**arrays.fixed, "scalars": arrays.fixed["scalars"][:, :-1].copy()}
    with pytest.raises(ValueError, match="fields a shape"):
        Board(
            starts=arrays.starts, **fixed, shape_of=arrays.shape_of, cpu=arrays.cpu, whole=arrays.whole_cpus,
            memory=arrays.memory, bound=arrays.bound, used=arrays.used, devices=arrays.devices,
            exclusive=arrays.exclusive,
        )  # fmt: skip


def test_devices_without_a_place_that_an_init_container_leaves():
    """They bind the next container to no NUMA node; those that a plugin calls near to no node rule out all."""
    manifest = pod_manifest("new", cpus=1, gpu=1)
    manifest["spec"]["initContainers"] = [{**manifest["spec"]["containers"][0], "name": "i"}]
    devices = [{"id": "a", "numa": None}, {"id": "b", "numa": [0]}, {"id": "c", "numa": [0]}]
    for first, exact in ((None, True), ([], False)):
        devices[0]["numa"] = first
        cluster = cluster_of(node_line("a", machine=machine_of(1, 4), devices={"example.com/gpu": devices}))
        answer = cluster.evaluate(manifest)
        assert answer.admitted[0]
        assert answer.exact[0] == exact
        own = cluster.nodes[0].admit(manifest)
        assert own.admitted == exact


def test_arrays_are_small():
    """Ten thousand nodes of 8 NUMA nodes and four resources take under ten megabytes."""
    places = tuple(1 << node for node in range(8))
    devices = tuple((f"example.com/{name}", DeviceShape(places, (1,) * 8)) for name in ("gpu", "nic"))
    shape = Shape(
        8,
        "restricted",
        "pod",
        cpu=CpuShape((8,) * 8, (8,) * 8),
        memory=(("memory", (GIBI,) * 8),),
        devices=devices,
    )
    cluster = Cluster([str(n) for n in range(10_000)], [shape] * 10_000, (Row() for _ in range(0)))
    assert cluster.nbytes < 10e6


def test_json_lines_name_the_line_of_an_error():
    good = node_line("a")
    for line, message in (
        ("[]", r"nodes:2: expected a node as a JSON object"),
        ('{"name": "b"}', r"nodes:2: .*machine"),
        (node_line("a"), r"nodes:2: expected a name that no other node has"),
        (
            node_line("b", pods=[pod_manifest("p", cpus=9)]),
            r"nodes:2: .*TopologyAffinityError.* at pods\[0\]",
        ),
        (node_line("b", preferredSets={"example.com/gpu": [["x"]]}), r"nodes:2: .*device ids"),
    ):
        with pytest.raises(InputError, match=message):
            cluster_of(good, line)
    with pytest.raises(InputError, match="at least one node"):
        cluster_of("", " ")
    with pytest.raises(ConfigError, match="nodes:1"):
        cluster_of(node_line("b", kubelet={"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "x"}))


def test_json_lines_take_any_lines():
    """Bytes, and lines one by one; devices can be missing."""
    line = json.loads(node_line("a"))
    del line["devices"]
    cluster = Cluster.from_json_lines([json.dumps(line).encode(), b"", node_line("b").encode()])
    assert cluster.names == ("a", "b")
    assert cluster.nodes[0].devices is None


LABEL = "node.koordinator.sh/numa-topology-policy"


def test_the_label_of_a_node_is_its_policy():
    """In a cluster as on the node itself: a pod too large for one NUMA node is refused where the label says so."""
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
    made["metadata"]["annotations"] = {"scheduling.koordinator.sh/numa-topology-spec": json.dumps(spec)}
    return made


@pytest.mark.parametrize(
    ("new", "admitted", "masks"),
    [
        (annotated("new", 1, "SingleNUMANode"), [False, True, True, True], [0, 0b10, 0b01, 0b01]),
        (annotated("new", 1, "SingleNUMANode", "Preferred"), [True] * 4, [0b10, 0b10, 0b01, 0b01]),
        (annotated("new", 9, "Restricted"), [False, False, True, True], [0, 0, 0b11, 0b11]),
        (annotated("new", 9, "Restricted", "Preferred"), [False, True, True, True], [0, 0b11, 0b11, 0b11]),
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
