"""The documents' letter.

KEP-693's merge, KEP-2902's distribution, device hints over all nodes, the scope `Pod`.
"""

from __future__ import annotations

import copy
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.cluster import Cluster
from alignup.errors import AlignupError, ConfigError
from alignup.explanations.product import product_of, reachable
from alignup.node import Node
from alignup.providers.cpu.distribution import distribute_as_written
from alignup.providers.cpu.topology import cpu_topology
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
from alignup.topology_manager.policy import Merger, make_policy
from inputs.cpu_machines import grid
from inputs.machines import machine_of
from inputs.strategies import examples, pairs

NAMES = ["best-effort", "restricted", "single-numa-node"]
Pairs = list[tuple[int | None, bool]]

CASES = st.integers(1, 8).flatmap(
    lambda nodes: st.tuples(
        st.just(nodes), st.lists(st.lists(pairs(nodes), max_size=5), max_size=4)
    )
)


def merged_as_written(name: str, nodes: int, lists: list[Pairs]) -> tuple[int, bool, bool]:
    """Return the best mask, whether it is preferred, and whether the pod is admitted.

    KEP-693's text, walked.
    """
    everything = (1 << nodes) - 1
    hint_lists = [hints or [(None, False)] for hints in lists]
    if name == "single-numa-node":
        hint_lists = [
            [
                (mask, preferred)
                for mask, preferred in hints
                if mask is None or mask.bit_count() == 1
            ]
            for hints in hint_lists
        ]

    candidates = []
    for row in product(*hint_lists):
        merged_mask = everything
        for mask, _ in row:
            if mask is not None:
                merged_mask &= mask

        if merged_mask:
            is_unpreferred = not all(preferred for _, preferred in row)
            candidates.append((is_unpreferred, merged_mask.bit_count(), merged_mask))

    best = min(candidates, default=None)
    if best is None or (name == "single-numa-node" and best[1] > 1):
        return everything, False, name == "best-effort"

    return best[2], not best[0], name == "best-effort" or not best[0]


def hint_of(mask: int | None, preferred: bool) -> TopologyHint:
    return TopologyHint(None if mask is None else BitMask.from_int(mask), preferred)


@examples(400)
@given(CASES, st.sampled_from(NAMES))
def test_the_merge_is_that_of_the_text(case: tuple[int, list[Pairs]], name: str) -> None:
    nodes, lists = case
    hints = [{"x": [hint_of(*pair) for pair in hint_pairs]} for hint_pairs in lists]
    best, admits = make_policy(name, nodes, reading="documents").merge(hints)

    assert (int(best.affinity), best.preferred, admits) == merged_as_written(name, nodes, lists)


@given(CASES)
def test_many_merges_at_once_and_a_copy_are_the_same(case: tuple[int, list[Pairs]]) -> None:
    nodes, lists = case
    merger = Merger(nodes, as_written=True)
    packed = [HintList([hint_of(*pair) for pair in hint_pairs]) for hint_pairs in lists]
    best = merger.merge(packed)
    many = copy.copy(merger).merge_many([packed, packed])

    assert many.masks.tolist() == [int(best.affinity)] * 2
    assert many.preferred.tolist() == [best.preferred] * 2


@given(CASES, st.sampled_from(["restricted", "single-numa-node"]))
def test_what_is_reachable_is_what_some_row_merges_into(
    case: tuple[int, list[Pairs]], policy: str
) -> None:
    nodes, lists = case
    ids = tuple(range(nodes))
    hints = {
        "a": {
            str(number): [hint_of(*pair) for pair in dict(hint_pairs).items()]
            for number, hint_pairs in enumerate(lists)
        }
    }
    table = product_of(hints, policy, ids, as_written=True)
    rows = [row for row in table.rows if row.considered and row.merged != ()] if table else []
    expected = {row.merged: False for row in rows} | {
        row.merged: True for row in rows if row.preferred
    }
    merged = reachable(hints, policy, as_written=True)

    if table is not None and table.count <= len(table.rows):
        names = {
            None if mask is None else tuple(BitMask.from_int(mask).bits()): good
            for mask, good in merged
        }
        assert names == expected


@pytest.mark.parametrize(
    ("nodes", "options", "how"),
    [
        (9, {"max-allowable-numa-nodes": "16"}, "at most 8 NUMA nodes"),
        (2, {"prefer-closest-numa-nodes": "true"}, "no prefer-closest-numa-nodes"),
    ],
)
def test_what_the_documents_do_not_have_is_refused(
    nodes: int, options: dict[str, str], how: str
) -> None:
    with pytest.raises(ConfigError, match=how):
        make_policy("restricted", nodes, [[10] * nodes] * nodes, options, reading="documents")
    with pytest.raises(ConfigError, match="one of kubelet, documents"):
        make_policy("restricted", 2, reading="letter")
    with pytest.raises(ValueError, match="as the documents have it"):
        Merger(9, as_written=True)
    with pytest.raises(ValueError, match="of the machine"):
        Merger(2, as_written=True).merge([HintList([hint_of(1 << 9, preferred=True)])])


