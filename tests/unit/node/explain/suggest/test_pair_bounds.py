"""Pairs of pods are ruled out by sums only where they hold too little."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from alignup.node.explain.suggest.pair_bounds import NO_NUMA_NODE, possible_pairs

NODES = (0, 3, NO_NUMA_NODE)
AMOUNTS = st.fixed_dictionaries({node: st.integers(0, 4) for node in NODES})
POD = st.fixed_dictionaries({"cpu": AMOUNTS, "gpu": AMOUNTS})


@given(
    st.lists(POD, max_size=5),
    POD,
    st.lists(
        st.dictionaries(st.sampled_from(["cpu", "gpu", "other"]), st.integers(0, 9), max_size=3),
        min_size=1,
        max_size=2,
    ),
    st.booleans(),
)
def test_pairs_are_those_that_a_walk_finds(held: list, free: dict, asked: list, on_one_node: bool) -> None:
    def fits(one: dict, other: dict, container: dict) -> bool:
        nodes = set(NODES)
        for resource, amount in container.items():
            if resource not in free:
                continue
            there = {
                node: free[resource][node] + one[resource][node] + other[resource][node] for node in NODES
            }
            if sum(there.values()) < amount:
                return False
            if not free[resource][NO_NUMA_NODE] and not any(pod[resource][NO_NUMA_NODE] for pod in held):
                nodes &= {node for node in NODES if there[node] >= amount}
        return bool(nodes) or not on_one_node

    expected = [
        (i, j)
        for i, j in combinations(range(len(held)), 2)
        if all(fits(held[i], held[j], container) for container in asked)
    ]
    assert sorted(possible_pairs(held, free, asked, on_one_node=on_one_node)) == expected
