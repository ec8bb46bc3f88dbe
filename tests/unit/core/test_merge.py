"""The compiled merge gives what a walk of the product gives, on 1 to 8 nodes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.merge import Merger
from alignup.topology_manager.hints import HintList, TopologyHint
from alignup.topology_manager.policy import make_policy
from fakes.hint_providers import hint
from inputs.strategies import distance_matrices, examples, pairs
from models import topology_manager as model


def test_too_many_lists_are_refused() -> None:
    """No pod has 65 resources that are aligned; the error names the number."""
    with pytest.raises(ValueError, match="at most 64 hint lists, got 65"):
        Merger(2).merge([HintList([TopologyHint(None, True)])] * 65)


@pytest.mark.parametrize("wrong", [[None], [[TopologyHint(None, True)]], None])
def test_the_merger_takes_packed_lists_only(wrong: Any) -> None:
    with pytest.raises(TypeError):
        Merger(2).merge(wrong)


@pytest.mark.parametrize("numa_nodes", [-1, 0, 65])
def test_a_merger_has_1_to_64_nodes(numa_nodes: int) -> None:
    with pytest.raises(ValueError, match=f"expected 1 to 64 NUMA nodes, got {numa_nodes}"):
        Merger(numa_nodes)


@pytest.mark.parametrize("numa_nodes", [3, 12])
def test_a_copied_policy_decides_alike(numa_nodes: int) -> None:
    """Policies can be sent to other processes, distances and all."""
    distances = [
        [10 if row == column else 20 + (row + column) % 3 for column in range(numa_nodes)]
        for row in range(numa_nodes)
    ]
    options = {"max-allowable-numa-nodes": "64", "prefer-closest-numa-nodes": "true"}
    policy = make_policy("restricted", numa_nodes, distances, options)
    pairs_of_nodes = [hint(True, row, column) for row in range(numa_nodes) for column in range(row)]
    copied = pickle.loads(pickle.dumps(policy))  # noqa: S301 - our own bytes

    assert copied.merge([{"cpu": pairs_of_nodes}]) == policy.merge([{"cpu": pairs_of_nodes}])
    assert copied.merge([{"cpu": pairs_of_nodes}])[0] == hint(True, 1, 2)


@pytest.mark.parametrize("numa_nodes", [4, 20])
@pytest.mark.parametrize("rows", [[], [[1, 2]] * 2, [[1, 2]] * 20, [[1] * 20] * 4])
def test_distances_are_from_each_node_to_each(numa_nodes: int, rows: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=f"expected {numa_nodes} rows of {numa_nodes} distances"):
        Merger(numa_nodes, rows)


def test_a_merger_that_failed_to_change_is_as_before() -> None:
    merger = Merger(12, [[10] * 12] * 12)
    for wrong in ([[10]] * 9, [["far"] * 9] * 9, [[1.5] * 9] * 9):
        with pytest.raises((TypeError, ValueError)):
            merger.__init__(9, wrong)  # type: ignore[misc]

    assert merger.merge([]) == hint(True, *range(12))


# ---- many groups at once ----


@examples(60)
@given(st.integers(1, 10), st.booleans(), st.booleans(), st.data())
def test_many_merges_are_those_of_one_after_another(
    numa_nodes: int, single: bool, closest: bool, data: Any
) -> None:
    """Every group gets the answer that it gets alone, wide lists among narrow ones too."""
    hints = pairs(numa_nodes) | pairs(8) | pairs(12)
    lists = st.lists(hints, max_size=5).map(lambda drawn: HintList(model.hint_list(drawn)))
    groups = data.draw(st.lists(st.lists(lists, max_size=3), max_size=6))
    distances = None
    if closest:
        distances = data.draw(distance_matrices(numa_nodes))

    merger = Merger(numa_nodes, distances)

    merged = merger.merge_many(groups, single_nodes=single)

    assert merged.masks.dtype == ("u1" if numa_nodes <= 8 else "u8")
    assert merged.preferred.dtype == merged.exact.dtype == bool
    alone = [merger.merge(group, single_nodes=single) for group in groups]
    assert merged.masks.tolist() == [int(best.affinity or 0) for best in alone]
    assert merged.preferred.tolist() == [best.preferred for best in alone]
    assert merged.exact.tolist() == [best.exact for best in alone]


def test_groups_may_come_from_generators() -> None:
    group = [HintList([hint(True, 0)]), HintList([hint(True, 0, 1)])]
    masks, preferred, exact = Merger(2).merge_many(iter(group) for _ in range(3))

    assert (masks.tolist(), preferred.tolist(), exact.tolist()) == (
        [1] * 3,
        [False] * 3,
        [True] * 3,
    )


def test_wrong_groups_are_refused() -> None:
    """The error says in which group."""
    fine = [HintList([hint(True, 0)])]
    with pytest.raises(
        TypeError, match=r"expected HintList objects, got TopologyHint.* in group 1"
    ):
        Merger(2).merge_many([fine, [hint(True, 0)]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="at most 64 hint lists, got 65 in group 2"):
        Merger(2).merge_many([fine, fine, fine * 65])


def test_a_merger_stays_what_it_is() -> None:
    """Threads may use it while somebody tries to make it another."""
    merger = Merger(2)
    with pytest.raises(TypeError, match="cannot be changed"):
        merger.__init__(3)  # type: ignore[misc]


@pytest.mark.parametrize("nodes", [2.5, "a", None])
def test_the_number_of_numa_nodes_is_whole(nodes: Any) -> None:
    with pytest.raises(TypeError, match=r"^expected 1 to 64 NUMA nodes, got"):
        Merger(nodes)
