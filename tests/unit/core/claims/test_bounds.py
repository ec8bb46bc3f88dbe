"""Where what is left cannot serve what is asked for, nothing is tried."""

from __future__ import annotations

from alignup.core.claims.search import search
from inputs.search_questions import one_request


def test_bounds_and_failed_states_make_a_hopeless_walk_short() -> None:
    """Ten devices of ten kinds with one value for two: no three of one value are there."""
    tables = one_request(devices=10, count=3)
    tables.constraints, tables.is_distinct, tables.covers = [(0, None)], [False], [[True]]
    tables.values, tables.is_alone = [[1 << device // 2 for device in range(10)]], [[False] * 10]
    walked = search(tables, prune=False)
    assert walked[:2] == search(tables, easy_steps=0)[:2] == ("none", [])
    assert search(tables, easy_steps=0)[2] <= 3 < walked[2]
