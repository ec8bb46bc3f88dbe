"""Admission and removal of a pod on a node of 2, 4 and 8 NUMA nodes, restricted.

The pod asks for CPU, memory and two devices.
"""

from __future__ import annotations

import gc
from time import perf_counter_ns

import pytest

from alignup import Node, Pod, read_pod
from cases import ONE_NODE, Demand, scenario, summary

ROUNDS = 4000
PROMISED = {2: (20, 45), 4: (20, 45), 8: (20, 45)}
"""By number of nodes: microseconds, median and 99th percentile."""

FIRST_DEVICES = {"example.com/gpu": ("gpu00",), "example.com/nic": ("nic00",)}


def busy(numa_nodes: int) -> tuple[Node, Pod]:
    """Return a node of which every other NUMA node is in use, and the pod that is to come."""
    node = Node.from_dict(scenario(numa_nodes))
    for index in range(numa_nodes // 2):
        assert node.admit(
            Demand(14, 24, {"example.com/gpu": 2, "example.com/nic": 2}).manifest(f"p{index}")
        ).admitted
    return node, read_pod(ONE_NODE.manifest("pod"))


def fresh(numa_nodes: int) -> tuple[Node, Pod]:
    """Return an empty node, and the pod that is to come."""
    return Node.from_dict(scenario(numa_nodes)), read_pod(ONE_NODE.manifest("pod"))


def with_collector(node: Node, pod: Pod) -> dict[str, float]:
    """Return microseconds of admissions with the garbage collector on.

    The benchmark itself turns it off.
    """
    took = []
    gc.enable()
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        node.admit(pod)
        took.append(perf_counter_ns() - start)
        node.remove(pod.uid)
    took.sort()
    return {"median": took[ROUNDS // 2] / 1000, "p99": took[ROUNDS * 99 // 100] / 1000}


@pytest.mark.parametrize("state", [fresh, busy], ids=["empty", "half-full"])
@pytest.mark.parametrize("numa_nodes", [2, 4, 8])
@pytest.mark.benchmark(group="admission")
def test_admit(benchmark, promise, numa_nodes, state):
    """Median under 20 us, 99 of 100 under 45 us."""
    node, pod = state(numa_nodes)
    allocation = node.admit(pod).containers["c0"]
    assert allocation.affinity.preferred
    assert len(allocation.affinity.affinity) == 1
    assert len(allocation.cpus) == 4
    assert [len(ids) for ids in allocation.devices.values()] == [1, 1]
    if state is fresh:
        half = 8 * numa_nodes
        cpus = f"1-2,{half + 1}-{half + 2}"
        assert summary(allocation) == (1, True, cpus, FIRST_DEVICES)

    benchmark.pedantic(
        node.admit, (pod,), setup=lambda: node.remove("pod"), rounds=ROUNDS, warmup_rounds=100
    )
    node.remove("pod")
    for name, micros in with_collector(node, pod).items():
        benchmark.extra_info[f"{name}_with_gc_us"] = round(micros, 2)

    promise(*PROMISED[numa_nodes])


@pytest.mark.parametrize("state", [fresh, busy], ids=["empty", "half-full"])
@pytest.mark.parametrize("numa_nodes", [2, 8])
@pytest.mark.benchmark(group="admission")
def test_try_admit(benchmark, promise, numa_nodes, state):
    """Quicker than admitting, as nothing is kept.

    Both are measured in turn, so that they see the same machine.
    """
    node, pod = state(numa_nodes)
    tried = node.try_admit(pod)
    free = node.memory.free
    benchmark.pedantic(node.try_admit, (pod,), rounds=ROUNDS, warmup_rounds=100)
    assert (len(node.pods), node.memory.free) == (0 if state is fresh else numa_nodes // 2, free)
    assert summary(node.admit(pod).containers["c0"]) == summary(tried.containers["c0"])
    node.remove("pod")
    trying, admitting = least_of_both(node, pod)
    benchmark.extra_info["part_of_an_admission"] = round(trying / admitting, 2)
    assert benchmark.disabled or trying < admitting
    promise(15, 45)


def least_of_both(node: Node, pod: Pod) -> tuple[int, int]:
    """Return the nanoseconds of the quickest trial and of the quickest admission."""
    trying, admitting = [], []
    for _ in range(ROUNDS // 4):
        start = perf_counter_ns()
        node.try_admit(pod)
        trying.append(perf_counter_ns() - start)
        start = perf_counter_ns()
        node.admit(pod)
        admitting.append(perf_counter_ns() - start)
        node.remove(pod.uid)
    return min(trying), min(admitting)


@pytest.mark.benchmark(group="copy")
def test_copy(benchmark, promise):
    """A node of 8 NUMA nodes with 8 pods: under 10 us."""
    node, pod = fresh(8)
    for index in range(8):
        assert node.admit(ONE_NODE.manifest(f"p{index}")).admitted
    copied = benchmark(node.copy)
    assert [copied_pod.uid for copied_pod in copied.pods] == [
        copied_pod.uid for copied_pod in node.pods
    ]
    assert copied.admit(pod).admitted
    assert len(node.pods) == 8
    promise(10)


@pytest.mark.parametrize("numa_nodes", [2, 4, 8])
@pytest.mark.benchmark(group="removal")
def test_remove(benchmark, promise, numa_nodes):
    """Under 6 us."""
    node, pod = fresh(numa_nodes)

    def admit():
        assert node.admit(pod).admitted

    benchmark.pedantic(lambda: node.remove("pod"), setup=admit, rounds=ROUNDS, warmup_rounds=100)
    assert node.pods == ()
    assert len(node.shared_cpus) == 16 * numa_nodes
    promise(6)


@pytest.mark.parametrize("numa_nodes", [2, 8])
@pytest.mark.benchmark(group="admission")
def test_refuse(benchmark, promise, numa_nodes):
    """A refusal costs no more than an admission; its sentence is made when somebody reads it."""
    node, _ = fresh(numa_nodes)
    pod = read_pod(Demand(4, 8, {"example.com/gpu": 2 * numa_nodes + 1}).manifest("pod"))
    refusal = benchmark(node.admit, pod)
    assert (refusal.admitted, refusal.reason) == (False, "TopologyAffinityError")
    assert "example.com/gpu" in refusal.message
    promise(60)
