"""What the search for devices takes back when it turns round, and what it leaves out.

Whole answers are in the conformance tests.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from alignup.core.claims.search import search
from inputs.claims_tables import random_tables
from inputs.search_questions import one_request
from models.claims import TooLongError, plain_search


def compare(seeds: range) -> dict[str, int]:
    """Compare searches that leave out as much as they can with the plain walk.

    Return how often each outcome came.
    """
    outcomes: dict[str, int] = {}
    for seed in seeds:
        tables = random_tables(Random(seed))
        try:
            expected = plain_search(tables, 5_000)
        except TooLongError:
            continue
        assert search(tables, easy_steps=0)[:2] == expected, seed
        assert search(tables, easy_steps=1 << 30, most_memory=seed % 2 << 15)[:2] == expected, seed
        assert search(tables, prune=False)[:2] == expected, seed
        outcomes[expected[0]] = outcomes.get(expected[0], 0) + 1
    return outcomes


def test_dense_tables_have_the_answer_of_the_plain_walk() -> None:
    outcomes = compare(range(600))
    assert outcomes["found"] > 100
    assert outcomes["none"] > 100


@pytest.mark.slow
def test_thousands_of_dense_tables_have_the_answer_of_the_plain_walk() -> None:
    assert sum(compare(range(600, 20_000)).values()) > 10_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", [0, 1]),
        ("classes", [0, -1, 2]),
        ("first_way", [0, 2]),
        ("first_request", [1, 1]),
        ("first_request", [0, 0]),
        ("matches", [[1, 1]]),
        ("taken", [False] * 4),
        ("uses", [[(0, 1)], [], []]),
        ("needs", [[(1,), (), ()]]),
        ("constraints", [(0, None)]),
        ("claims", [None] * 65),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(name: str, value: list[Any]) -> None:
    tables = one_request(devices=3, count=1)
    assert search(tables)[:2] == ("found", [(0, 0)])
    vars(tables)[name] = value
    with pytest.raises(ValueError, match="expected"):
        search(tables)


def test_a_claim_that_a_request_has_beyond_the_last_is_refused() -> None:
    tables = one_request(devices=3, count=1)
    tables.ways[0].claim = 1
    with pytest.raises(ValueError, match="expected numbers from 0 up to, not with, 1, got 1"):
        search(tables)
