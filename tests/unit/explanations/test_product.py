"""The cross product of hints row by row, and the results that it can reach."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alignup import explain
from alignup.explanations.product import MOST_PAIRS, MOST_ROWS, Choice, product_of, reachable
from alignup.records import json_of
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints
from fakes.hint_providers import hint
from inputs.refusals import article, gpu_pod, node_of, wish

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
