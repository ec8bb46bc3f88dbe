"""Sums over whole nodes are what the default scheduler sees and scores by."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pytest

from alignup import Node, read_pod
from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.cluster.node_totals import Totals, demand_key
from alignup.cluster.shortages import Fit
from alignup.errors import AlignupError, AlignupWarning, ConfigError, InputError
from alignup.kubelet.node_resource_topology.read import nodes_of, read_topologies
from alignup.kubernetes.pod import Container, NodeConstraints, Pod, PodClaim, PodSource, RawRequests
from alignup.kubernetes.versions import KNOWN_VERSIONS, known_names, release_of
from alignup.records import Record, replace
from inputs.cluster_files import TOPOLOGY, node_line, pod_manifest
from inputs.strategies import counts
from inputs.watched_objects import description

GIBI = 1 << 30


def test_totals_are_what_the_default_scheduler_sees():
    """Reservations are taken off, requests count in fractions, init containers by their peak."""
    cluster = Cluster.from_json_lines(
        [node_line("n0", pods=[pod_manifest("old", cpus=2, memory="3Gi", gpu=1)])]
    )
    totals = Totals(cluster.nodes)
    assert dict(zip(totals.resources, totals.allocatable[0].tolist(), strict=True)) == {
        "cpu": 15_000,
        "memory": 63 * GIBI,
        "example.com/any": 1,
        "example.com/gpu": 2,
    }
    assert totals.free[0].tolist() == [13_000, 1, 1, 60 * GIBI]

    manifest = pod_manifest("new", cpus=2)
    manifest["spec"]["initContainers"] = [
        {
            "name": "i",
            "image": "i",
            "resources": {"requests": {"cpu": "12500m", "ephemeral-storage": "1Gi"}},
        }
    ]
    assert totals.request(read_pod(manifest)).tolist() == [12_500, 0, 0, GIBI]
    assert totals.fits(totals.request(read_pod(manifest))).tolist() == [True]
    assert totals.fits(totals.request(read_pod(pod_manifest("large", cpus=14)))).tolist() == [False]
    assert totals.fits(totals.request(read_pod(pod_manifest("strange", tpu=1)))).tolist() == [False]


@pytest.mark.parametrize("most", [{"maxPods": 2}, {"podsPerCore": 1, "maxPods": 2}])
def test_a_node_takes_no_more_pods_than_its_kubelet_runs(most):
    """However little they request, as the default scheduler and the kubelet have it."""
    line = {**json.loads(node_line("n0")), "pods": [pod_manifest("old")]}
    line["kubelet"] = {**line.get("kubelet", {}), **most}
    cluster = Cluster.from_json_lines([json.dumps(line), node_line("n1")])
    totals = Totals(cluster.nodes)
    small = totals.request(read_pod(pod_manifest("small")))
    assert totals.fits(small).tolist() == [True, True]
    totals.add(0, small)
    assert totals.fits(small).tolist() == [False, True]
    assert totals.fits(small, np.array([1, 0])).tolist() == [True, False]
    assert totals.could_fit(small).tolist() == [True, True]
    totals.remove(0, small)
    assert totals.fits(small).tolist() == [True, True]


@pytest.mark.parametrize(("most", "left"), [("1", 0), ("300", 299), ("0", -1), ("-2", -1)])
def test_a_node_object_of_a_line_says_how_many_pods_a_kubelet_runs(most, left):
    line = {**json.loads(node_line("n0")), "pods": [pod_manifest("old")]}
    line["kubelet"]["maxPods"] = 110
    line["nodeObject"] = {
        "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {"allocatable": {"pods": most}},
    }
    node = Cluster.from_json_lines([json.dumps(line)]).nodes[0]
    assert Totals([node]).pods_left.tolist() == [left]


def test_how_many_pods_a_node_of_amounts_takes_is_not_known():
    """No NodeResourceTopology object tells, or how many are there already."""
    [node] = nodes_of(read_topologies(TOPOLOGY.encode())).values()
    assert Totals([node]).pods_left.tolist() > [10**6]


def test_a_kubelet_may_run_no_pods_at_all():
    line = {**json.loads(node_line("n0")), "kubelet": {"maxPods": 0}}
    totals = Totals(Cluster.from_json_lines([json.dumps(line)]).nodes)
    assert totals.could_fit(totals.request(read_pod(pod_manifest("small")))).tolist() == [False]


def test_a_pod_is_counted_that_also_requests_what_no_node_has():
    """Its kubelet admitted it; it takes up what else it requests until it goes."""
    cluster = Cluster.from_json_lines([node_line("n0", pods=[pod_manifest("old", tpu=1)])])
    totals = Totals(cluster.nodes)
    (old,) = cluster.nodes[0].pods
    assert totals.request(old) is None
    assert totals.free[0].tolist() == [13_000, 1, 2, 62 * GIBI]
    totals.remove(0, totals.held(old))
    assert totals.free[0].tolist() == [15_000, 1, 2, 63 * GIBI]


def test_hugepages_and_missing_resources_in_totals():
    line = json.loads(node_line("a"))
    line["machine"]["numaNodes"][0]["hugepages"] = {"2Mi": 512}
    line["devices"] = {}
    totals = Totals(Cluster.from_json_lines([json.dumps(line)]).nodes)
    assert dict(zip(totals.resources, totals.allocatable[0].tolist(), strict=True)) == {
        "cpu": 15_000,
        "hugepages-2Mi": GIBI,
        "memory": 62 * GIBI,
    }


def test_blind_scores():
    """By the parts of CPUs and memory that would be in use."""
    cluster = Cluster.from_json_lines([node_line("n0")])
    totals = Totals(cluster.nodes)
    request = totals.request(read_pod(pod_manifest("new", cpus=3, memory="31.5Gi")))
    assert totals.score(request, "most-allocated").tolist() == [
        pytest.approx(100 * (0.2 + 0.5) / 2)
    ]
    assert totals.score(request, "least-allocated").tolist() == [
        pytest.approx(100 * (0.8 + 0.5) / 2)
    ]
    assert totals.score(request, "balanced-allocation").tolist() == [
        pytest.approx(100 * (1 - np.std([0.2, 0.5])))
    ]

    strange = totals.request(read_pod(pod_manifest("strange", tpu=1)))
    assert totals.score(strange, "most-allocated").tolist() == [0]
    with pytest.raises(InputError, match="that sees totals only"):
        totals.score(request, "document")


def level_pod(name: str = "p", **changes: Any) -> Pod:
    """A pod with everything that a key may have to tell, some of it changed."""
    manifest = {
        "metadata": {"name": name, "uid": name, "namespace": "d"},
        "spec": {
            "resources": {"limits": {"cpu": "3", "memory": "3Gi"}},
            "initContainers": [limited("init", "1", "2Gi")],
            "containers": [limited("c", "1", "1Gi")],
        },
    }
    pod = read_pod(manifest)
    claims = (PodClaim("k", "claim"),)
    return replace(pod, constraints=replace(pod.constraints, claims=claims), **changes)


def limited(name: str, cpu: str, memory: str, **more: str) -> dict[str, Any]:
    limits = {"cpu": cpu, "memory": memory, **more}
    return {"name": name, "image": "i", "resources": {"limits": limits, "requests": limits}}


OTHER_VALUES: dict[type, dict[str, Any]] = {
    Pod: {
        "namespace": "other",
        "init_containers": (),
        "containers": (Container("c"),),
        "qos": "BestEffort",
        "annotations": {"a": "b"},
        "exclusive_cpus": 7,
        "memory": (("memory", 7),),
        "devices": (("example.com/gpu", 7),),
        "pod_level": "other",
    },
    NodeConstraints: {
        "node_name": "n",
        "node_selector": {"a": "b"},
        "node_affinity": ({"matchExpressions": []},),
        "tolerations": ({"key": "a"},),
        "host_ports": (("TCP", "", 80),),
        "os": "windows",
        "os_label": "windows",
        "priority": 7,
        "requests": {"cpu": 7},
        "overhead": {"cpu": 7},
        "level": RawRequests("other", {}, {}),
        "claims": (),
        "claimed": {"cpu": 7},
        "claimed_with": {"c": {"cpu": 7}},
        "claimed_devices": frozenset({("c", "example.com/gpu")}),
    },
    Container: {
        "name": "other",
        "requests": {"cpu": 7},
        "limits": {"cpu": 7},
        "is_init": True,
        "is_sidecar": True,
        "exclusive_cpus": 7,
        "memory": (("memory", 7),),
        "devices": (("example.com/gpu", 7),),
        "fractional_memory": "memory",
    },
    PodClaim: {
        "name": "o",
        "claim": "o",
        "template": "o",
        "containers": ("o",),
        "requests": (("c", "r"),),
    },
    PodSource: {
        "raw_init": (),
        "raw_containers": (),
        "raw_pod": None,
        "allocated": {"c": {"cpu": 7}},
        "constraints": NodeConstraints(os="windows"),
        "stored_qos": "Burstable",
    },
    RawRequests: {
        "name": "other",
        "requests": {"cpu": 7},
        "limits": {"cpu": 7},
        "is_init": True,
        "is_sidecar": True,
    },
}
"""By record and field, a value that `level_pod` does not have there."""

LEFT_OUT = {
    (Pod, "uid"),
    (Pod, "name"),
    (Pod, "all_containers"),  # the containers of both kinds
    (Pod, "constraints"),  # a record of its own
    (Pod, "readings"),  # what they are made of counts
    (Pod, "made_of"),  # a record of its own
    (PodSource, "identity"),
    (PodSource, "readings"),
}
"""The fields that a key need not tell."""


def with_other(kind: type[Record], name: str, value: Any) -> Pod:
    """Return `level_pod` with another value in a field of one of its records."""
    pod = level_pod()
    change = {name: value}
    if kind is Pod:
        return replace(pod, **change)
    if kind is NodeConstraints:
        return replace(pod, constraints=replace(pod.constraints, **change))
    if kind is Container:
        return replace(pod, containers=(replace(pod.containers[0], **change),))
    if kind is PodClaim:
        claims = (replace(pod.constraints.claims[0], **change),)
        return replace(pod, constraints=replace(pod.constraints, claims=claims))
    assert pod.made_of is not None
    if kind is PodSource:
        return replace(pod, made_of=replace(pod.made_of, **change))
    raw = replace(pod.made_of.raw_containers[0], **change)
    return replace(pod, made_of=replace(pod.made_of, raw_containers=[raw]))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in OTHER_VALUES for name in kind.__record_fields__],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_key_tells_every_field_of_a_pod(kind, name) -> None:
    """A new field has to come into the key, or among those that are left out."""
    if (kind, name) in LEFT_OUT:
        return
    changed = with_other(kind, name, OTHER_VALUES[kind][name])
    assert demand_key(changed) != demand_key(level_pod())
    assert demand_key(level_pod()) == demand_key(level_pod())


def test_copies_have_one_key_whatever_their_names() -> None:
    copies = [
        read_pod(pod_manifest(name, cpus=2) | {"metadata": {"name": name, "namespace": name}})
        for name in ("a", "b")
    ]
    assert demand_key(copies[0]) == demand_key(copies[1])
    assert demand_key(level_pod("a")) == demand_key(level_pod("b"))


def drawn_node(random: Random) -> Node | None:
    """Return a node of any release with some gates set, with a pod or two; None: there is none."""
    version = random.choice(KNOWN_VERSIONS)
    names = [gate for gate in known_names("managerGates") if gate in release_of(version).gates]
    gates = {gate: random.random() < 0.7 for gate in names if random.random() < 0.5}
    described = description(
        topologyManagerPolicy=random.choice(["restricted", "single-numa-node", "best-effort"]),
        topologyManagerScope=random.choice(["pod", "container"]),
        featureGates=gates,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AlignupWarning)  # of gates that need others
            node = Node.from_dict({**described, "kubeletVersion": str(version)})
    except ConfigError:
        return None

    for number in range(random.randint(0, 2)):
        node.admit(drawn_pod(random, f"old-{number}"))
    return node


def drawn_spec(random: Random) -> dict[str, Any]:
    """Return the spec of a pod."""

    def drawn(container: str) -> dict[str, Any]:
        more = {"example.com/gpu": "1"} if random.random() < 0.2 else {}
        cpu = random.choice(["1", "2", "500m"])
        made = limited(container, cpu, random.choice(["1Gi", "3Gi"]), **more)
        if random.random() < 0.2:
            made["resources"]["requests"] = {"cpu": "250m", **more}
        return made

    spec: dict[str, Any] = {
        "containers": [drawn(f"c{number}") for number in range(random.choice([1, 2]))]
    }
    if random.random() < 0.3:
        spec["initContainers"] = [drawn("init")]
        if random.random() < 0.5:
            spec["initContainers"][0]["restartPolicy"] = "Always"
    return spec


def drawn_pod(random: Random, name: str, specs: list[dict[str, Any]] | None = None) -> Pod:
    """Return a pod, with resources of its own or without; of some specs, or of any."""
    spec = dict(random.choice(specs or [drawn_spec(random)]))
    if random.random() < 0.6:
        amounts = {"cpu": random.choice(["4", "200"]), "memory": "7Gi"}
        spec["resources"] = {"limits": amounts, "requests": amounts}
    return read_pod({"metadata": {"name": name, "uid": name}, "spec": spec})


@pytest.mark.parametrize("count", counts(250, 20_000))
def test_pods_with_equal_keys_are_told_the_same_by_every_node(count) -> None:
    """Of nodes of every release, with any gates; each answer is made afresh."""
    random = Random(5)
    equal = 0
    for _ in range(count):
        node = drawn_node(random)
        if node is None:
            continue
        answers: dict[object, set[object]] = defaultdict(set)
        cluster = Cluster.from_nodes({"n": node})
        specs = [drawn_spec(random) for _ in range(2)]
        for number in range(12):
            pod = drawn_pod(random, f"asked-{number}", specs)
            try:
                judged = cluster.evaluate(pod)
                admission = node.copy().try_admit(pod)
                placed = [
                    (name, str(made.cpus), made.memory)
                    for name, made in admission.containers.items()
                ]
                answer = (
                    bool(judged.admitted[0]),
                    int(judged.affinity[0]),
                    bool(admission),
                    str(placed),
                )
            except AlignupError as error:
                answer = (str(error).replace(pod.name, ""),)
            answers[demand_key(pod)].add(answer)
        equal += 12 - len(answers)
        assert all(len(said) == 1 for said in answers.values())
    assert equal > count / 2


def drawn_report(random: Random, name: str) -> dict[str, Any]:
    """Return a report that leaves some resources out, as of kubelets without their managers."""
    amounts = {
        "cpu": random.choice([(8, 8), (8, 6), (8, 0), None]),
        "memory": random.choice([(64 * GIBI, 62 * GIBI), (64 * GIBI, 8 * GIBI), None]),
        "hugepages-2Mi": random.choice([(GIBI, GIBI), None]),
        "example.com/gpu": random.choice([(4, 4), (4, 1)]),
    }
    if amounts["memory"] is None:
        amounts["hugepages-2Mi"] = None

    resources = [
        {
            "name": resource,
            "capacity": str(pair[0]),
            "allocatable": str(pair[1]),
            "available": str(pair[1]),
        }
        for resource, pair in amounts.items()
        if pair is not None
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "zones": [
            {"name": f"node-{number}", "type": "Node", "resources": resources}
            for number in range(2)
        ],
    }


@pytest.mark.parametrize("seed", range(40))
def test_sums_of_reports_bound_what_their_zones_count(seed):
    """The nodes that are made of reports take what the reports' own sums take.

    Of hugepages, only where all are alike: a node that counts some says nothing of the others'.
    """
    random = Random(seed)
    objects = [drawn_report(random, f"n{number}") for number in range(random.choice([1, 4]))]
    document = json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}).encode()
    totals = Totals(list(nodes_of(read_topologies(document)).values()))
    fit = Fit(read_node_resource_topologies(document))
    for _ in range(20):
        limits = {
            "cpu": random.choice([1, 12, 14, 20]),
            "memory": random.choice(["1Gi", "20Gi", "100Gi", "200Gi"]),
            "example.com/gpu": random.choice([1, 3, 9]),
        }
        if len(objects) == 1 and random.random() < 0.5:
            limits["hugepages-2Mi"] = random.choice(["2Mi", "1Gi", "8Gi"])

        container = {"name": "c", "resources": {"limits": limits}}
        pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
        expected = [not short for short in fit.shortages(pod)]
        assert totals.fits(totals.request(pod)).tolist() == expected, limits
        assert totals.could_fit(totals.request(pod)).tolist() == expected, limits


def test_of_what_nothing_is_known_nothing_is_in_use():
    """A node without a CPU manager that reports it beside one with: the parts are of the one's."""
    random = Random(1)
    counting, silent = drawn_report(random, "counting"), drawn_report(random, "silent")
    counting["zones"][0]["resources"] = [
        {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"}
    ]
    counting["zones"] = counting["zones"][:1]
    silent["zones"] = [
        {
            "name": "node-0",
            "type": "Node",
            "resources": [
                {"name": "example.com/gpu", "capacity": "4", "allocatable": "4", "available": "4"}
            ],
        }
    ]
    document = json.dumps(
        {"kind": "List", "apiVersion": "v1", "items": [counting, silent]}
    ).encode()
    totals = Totals(list(nodes_of(read_topologies(document)).values()))
    cpus = totals.resources.index("cpu")
    request = totals.request(read_pod(pod_manifest("p", cpus=6)))
    for _ in range(3):
        totals.add(1, request)

    assert (totals.used_in_all[cpus], totals.allocatable[:, cpus].tolist()) == (0, [8000, 0])
    assert totals.fits(request).tolist() == [True, True]
    totals.add(0, request)
    assert totals.used_in_all[cpus] == 6000
    assert totals.fits(request).tolist() == [False, True]
    totals.remove(1, request)
    totals.remove(0, request)
    assert totals.used_in_all[cpus] == 0
