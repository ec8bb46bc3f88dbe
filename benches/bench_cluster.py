"""Many nodes: one pod on 10,000 nodes in under 10 ms on one core, in a time that grows as the nodes do."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from alignup import Cluster, Pod
from alignup.cluster.shape import CpuShape, DeviceShape, Row, Shape
from alignup.cluster.simulation import Simulation
from alignup.cluster.synthetic import synthetic_trace
from cases import FACTOR, Demand, scenario

GIBI = 1 << 30
NUMA_NODES = 8
POLICIES = ("best-effort", "restricted", "single-numa-node")
PODS = {
    "one-node": Demand(8, 8, {"example.com/gpu": 1, "example.com/nic": 1}),
    "two-nodes": Demand(40, 16, {"example.com/gpu": 2, "example.com/nic": 2}),
}


def amounts(count: int, load: float, seed: int = 1) -> dict[str, np.ndarray]:
    """Return what is free at random on each NUMA node when about such a part is in use."""
    random = np.random.default_rng(seed)
    size = (count, NUMA_NODES)
    return {
        "cpu": (random.random(size) * 33 * (1 - load)).astype(np.int64),
        "memory": (random.random(size) * 64 * (1 - load)).astype(np.int64) * GIBI,
        "example.com/gpu": (random.random(size) > load).astype(np.int64),
        "example.com/nic": (random.random(size) > load).astype(np.int64),
    }


def cluster_of(count: int, policies: tuple[str, ...], free: dict[str, np.ndarray]) -> Cluster:
    """Return a cluster of amounts, with 8 NUMA nodes and 4 resources a node."""
    near = tuple(tuple(10 if a == b else 12 if a // 4 == b // 4 else 32 for b in range(8)) for a in range(8))
    places = tuple(1 << node for node in range(NUMA_NODES))
    devices = tuple((f"example.com/{name}", DeviceShape(places, (1,) * 8)) for name in ("gpu", "nic"))
    shapes = [
        Shape(
            NUMA_NODES, policy, "container", distances=near, cpu=CpuShape((32,) * 8, (30,) + (32,) * 7, 2),
            memory=(("memory", (64 * GIBI,) * 8),), devices=devices,
        )
        for policy in policies
    ]  # fmt: skip
    rows = (
        Row(
            cpu=tuple(free["cpu"][index].tolist()),
            whole_cpus=int(free["cpu"][index].sum()),
            memory=(tuple(free["memory"][index].tolist()),),
            bound=places,
            devices={
                name: tuple(free[name][index].tolist()) for name in ("example.com/gpu", "example.com/nic")
            },
        )
        for index in range(count)
    )
    return Cluster([str(n) for n in range(count)], [shapes[n % len(shapes)] for n in range(count)], rows)


def first_single(free: dict[str, np.ndarray], demand: Demand) -> np.ndarray:
    """Return the mask of the first NUMA node of each node that has everything, 0 where none has: the plain model."""
    asked = {"cpu": demand.cpus, "memory": demand.gibi * GIBI, **demand.devices}
    fits = np.logical_and.reduce([free[name] >= amount for name, amount in asked.items()])
    return np.where(fits.any(axis=1), 1 << fits.argmax(axis=1), 0)


def best_of(function, rounds: int = 7) -> float:
    """Return the least seconds that a call took."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("policy", [*POLICIES, "mixed"])
@pytest.mark.parametrize("name", PODS)
@pytest.mark.benchmark(group="cluster: 10,000 nodes of 8 NUMA nodes and 4 resources")
def test_evaluate(benchmark, promise, name, policy, load):
    """One pod on 10,000 nodes, one core."""
    free = amounts(10_000, load)
    cluster = cluster_of(10_000, POLICIES if policy == "mixed" else (policy,), free)
    pod = Pod.from_manifest(PODS[name].manifest("pod"))
    answer = cluster.evaluate(pod)
    singles = first_single(free, PODS[name])
    if name == "one-node":
        assert (answer.affinity[singles > 0] == singles[singles > 0]).all()
        assert policy == "best-effort" or (answer.admitted[1::3] == (singles > 0)[1::3]).all()
    else:
        assert policy != "single-numa-node" or not answer.admitted.any()
    benchmark(cluster.evaluate, pod)
    promise(10_000)


@pytest.mark.benchmark(group="cluster: growth")
def test_growth(benchmark):
    """From 1,000 to 100,000 nodes time grows as the nodes do, and the arrays stay under 100 MB."""
    pod = Pod.from_manifest(PODS["one-node"].manifest("pod"))
    seconds = {}
    for count in (1_000, 10_000, 100_000):
        free = amounts(count, 0.5)
        cluster = cluster_of(count, POLICIES, free)
        assert (cluster.evaluate(pod).affinity[first_single(free, PODS["one-node"]) > 0] > 0).all()
        seconds[count] = best_of(lambda cluster=cluster: cluster.evaluate(pod))
        benchmark.extra_info[f"ns_a_node_at_{count}"] = round(seconds[count] / count * 1e9)
    benchmark.extra_info["megabytes"] = round(cluster.nbytes / 1e6, 1)
    benchmark.pedantic(cluster.evaluate, (pod,), rounds=3)
    assert cluster.nbytes < 100e6
    assert seconds[100_000] < 100 * seconds[1_000] * FACTOR


@pytest.mark.benchmark(group="cluster: threads")
def test_threads(benchmark):
    """Two threads do not wait for each other."""
    cluster = cluster_of(100_000, POLICIES, amounts(100_000, 0.5))
    pod = Pod.from_manifest(PODS["one-node"].manifest("pod"))
    alone = best_of(lambda: cluster.evaluate(pod))
    both = best_of(lambda: cluster.evaluate(pod, threads=2))
    assert (cluster.evaluate(pod, threads=2).score == cluster.evaluate(pod).score).all()
    benchmark.extra_info["speed_up"] = round(alone / both, 2)
    benchmark.pedantic(cluster.evaluate, (pod,), {"threads": 2}, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("blind", [False, True], ids=["seeing", "blind"])
@pytest.mark.benchmark(group="cluster: simulation of 1,000 nodes and 100,000 arrivals")
def test_simulation(benchmark, blind):
    """Under 60 seconds; a scheduler that sees topology is never refused here."""
    lines = [json.dumps({"name": str(n), **scenario(8, POLICIES[n % 3], cores=8)}) for n in range(1_000)]
    cluster = Cluster.from_json_lines(lines)
    events = synthetic_trace(cluster, 100_000, seed=1)
    simulation = Simulation(cluster, blind=blind, seed=1)
    report = benchmark.pedantic(simulation.run, (events,), rounds=1)
    benchmark.extra_info.update(report.to_dict())
    assert report.arrivals == 100_000
    assert (report.refused > 0) == blind
    assert benchmark.stats is None or benchmark.stats.stats.max < 60 * FACTOR
