"""Even splits, and the sets of NUMA nodes over which they work."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.koordinator.scheduling import Demand, masks_by_size, offered_hints, split, utilisations

AMOUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=6)


def test_masks_come_by_size_then_in_lexicographic_order():
    assert list(masks_by_size(3)) == [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111]


def test_too_many_nodes_are_refused():
    with pytest.raises(InputError, match="at most 16 NUMA nodes, got 17"):
        list(masks_by_size(17))


def test_the_emptiest_of_free_nodes_goes_first_and_the_rest_take_more():
    demand = Demand("cpu", (10, 10, 10), (1, 10, 6), 12)
    assert split([demand], 0b111).amounts == {0: {"cpu": 1}, 1: {"cpu": 6}, 2: {"cpu": 5}}


@given(AMOUNTS, st.integers(0, 300))
def test_a_split_gives_what_was_asked_or_says_that_it_does_not(free, request):
    """No node gives more than it has; the parts make the request unless the resource is named."""
    made = split([Demand("cpu", tuple(free), tuple(free), request)], (1 << len(free)) - 1)
    given_amounts = [amounts["cpu"] for amounts in made.amounts.values()]
    assert all(amounts["cpu"] <= free[node] for node, amounts in made.amounts.items())
    assert (sum(given_amounts) == request) == (made.insufficient == ())
    assert sum(given_amounts) <= request


def test_utilisation_leaves_out_what_the_nodes_do_not_have():
    demands = [Demand("cpu", (8, 8), (8, 4), 2), Demand("memory", (0, 0), (0, 0), 0)]
    assert utilisations(demands, 0b11) == [(6, 16)]


def offers(demands, nodes, *, skips=lambda _mask: False, all_preferred=False):
    profile = SimpleNamespace(score=lambda *_: 7, excludes=lambda mask, _: skips(mask))
    return offered_hints(demands, nodes, profile, None, all_preferred=all_preferred)


def test_a_node_without_the_resource_is_in_no_hint():
    hints_by_resource = offers(
        [Demand("cpu", (4, 4), (4, 0), 2), Demand("memory", (9, 9), (9, 9), 0)], 2
    )
    assert {
        resource: [hint.mask for hint in hints] for resource, hints in hints_by_resource.items()
    } == {"cpu": [1]}


def test_the_smallest_size_is_preferred():
    demand = Demand("cpu", (4, 4, 4), (4, 4, 4), 8)
    hints = offers([demand], 3)["cpu"]
    assert [(hint.mask, hint.preferred) for hint in hints] == [
        (3, True),
        (5, True),
        (6, True),
        (7, False),
    ]
    assert all(hint.preferred for hint in offers([demand], 3, all_preferred=True)["cpu"])
    assert [
        hint.mask for hint in offers([demand], 3, skips=lambda mask: bool(mask & 1))["cpu"]
    ] == [6]


def test_a_request_that_fits_nowhere_has_no_hints():
    assert offers([Demand("cpu", (4,), (1,), 2)], 1) == {"cpu": []}
