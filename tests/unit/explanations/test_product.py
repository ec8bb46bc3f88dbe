"""The cross product of hints row by row, and the results that it can reach."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import explain
from alignup.explanations import product as products
from alignup.explanations.product import (
    MOST_PAIRS,
    MOST_ROWS,
    Choice,
    average,
    merged_score,
    product_of,
    reachable,
)
from alignup.records import json_of
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints
from fakes.hint_providers import hint
from inputs.refusals import article, gpu_pod, node_of, wish
from models import topology_manager as model

IDS = (0, 1)

MASKS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(1, 15)), st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda hint: hint[0],
)


def test_the_articles_first_container_has_27_rows() -> None:
    product = (
        explain(article(), wish("x", cpu="2", **{"nvidia.com/gpu": "1", "example.com/nic": "1"}))
        .steps[0]
        .product
    )

    assert (product.count, len(product.rows)) == (27, 27)
    assert product.resources == ("example.com/nic", "nvidia.com/gpu", "cpu")
    first, second = product.rows[:2]
    assert (first.hints, first.merged, first.preferred, first.considered) == (
        (Choice((0,), True),) * 3,
        (0,),
        True,
        True,
    )
    assert (second.merged, second.preferred) == ((), False)
    assert product.rows[-1].hints == (Choice((0, 1), False),) * 3
    assert (product.rows[-1].merged, product.rows[-1].considered) == ((0, 1), False)


def test_a_row_is_preferred_if_all_hints_are_and_name_the_same_nodes() -> None:
    hints = {
        "a": {"x": [hint(True, 0, 1)]},
        "b": {"y": [hint(True, 0), hint(True)], "z": None},
        "c": None,
    }
    product = product_of(hints, "restricted", IDS)

    assert product.resources == ("x", "y")
    assert [(row.merged, row.preferred) for row in product.rows] == [((0, 1), True), ((0,), False)]
    assert json_of(product)["rows"][0]["hints"][1] == {"numaNodes": None, "preferred": True}
    assert all(row.considered for row in product.rows)


def test_a_resource_that_cannot_be_had_is_one_hint() -> None:
    product = product_of({"a": {"x": []}, "b": {"y": [hint(True, 0)]}}, "best-effort", IDS)

    assert [(row.merged, row.preferred) for row in product.rows] == [((0,), False)]
    assert reachable({"a": {"x": []}, "b": {"y": [hint(True, 0)]}}, "best-effort") == [(1, False)]


def test_nobody_with_a_preference_has_no_product() -> None:
    assert product_of({"a": None, "b": {"x": None}}, "restricted", IDS) is None
    assert reachable({"a": None}, "restricted") == [(None, True)]


def test_rows_are_shown_up_to_a_number_and_counted() -> None:
    full = HintList([TopologyHint(BitMask.from_int(mask), True) for mask in range(1, 256)])
    product = product_of({"a": {"x": full, "y": full, "z": full}}, "restricted", tuple(range(8)))

    assert (len(product.rows), product.count) == (MOST_ROWS, 255**3)


def test_hints_too_many_to_count_have_a_product_of_some_rows() -> None:
    amounts = [3**node % 1009 + 1 for node in range(40)]
    varied = feasible_hints(
        40, [(None, amounts, sum(amounts) // 3)], universe=(1 << 40) - 1, preferred_size=9
    )
    assert varied.total() is None
    product = product_of({"a": {"x": varied}}, "restricted", tuple(range(40)))
    assert (len(product.rows), product.count) == (MOST_ROWS, MOST_PAIRS + 1)


@given(st.lists(MASKS, min_size=1, max_size=3), st.sampled_from(["restricted", "single-numa-node"]))
def test_what_is_reachable_is_what_some_row_merges_into(lists: list, policy: str) -> None:
    """Against the product itself, walked row by row."""
    hints = {
        "a": {
            str(number): [
                TopologyHint(None if mask is None else BitMask.from_int(mask), preferred)
                for mask, preferred in provider_hints
            ]
            for number, provider_hints in enumerate(lists)
        }
    }
    rows = [
        row
        for row in product_of(hints, policy, (0, 1, 2, 3)).rows
        if row.considered and row.merged != ()
    ]
    expected = {row.merged: False for row in rows} | {
        row.merged: True for row in rows if row.preferred
    }

    mergeable = [Choice.of(merged, (0, 1, 2, 3)) for merged in reachable(hints, policy)]
    assert {choice.numa_nodes: choice.preferred for choice in mergeable} == expected


def test_lists_too_long_to_walk_are_not_folded() -> None:
    """Also after lists that have nothing in common."""
    node = node_of(
        20,
        2,
        topologyManagerPolicyOptions={"max-allowable-numa-nodes": "64"},
        memoryManagerPolicy="None",
    )
    wide = explain(node, gpu_pod("x", cpu="5", gpus=1)).steps[0]
    assert (wide.reachable, wide.reachable_count) == (None, None)
    huge = node.cpu.ledger.hints(5)
    assert (
        reachable({"a": {"x": [hint(True, 0)], "y": [hint(True, 1)], "z": huge}}, "restricted")
        is None
    )


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([], 0), ([0, 0], 0), ([1, 0, 0], 1), ([40, 81], 60), ([100, 100, 1], 67)],
)
def test_an_average_is_of_the_scores_that_are_not_0_and_cut(
    scores: list[int], expected: int
) -> None:
    assert average(scores) == expected


def test_rows_have_the_average_of_their_hints_scores() -> None:
    """A hint of any NUMA node has none, whatever its resource."""
    hints = {"a": {"x": [hint(True, 0), hint(False, 0, 1)]}, "b": {"y": [hint(True)], "z": None}}
    scores = {("a", "x", 1): 10, ("a", "x", 3): 31}

    def score_of(*place: object) -> int:
        return scores[place]

    product_ = product_of(hints, "restricted", IDS, scores=score_of)
    assert [[choice.score for choice in row.hints] for row in product_.rows] == [[10, 0], [31, 0]]
    assert [row.score for row in product_.rows] == [10, 31]
    assert json_of(product_)["rows"][0] == {
        "hints": [
            {"numaNodes": [0], "preferred": True, "score": 10},
            {"numaNodes": None, "preferred": True, "score": 0},
        ],
        "merged": [0],
        "preferred": True,
        "considered": True,
        "score": 10,
    }

    left_out = product_of(hints, "single-numa-node", IDS, scores=score_of).rows[1]
    assert (left_out.considered, left_out.score) == (False, None)
    assert "score" not in json_of(left_out)
    assert "score" not in json_of(product_of(hints, "restricted", IDS))["rows"][0]


def walked_score(lists: list, policy: str, best: tuple, scores: dict) -> int:
    """Return the score of a merged hint, by walking all combinations in the kubelet's order."""
    mask, preferred = best
    if mask is None:
        return 0

    in_order = [
        sorted(hints, key=lambda offer: (nodes_of(offer[1]).__len__(), nodes_of(offer[1])))
        for hints in lists
    ]
    for permutation in product(*in_order):
        pairs = [pair for _, *pair in permutation]
        if policy == "single-numa-node" and any(
            not is_good or (nodes or 0).bit_count() > 1 for nodes, is_good in pairs
        ):
            continue
        if model.merged_permutation(pairs, 15) == (mask, preferred):
            counted = [scores[name, nodes] for name, nodes, _ in permutation if nodes is not None]
            counted = [score for score in counted if score]
            return sum(counted) // len(counted) if counted else 0

    return 0  # nothing in common


