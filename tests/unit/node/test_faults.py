"""The known faults of kubelets: those that a real kubelet showed are told, and no others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alignup.node import Node, faults
from alignup.node.faults import known_faults
from alignup.replay.scenario import Admit, Remove, read_steps

VECTORS = Path(__file__).parents[2] / "vectors"
CORNERS = [
    json.loads(line) for line in (VECTORS / "corner/differences.jsonl").read_text().splitlines()
]


def faults_of(scenario: dict[str, Any], version: str, last: int | None = None) -> list[set[str]]:
    """Return what each step of a scenario comes upon, up to the last one that is asked for."""
    node = Node.from_dict(scenario, kubelet_version=version)
    faults_by_step: list[set[str]] = []
    steps = read_steps(scenario)
    if last is not None:
        steps = steps[: last + 1]

    for step in steps:
        faults_by_step.append(set())
        if isinstance(step, Admit):
            pod = node.read(step.pod)
            if not node.manager.has_pod(pod.uid):
                faults_by_step[-1] = {fault.does for fault in known_faults(node, pod)}
                node.admit(pod)
        elif isinstance(step, Remove) and node.manager.has_pod(step.uid):
            node.remove(step.uid)
    return faults_by_step


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("hand-offline-sibling-cpu-given-twice", "gives CPUs twice"),
        ("hand-uneven-sockets-cpu-given-twice", "gives CPUs twice"),
        ("uneven-20692", "gives CPUs twice"),
        ("plain-20861", "gives CPUs twice"),
        ("devices-26403", "gives CPUs twice"),
        ("init-8043", "gives CPUs twice"),
    ],
)
def test_what_the_kubelet_did_in_a_corner_is_told(name: str, does: str) -> None:
    corner = next(case for case in CORNERS if case["name"] == name)
    assert does in faults_of(corner["scenario"], "1.36", corner["step"])[-1]


def test_no_distribution_is_told_where_the_kubelet_answered() -> None:
    """Recorded of 1.37.2; when a distribution has no end is in `test_distribution.py`."""
    with gzip.open(VECTORS / "distributions.jsonl.gz") as file:
        for scenario in map(json.loads, file):
            assert not set().union(*faults_of(scenario, "1.37")), scenario["name"]


def test_an_l3_cache_of_two_numa_nodes_is_counted_twice_up_to_1_37() -> None:
    """A kubelet 1.37.2 gives the container 0-1,6-7, and admits it.

    1.38.0-beta.0 gives all eight.
    """
    cores = [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    numa = [
        {
            "id": node,
            "memory": 8 << 30,
            "distances": [10, 21],
            "cores": [
                {"cpus": cpus, "socket": node, "l3": l3} for l3, cpus in enumerate(cores_of_node)
            ],
        }
        for node, cores_of_node in enumerate(cores)
    ]
    kubelet = {
        "topologyManagerPolicy": "none",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"prefer-align-cpus-by-uncorecache": "true"},
        "reservedSystemCPUs": "2,8,11",
    }
    scenario = {"machine": {"numaNodes": numa}, "kubelet": kubelet}
    limits = {"cpu": "8", "memory": "1Gi"}
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    given = {}
    for version in ("1.32", "1.37", "1.38"):
        node = Node.from_dict(scenario, kubelet_version=version)
        assert bool(faults_told(node, limits)) is (version != "1.38")
        given[version] = str(node.admit(pod).containers["c"].cpus)

    assert set(given.values()) == {"0-1,3-7,9"}

    node = Node.from_dict(scenario, kubelet_version="1.37")
    text = (
        "gives fewer CPUs: container 'c0' gets only CPUs 0-1,6-7 of the 8 that it asks for, as an "
        "L3 cache of several NUMA nodes is counted twice"
    )
    assert faults_told(node, limits) == [text]


@pytest.mark.parametrize("version", ["1.37", "1.38"])
def test_from_1_38_on_no_cpu_is_given_twice(version: str) -> None:
    corner = next(case for case in CORNERS if case["name"] == "plain-20861")
    does = faults_of(corner["scenario"], version, corner["step"])[-1]
    assert ("gives CPUs twice" in does) is (version == "1.37")


def node_of(numa_nodes: int, version: str, devices: dict[str, Any], **kubelet: Any) -> Node:
    """Return a node with four CPUs and 8 GiB on each NUMA node, and hugepages of two sizes."""
    numa = [
        {
            "id": node,
            "memory": 8 << 30,
            "hugepages": {"2Mi": 4, "1Gi": 2},
            "distances": [10] * numa_nodes,
            "cores": [{"cpus": [*range(4 * node, 4 * node + 4)], "socket": 0}],
        }
        for node in range(numa_nodes)
    ]
    scenario = {"machine": {"numaNodes": numa}, "kubelet": kubelet, "devices": devices}
    return Node.from_dict(scenario, kubelet_version=version)


def faults_told(node: Node, limits: dict[str, str], containers: int = 1) -> list[str]:
    """Return the faults that a pod comes upon whose containers have these limits each."""
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {"name": f"c{number}", "resources": {"limits": limits}}
                for number in range(containers)
            ]
        },
    }
    descriptions = [f"{fault.does}: {fault.text}" for fault in known_faults(node, node.read(pod))]
    assert not node.pods
    return descriptions


@pytest.mark.parametrize(
    ("version", "most", "descriptions"),
    [
        (
            "1.35",
            3,
            ["does not answer: it walks all 2^4 sets of NUMA nodes for the hints of e.com/gpu"],
        ),
        ("1.35", 4, []),
        ("1.36", 3, []),
    ],
)
def test_up_to_1_35_all_sets_of_many_numa_nodes_are_walked(
    version: str, most: int, descriptions: list[str], monkeypatch
) -> None:
    """The bound is far lower than where it takes a kubelet minutes."""
    monkeypatch.setattr(faults, "MOST_WALKED", most)
    devices = {"e.com/gpu": [{"id": "g", "numa": 0}]}
    node = node_of(4, version, devices, topologyManagerPolicy="restricted")
    assert faults_told(node, {"e.com/gpu": "1"}) == descriptions


def test_ordinary_scenarios_have_no_fault() -> None:
    with gzip.open(VECTORS / "admission.jsonl.gz") as file:
        for _, line in zip(range(100), file, strict=False):
            scenario = json.loads(line)
            assert scenario.get("configError") or not set().union(*faults_of(scenario, "1.36"))


@pytest.mark.parametrize(
    ("policy", "sizes", "is_told"),
    [
        ("restricted", ("2Mi", "1Gi"), True),
        ("best-effort", ("2Mi", "1Gi"), True),
        ("restricted", ("2Mi",), False),
        ("single-numa-node", ("2Mi", "1Gi"), False),
        ("none", ("2Mi", "1Gi"), False),
    ],
)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_hints_that_combine_in_too_many_ways_are_told(
    policy: str, sizes: tuple[str, ...], is_told: bool, scope, monkeypatch
) -> None:
    """Fifteen hints each for CPUs, memory and sizes of pages.

    The bound lies between 15^3 and 15^4.
    """
    monkeypatch.setattr(faults, "MOST_MERGED", 10_000)

    node = node_of(
        4,
        "1.36",
        {},
        topologyManagerPolicy=policy,
        topologyManagerScope=scope,
        cpuManagerPolicy="static",
        reservedSystemCPUs="0",
        memoryManagerPolicy="Static",
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    )
    amounts = {"cpu": "1", "memory": "1Gi", **{f"hugepages-{size}": size for size in sizes}}
    text = f"does not answer: it merges all {15**4:.1e} combinations of hints"
    assert faults_told(node, amounts) == ([text] if is_told else [])


@pytest.mark.parametrize(
    ("version", "cpus", "is_told"),
    [
        ("1.37", "1", True),
        ("1.38", "1", False),  # one NUMA node, which CPUs, memory and pages prefer
        ("1.37", "5", True),
        ("1.38", "5", True),  # two NUMA nodes for CPUs, one for memory and pages
    ],
)
@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_from_1_38_on_only_merges_without_a_preferred_hint_are_told(
    version: str, cpus: str, is_told: bool, policy: str, scope: str, monkeypatch
) -> None:
    monkeypatch.setattr(faults, "MOST_MERGED", 10_000)
    node = node_of(
        4,
        version,
        {},
        topologyManagerPolicy=policy,
        topologyManagerScope=scope,
        cpuManagerPolicy="static",
        reservedSystemCPUs="0",
        memoryManagerPolicy="Static",
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    )
    amounts = {"cpu": cpus, "memory": "1Gi", "hugepages-2Mi": "2Mi", "hugepages-1Gi": "1Gi"}
    assert bool(faults_told(node, amounts)) is is_told


def test_from_1_38_on_the_hints_themselves_are_counted_where_a_hint_is_preferred(
    monkeypatch,
) -> None:
    """15 sets of NUMA nodes for CPUs, and as many for memory."""
    monkeypatch.setattr(faults, "MOST_MERGED", 29)
    node = node_of(
        4,
        "1.38",
        {},
        topologyManagerPolicy="restricted",
        cpuManagerPolicy="static",
        reservedSystemCPUs="0",
        memoryManagerPolicy="Static",
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    )
    text = "does not answer: it goes through all 3.0e+01 hints"
    assert faults_told(node, {"cpu": "1", "memory": "1Gi"}) == [text]

    monkeypatch.setattr(faults, "MOST_MERGED", 30)
    assert faults_told(node, {"cpu": "1", "memory": "1Gi"}) == []


@pytest.mark.parametrize(
    ("nodes_with_gpus", "containers", "combinations"),
    [
        (2, 1, 15**3 * 3),
        (1, 1, None),
        (1, 3, 3 * 15**3),  # the same for each container
    ],
)
def test_combinations_are_counted_over_all_containers(
    nodes_with_gpus: int, containers: int, combinations: int | None, monkeypatch
) -> None:
    """Hints for GPUs are the sets of NUMA nodes that have some: three of two nodes."""
    monkeypatch.setattr(faults, "MOST_MERGED", 10_000)
    devices = {
        "e.com/nic": [{"id": f"nic{place}", "numa": [place % 4]} for place in range(16)],
        "e.com/tpu": [{"id": f"tpu{place}", "numa": [place % 4]} for place in range(32)],
        "e.com/gpu": [
            {"id": f"gpu{place}", "numa": [place % nodes_with_gpus]} for place in range(20)
        ],
    }
    node = node_of(
        4,
        "1.36",
        devices,
        topologyManagerPolicy="restricted",
        cpuManagerPolicy="static",
        reservedSystemCPUs="0",
    )

    limits = {"cpu": "1", "memory": "1Gi", "e.com/nic": "1", "e.com/tpu": "1", "e.com/gpu": "1"}
    text = f"does not answer: it merges all {combinations or 0:.1e} combinations of hints"
    assert faults_told(node, limits, containers) == ([text] if combinations else [])


@pytest.mark.parametrize(
    ("ids", "options"),
    [
        ((0, 1, 2), {"prefer-closest-numa-nodes": "true"}),
        ((0, 2, 5), {}),
    ],
)
def test_ids_without_gaps_or_without_the_option_are_no_fault(
    ids: tuple[int, ...], options: dict[str, str]
) -> None:
    numa = [
        {
            "id": node,
            "memory": 1 << 30,
            "distances": [10] * 3,
            "cores": [{"cpus": [node], "socket": 0}],
        }
        for node in ids
    ]
    kubelet = {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": options}
    node = Node.from_dict({"machine": {"numaNodes": numa}, "kubelet": kubelet, "devices": {}})

    assert faults_told(node, {"cpu": "1", "memory": "1Gi"}) == []


def test_what_panics_is_told_by_ids_and_by_sizes_of_pages() -> None:
    """By arithmetic on what a node says of itself: no kubelet is given such a pod."""
    options = SimpleNamespace(prefer_closest_numa_nodes=True)
    node = SimpleNamespace(
        machine=SimpleNamespace(numa_node_ids=(0, 2, 5), memory_by_type={"memory": 1}),
        config=SimpleNamespace(topology_manager_policy_options=options),
        manager=SimpleNamespace(policy=SimpleNamespace(name="restricted")),
        pools={},
        memory=object(),
    )
    pod = SimpleNamespace(devices=(), memory=(("memory", 1), ("hugepages-2Mi", 1)))
    assert {name: fault.does for name, fault in faults._of_node(node, pod)} == {
        "panics_on_sparse_ids": "panics",
        "panics_on_missing_hugepages": "panics",
    }
