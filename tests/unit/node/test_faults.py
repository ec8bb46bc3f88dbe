"""The known faults of kubelets: those that a real kubelet showed are told, and no others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from alignup.node import Node
from alignup.node.faults import known_faults
from alignup.replay.scenario import Admit, Remove, read_steps

VECTORS = Path(__file__).parents[2] / "vectors"
CORNERS = [
    json.loads(line) for line in (VECTORS / "corner/differences.jsonl").read_text().splitlines()
]


def faults_of(scenario: dict[str, Any], version: str, last: int | None = None) -> list[set[str]]:
    """Return what each step of a scenario comes upon, up to the last one that is asked for."""
    node = Node.from_dict(scenario, kubelet_version=version)
    found: list[set[str]] = []
    for step in read_steps(scenario)[: None if last is None else last + 1]:
        found.append(set())
        if isinstance(step, Admit):
            pod = node.read(step.pod)
            if not node.manager.has_pod(pod.uid):
                found[-1] = {one.does for one in known_faults(node, pod)}
                node.admit(pod)
        elif isinstance(step, Remove) and node.manager.has_pod(step.uid):
            node.remove(step.uid)
    return found


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("hand-offline-sibling-cpu-given-twice", "gives CPUs twice"),
        ("hand-uneven-sockets-cpu-given-twice", "gives CPUs twice"),
        ("hand-sparse-ids-prefer-closest", "panics"),
        ("hand-hugepages-size-that-is-not-there", "panics"),
        ("uneven-20692", "gives CPUs twice"),
        ("plain-20861", "gives CPUs twice"),
        ("devices-26403", "gives CPUs twice"),
        ("init-8043", "gives CPUs twice"),
    ],
)
def test_what_the_kubelet_did_in_a_corner_is_told(name: str, does: str) -> None:
    corner = next(one for one in CORNERS if one["name"] == name)
    assert does in faults_of(corner["scenario"], "1.36", corner["step"])[-1]


def test_a_distribution_without_end_is_told_where_the_kubelet_hung() -> None:
    """Recorded of 1.37.2; a scenario that it did not answer has the key `unanswered`."""
    with gzip.open(VECTORS / "unanswered.jsonl.gz") as file:
        for scenario in map(json.loads, file):
            hangs = any("does not answer" in one for one in faults_of(scenario, "1.37"))
            assert hangs is scenario.get("unanswered", False), scenario["name"]


@pytest.mark.parametrize(("version", "found"), [("1.35", {"does not answer"}), ("1.36", set())])
def test_up_to_1_35_all_sets_of_many_numa_nodes_are_walked(version: str, found: set[str]) -> None:
    numa = [
        {
            "id": node,
            "memory": 1 << 30,
            "distances": [10] * 34,
            "cores": [{"cpus": [node], "socket": 0}] * (node < 2),
        }
        for node in range(34)
    ]
    options = {"max-allowable-numa-nodes": "34"}
    scenario = {
        "machine": {"numaNodes": numa},
        "kubelet": {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": options},
        "devices": {"example.com/gpu": [{"id": "g", "numa": 0}]},
    }
    node = Node.from_dict(scenario, kubelet_version=version)
    resources = {"limits": {"example.com/gpu": "1"}}
    pod = node.read(
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    )
    assert {one.does for one in known_faults(node, pod)} == found


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
    policy: str, sizes: tuple[str, ...], is_told: bool, scope
) -> None:
    """A kubelet 1.35.4 did not answer such a scenario in 75 s.

    255 hints each for CPUs, memory and sizes of pages.
    """
    numa = [
        {
            "id": node,
            "memory": 8 << 30,
            "hugepages": {"2Mi": 4, "1Gi": 2},
            "distances": [10] * 8,
            "cores": [{"cpus": [2 * node, 2 * node + 1], "socket": 0}],
        }
        for node in range(8)
    ]
    scenario = {
        "machine": {"numaNodes": numa},
        "kubelet": {
            "topologyManagerPolicy": policy,
            "topologyManagerScope": scope,
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        },
        "devices": {},
    }
    amounts = {"cpu": "1", "memory": "1Gi", **{f"hugepages-{size}": size for size in sizes}}
    node = Node.from_dict(scenario, kubelet_version="1.36")
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": amounts}}]},
    }
    found = [f"{fault.does}: {fault.text}" for fault in known_faults(node, node.read(pod))]
    assert found == (
        ["does not answer: it merges all 4.2e+09 combinations of hints"] if is_told else []
    )
    assert not node.pods


@pytest.mark.parametrize(
    ("nodes_with_gpus", "containers", "told"),
    [
        (5, 1, "5.1e+08"),
        (3, 1, None),
        (3, 3, "3.5e+08"),  # the same for each container
    ],
)
def test_combinations_that_take_more_than_a_minute_are_told(
    nodes_with_gpus: int, containers: int, told
) -> None:
    """A kubelet 1.32.13 answered a pod with 1.6e8 combinations in 35 s.

    A kubelet 1.33.13 took 63 s for 1.4e8.
    """
    numa = [
        {
            "id": node,
            "memory": 8 << 30,
            "distances": [10] * 8,
            "cores": [{"cpus": [*range(8 * node, 8 * node + 8)], "socket": 0}],
        }
        for node in range(8)
    ]
    scenario = {
        "machine": {"numaNodes": numa},
        "kubelet": {
            "topologyManagerPolicy": "restricted",
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
        },
        "devices": {
            "e.com/nic": [{"id": f"nic{place}", "numa": [place % 8]} for place in range(16)],
            "e.com/tpu": [{"id": f"tpu{place}", "numa": [place % 8]} for place in range(32)],
            "e.com/gpu": [
                {"id": f"gpu{place}", "numa": [place % nodes_with_gpus]} for place in range(20)
            ],
        },
    }
    node = Node.from_dict(scenario, kubelet_version="1.36")
    limits = {"cpu": "1", "memory": "1Gi", "e.com/nic": "1", "e.com/tpu": "1", "e.com/gpu": "1"}
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {"name": f"c{one}", "resources": {"limits": limits}} for one in range(containers)
            ]
        },
    }
    found = [f"{fault.does}: {fault.text}" for fault in known_faults(node, node.read(pod))]
    assert found == (
        [f"does not answer: it merges all {told} combinations of hints"] if told else []
    )
