"""Where what is left cannot serve what is asked for, nothing is tried."""

from __future__ import annotations

import pytest

from alignup.core.claims.search import search
from inputs.search_questions import one_request, several_requests


def test_bounds_and_failed_states_make_a_hopeless_walk_short() -> None:
    """Ten devices of ten kinds with one value for two: no three of one value are there."""
    tables = one_request(devices=10, count=3)
    tables.constraints, tables.is_distinct, tables.covers = [(0, None)], [False], [[True]]
    tables.values, tables.is_alone = [[1 << device // 2 for device in range(10)]], [[False] * 10]
    tables.faults = [[0] * 10]
    walked = search(tables, prune=False)
    assert walked[:2] == search(tables, easy_steps=0)[:2] == ("none", [])
    assert search(tables, easy_steps=0)[2] <= 3 < walked[2]


@pytest.mark.parametrize(("slices", "outcome"), [(2, "none"), (3, "found")])
def test_counters_that_are_too_few_end_the_walk_at_once(slices: int, outcome: str) -> None:
    """Each of ten devices takes a slice of the chip, and three are asked for."""
    tables = one_request(devices=10, count=3)
    tables.counters, tables.families = [slices], [0]
    tables.uses = [[(0, 1)]] * 10
    walked, bounded = search(tables, prune=False), search(tables, easy_steps=0)

    assert walked[:2] == bounded[:2]
    assert bounded[0] == outcome
    assert outcome == "found" or bounded[2] <= 3 < walked[2]


@pytest.mark.parametrize(("devices", "outcome"), [(5, "none"), (6, "found")])
def test_requests_that_share_too_few_devices_end_the_walk_at_once(
    devices: int, outcome: str
) -> None:
    """Each of two requests could have its three devices, and both together could not."""
    tables = several_requests(devices, 3, 3)
    walked, bounded = search(tables, prune=False), search(tables, easy_steps=0)

    assert walked[:2] == bounded[:2]
    assert bounded[0] == outcome
    assert outcome == "found" or bounded[2] <= 3 < walked[2]


def test_a_request_that_may_have_other_devices_leaves_them_to_the_next() -> None:
    """The bound is a flow: six devices suit the first request, only three of them the second."""
    tables = several_requests(6, 3, 3)
    tables.matches[1] = [1, 1, 1, 0, 0, 0]

    assert search(tables, easy_steps=0)[:2] == search(tables, prune=False)[:2]
    assert search(tables, easy_steps=0)[1] == [(0, 3), (0, 4), (0, 5), (1, 0), (1, 1), (1, 2)]


def test_counters_are_added_up_over_all_requests() -> None:
    """Two light devices and a heavy one take five of four slices, though any two could be had."""
    tables = several_requests(8, 2, 1)
    tables.matches = [[1] * 4 + [0] * 4, [0] * 4 + [1] * 4]
    tables.counters, tables.families = [4], [0]
    tables.uses = [[(0, 1)]] * 4 + [[(0, 3)]] * 4
    walked, bounded = search(tables, prune=False), search(tables, easy_steps=0)

    assert walked[:2] == bounded[:2] == ("none", [])
    assert bounded[2] <= 3 < walked[2]
    tables.counters = [5]
    assert search(tables, easy_steps=0)[:2] == ("found", [(0, 0), (0, 1), (1, 4)])