def nodes_of(mask: int | None) -> list[int]:
    return model.nodes_of(mask or 0)


@given(
    lists=st.lists(MASKS, min_size=1, max_size=3),
    policy=st.sampled_from(["best-effort", "restricted", "single-numa-node"]),
    is_one_provider=st.booleans(),
    data=st.data(),
)
def test_the_best_hint_has_the_score_of_the_first_combination_that_merges_into_it(
    lists: list, policy: str, is_one_provider: bool, data: st.DataObject
) -> None:
    """Against all combinations; where they are of one provider, in any order of its lists."""
    places = [(str(number), mask) for number, hints in enumerate(lists) for mask, _ in hints]
    scores = {place: data.draw(st.integers(0, 100)) for place in places}
    named_lists = [
        [(str(number), mask, good) for mask, good in hints] for number, hints in enumerate(lists)
    ]
    offers = {str(number): model.hint_list(hints) for number, hints in enumerate(lists)}
    hints = {name: {name: offered} for name, offered in offers.items()}
    orders = [named_lists]
    if is_one_provider:
        hints = {"one": offers}
        orders = [list(order) for order in permutations(named_lists)]

    mask, preferred, _ = model.merge(policy, 4, hints.values())
    best = TopologyHint(None if mask is None else BitMask.from_int(mask), preferred)
    expected = {walked_score(order, policy, (mask, preferred), scores) for order in orders}
    score = merged_score(hints, policy, best, lambda _, resource, nodes: scores[resource, nodes], 4)
    assert score == (expected.pop() if len(expected) == 1 else None)


def test_a_score_is_not_known_where_there_are_too_many_hints_or_orders(monkeypatch) -> None:
    offers = {name: [hint(False, 0), hint(False, 0, 1)] for name in "xyz"}
    best = hint(False, 0)

    def score_of(_provider: str, _resource: str, mask: int) -> int:
        return mask

    assert merged_score({"a": offers}, "restricted", best, score_of, 4) == 1
    monkeypatch.setattr(products, "MOST_ORDERS", 5)
    assert merged_score({"a": offers}, "restricted", best, score_of, 4) is None
    assert merged_score({"a": offers, "b": {}}, "restricted", hint(False), score_of, 4) == 0

    by_provider = {name: {name: offered} for name, offered in offers.items()}
    assert merged_score(by_provider, "restricted", best, score_of, 4) == 1
    # two hints with all nodes, and twice two with the two masks before
    monkeypatch.setattr(products, "MOST_PAIRS", 2 + 4 + 4)
    assert merged_score(by_provider, "restricted", best, score_of, 4) == 1
    monkeypatch.setattr(products, "MOST_PAIRS", 2 + 4 + 3)
    assert merged_score(by_provider, "restricted", best, score_of, 4) is None
    monkeypatch.setattr(products, "MOST_HINTS", 1)
    assert merged_score(by_provider, "restricted", best, score_of, 4) is None