def split_as_written(free: list[int], count: int) -> list[int] | None:
    """Return what each NUMA node gives by KEP-2902's text; None: the CPUs are packed."""
    nodes = range(len(free))
    for size in range(1, len(free) + 1):
        share, rest = divmod(count, size)
        for chosen in combinations(nodes, size):
            if share == 0 or any(free[node] < share for node in chosen):
                continue
            for more in combinations(chosen, rest):
                if all(free[node] > share for node in more):
                    return [share * (node in chosen) + (node in more) for node in nodes]
    return None


@examples(200)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=4).filter(any), st.data())
def test_the_distribution_is_that_of_the_text(free: list[int], data: Any) -> None:
    count = data.draw(st.integers(1, sum(free)))
    topology = cpu_topology(grid(len(free), 8))
    cpus = sum(((1 << free_cpus) - 1) << 8 * node for node, free_cpus in enumerate(free))
    taken = distribute_as_written(topology, cpus, count, 0, 1)
    split = split_as_written(free, count)

    assert taken & ~cpus == 0
    assert taken.bit_count() == count
    if split is not None:
        assert [(taken >> 8 * node & 0xFF).bit_count() for node in range(len(free))] == split


def test_kep_2902_gives_what_kubelets_do_not() -> None:
    """5+5+4 of 14 where 5, 5 and 8 are free; a kubelet gives 4+4+6."""
    kubelet = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"},
        "reservedSystemCPUs": "0-2,8-10",
    }
    limits = {"cpu": "14", "memory": "1Gi"}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }

    for reading, counts in (("kubelet", [4, 4, 6]), ("documents", [5, 5, 4])):
        admission = Node(grid(3, 8), kubelet, reading=reading).admit(pod)
        nodes = [cpu // 8 for cpu in admission.containers["c"].cpus]
        assert [nodes.count(node) for node in range(3)] == counts, reading


def random_pod(random: Random, number: int) -> dict[str, Any]:
    limits = {"cpu": str(random.randint(1, 6)), "memory": "1Gi"}
    limits |= {
        name: str(random.randint(1, 2)) for name in ("a.com/x", "b.com/y") if random.random() < 0.7
    }
    return {
        "metadata": {"name": f"p{number}", "uid": f"u{number}"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


@pytest.mark.parametrize("seed", range(12))
def test_a_node_a_scenario_and_a_cluster_read_alike(seed: int) -> None:
    """The reading is a node's, wherever it is given.

    Its pods are admitted as KEP-693's text merges their hints.
    """
    random = Random(seed)
    nodes, policy = random.choice([2, 4]), random.choice(NAMES)
    described = {
        "machine": machine_of(nodes, 4),
        "kubelet": {
            "cpuManagerPolicy": "static",
            "topologyManagerPolicy": policy,
            "topologyManagerScope": "Pod",
        },
        "devices": {
            name: [{"id": f"{name}{n}", "numa": random.randrange(nodes)} for n in range(4)]
            for name in ("a.com/x", "b.com/y")
        },
        "reading": "documents",
    }
    node = Node.from_dict(described)
    arguments = {key: described[key] for key in ("machine", "kubelet", "devices")}
    twin = Node(*arguments.values(), reading="documents")
    cluster = Cluster.from_nodes([node])

    assert (node.scope_name, node.config.reading) == ("pod", "documents")
    for number in range(10):
        pod = random_pod(random, number)
        read = node.read(pod)
        lists = [
            [
                (None if hint.affinity is None else int(hint.affinity), hint.preferred)
                for hint in hints
            ]
            for provider in node.manager.providers
            for hints in (provider.pod_topology_hints(read) or {}).values()
            if hints is not None
        ]
        mask, preferred, admits = merged_as_written(policy, nodes, lists)
        verdict = cluster.evaluate(pod).admitted[0]
        admission = node.admit(pod)

        assert admission.admitted == verdict == twin.admit(pod).admitted
        assert admits or not admission.admitted
        if admission.admitted and lists:
            [got] = admission.containers.values()
            assert (int(got.affinity.affinity), got.affinity.preferred) == (mask, preferred)


def test_a_kubelet_takes_no_scope_in_capitals() -> None:
    with pytest.raises(AlignupError, match="topologyManagerScope"):
        Node(machine_of(2, 4), {"topologyManagerScope": "Pod"})


@pytest.mark.parametrize("reading", ["letter", "", 5, False, {}, ["documents"]])
def test_other_readings_are_refused(reading: object) -> None:
    with pytest.raises(ConfigError, match=r"one of kubelet, documents, got .* at reading"):
        Node.from_dict({"machine": machine_of(2, 4), "reading": reading})
