"""Admission beyond 8 NUMA nodes: a GB200-like machine in under 1 ms, 64 nodes in under 5 ms."""

from __future__ import annotations

import numpy as np
import pytest

from alignup import HintList, Merger, Node, Pod, read_pod
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.machine.load import catalog_entries
from cases import Demand, big_scenario, summary

GB200 = {
    "one-gpu": (Demand(8, 16, {"nvidia.com/gpu": 1, "example.com/nic": 1}), 0b01, True),
    "one-socket": (Demand(64, 128, {"nvidia.com/gpu": 2, "example.com/nic": 2}), 0b01, True),
    "both-sockets": (Demand(100, 500, {"nvidia.com/gpu": 3, "example.com/nic": 3}), 0b11, True),
    "too-many-gpus": (Demand(8, 16, {"nvidia.com/gpu": 5, "example.com/nic": 1}), None, False),
}

BIG = {
    "one-node": (Demand(4, 4, {"example.com/nic": 1}), 1),
    "nine-nodes": (Demand(36, 68, {"example.com/nic": 9}), (1 << 9) - 1),
    "does-not-fit": (Demand(300, 4, {"example.com/nic": 1}), None),
}


@pytest.mark.parametrize("name", GB200)
@pytest.mark.benchmark(group="GB200: 34 nodes")
def test_gb200(benchmark, promise, name):
    """34 nodes, of which 2 have CPUs and the others are kept for GPU memory."""
    demand, mask, admitted = GB200[name]
    entry = catalog_entries()["gb200"]
    node = Node.from_dict(
        {
            "machine": entry.machine.to_dict(),
            "devices": entry.devices,
            "kubelet": {**entry.kubelet, "topologyManagerPolicy": "restricted"},
        }
    )
    pod = read_pod(demand.manifest("pod"))
    come_and_go(benchmark, node, pod, admitted, mask)
    promise(1000)


@pytest.mark.parametrize("closest", [False, True], ids=["lowest", "closest"])
@pytest.mark.parametrize("policy", TOPOLOGY_POLICIES)
@pytest.mark.parametrize("name", BIG)
@pytest.mark.benchmark(group="64 nodes, 256 CPUs")
def test_64_nodes(benchmark, promise, name, policy, closest):
    """A request for one node, one that needs nine, and one that does not fit, under each policy."""
    demand, mask = BIG[name]
    if policy == "none" and closest:
        pytest.skip("policy none looks at no distances")
    node = Node.from_dict(big_scenario(policy, closest=closest))
    pod = read_pod(demand.manifest("pod"))
    admitted = mask is not None and not (policy == "single-numa-node" and name == "nine-nodes")
    come_and_go(benchmark, node, pod, admitted, mask if policy != "none" else None)
    promise(5000)


@pytest.mark.parametrize("closest", [False, True], ids=["lowest", "closest"])
@pytest.mark.benchmark(group="64 nodes, 256 CPUs")
def test_64_fragmented_nodes(benchmark, promise, closest):
    """After 30 pods, nodes are no longer alike.

    What is asked for needs a different number of them each.
    """
    node = Node.from_dict(big_scenario("best-effort", closest=closest))
    for index in range(30):
        small = Demand(1 + index % 4, 1 + index % 7, {"example.com/nic": 1})
        assert node.admit(small.manifest(f"small{index}")).admitted

    pod = read_pod(Demand(36, 50, {"example.com/nic": 3}).manifest("pod"))
    admission = node.admit(pod)
    assert admission.admitted
    assert admission.exact
    assert not admission.containers["c0"].affinity.preferred
    benchmark.pedantic(
        node.admit, (pod,), setup=lambda: node.remove("pod"), rounds=300, warmup_rounds=10
    )
    promise(5000)


@pytest.mark.parametrize("hints", [500, 3900])
@pytest.mark.benchmark(group="40 nodes, hints written out")
def test_fold_written_lists(benchmark, promise, hints):
    """Two lists of masks that somebody wrote.

    Every AND of two is looked at, 250,000 or 15 million, exactly.
    """
    random = np.random.default_rng(1)
    arrays = [random.integers(1, 1 << 40, hints, "u8") for _ in range(2)]
    lists = [HintList.from_arrays(masks, np.zeros(hints, bool)) for masks in arrays]
    merger = Merger(40)
    best = merger.merge(lists)
    largest_count = max(min(mask.bit_count() for mask in masks.tolist()) for masks in arrays)
    sizes = {
        mask.bit_count() for mask in np.unique(arrays[0][:500, None] & arrays[1][:500]).tolist()
    }
    assert best.exact
    assert (
        max(size for size in sizes if size <= largest_count)
        <= best.affinity.count()
        <= largest_count
    )
    benchmark.pedantic(merger.merge, (lists,), rounds=20, warmup_rounds=1)
    promise(10_000 if hints == 500 else 400_000)


def come_and_go(benchmark, node: Node, pod: Pod, admitted: bool, mask: int | None) -> None:
    """Time admissions, after a check of the answer."""
    admission = node.admit(pod)
    assert admission.admitted is admitted, admission.message
    assert admission.exact
    if not admitted:
        assert admission.message
        benchmark(node.admit, pod)
        return

    answer = summary(admission.containers["c0"])
    assert answer[0] == mask
    assert answer[1] in {True, None}
    assert len(admission.containers["c0"].cpus) == pod.exclusive_cpus
    benchmark.pedantic(
        node.admit, (pod,), setup=lambda: node.remove("pod"), rounds=300, warmup_rounds=10
    )
