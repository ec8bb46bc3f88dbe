"""Hypothesis strategies for hints.

Pairs, lists, requests that providers turn into lists, distances.

And how many examples a property is tried with, and seeds a test.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

QUICK = 20
"""Examples of a property, where nothing else is said.

The profile `nightly` tries sixty times as many.
"""

POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


def examples(count: int) -> settings:
    """Try a property with a third of `count` examples in the plain suite.

    By night it is tried with 20 times `count`.
    """
    return settings(
        max_examples=count * settings.default.max_examples // (3 * QUICK), deadline=None
    )


def seeds(few: int, many: int) -> list[Any]:
    """Return the seeds below `many`: all from `few` on are tried by the nightly suite only."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(few, many))]


def counts(few: int, many: int) -> list[Any]:
    """Return how many random cases a test tries: `few`, and `many` in the nightly suite only."""
    return [few, pytest.param(many, marks=pytest.mark.slow)]


def masks(numa_nodes: int) -> st.SearchStrategy[int]:
    """Non-empty masks of a machine."""
    return st.integers(1, (1 << numa_nodes) - 1)


def pairs(bits: int) -> st.SearchStrategy[tuple[int | None, bool]]:
    """Hints with any mask of so many bits, the empty one too, or with none."""
    return st.tuples(st.none() | st.integers(0, (1 << bits) - 1), st.booleans())


def distance_matrices(numa_nodes: int) -> st.SearchStrategy[list[list[int]]]:
    """Few different values, so that sums tie; not symmetric, as some firmware reports them."""
    row = st.lists(st.sampled_from([10, 12, 16, 21, 32]), min_size=numa_nodes, max_size=numa_nodes)
    return st.lists(row, min_size=numa_nodes, max_size=numa_nodes)


@st.composite
def demands(draw: st.DrawFn, numa_nodes: int) -> tuple[list[int] | None, list[int], int]:
    """Draw amounts and a request that they may or may not hold.

    The amounts are in nodes, or near places of up to three nodes.
    """
    if draw(st.booleans()):
        places = None
        amounts = draw(st.lists(st.integers(0, 4), min_size=numa_nodes, max_size=numa_nodes))
    else:
        few = st.sets(st.integers(0, numa_nodes - 1), max_size=3)
        places = [sum(1 << node for node in nodes) for nodes in draw(st.lists(few, max_size=6))]
        amounts = draw(st.lists(st.integers(1, 3), min_size=len(places), max_size=len(places)))
    return places, amounts, draw(st.integers(0, max(1, sum(amounts))))


@st.composite
def requests(draw: st.DrawFn, numa_nodes: int) -> tuple[list[Any], dict[str, Any]]:
    """What `feasible_hints` takes beside the number of nodes."""
    everything = (1 << numa_nodes) - 1
    options: dict[str, Any] = {
        "universe": draw(st.just(everything) | st.integers(0, everything)),
        "preferred_size": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        options["touching"] = draw(st.lists(masks(numa_nodes), max_size=2))

    if draw(st.booleans()):
        width = draw(st.integers(1, 4))
        options["sockets"] = [
            everything & ((1 << width) - 1) << start for start in range(0, numa_nodes, width)
        ]
        options["preferred_sockets"] = draw(st.integers(-1, 2))

    if draw(st.booleans()):
        options["alone"] = draw(st.integers(0, everything))
        options["groups"] = draw(st.lists(masks(numa_nodes), max_size=2, unique=True))

    if draw(st.integers(0, 4)) == 0:
        options["extra"] = draw(st.lists(masks(numa_nodes), max_size=2, unique=True))

    return draw(st.lists(demands(numa_nodes), max_size=2)), options


@st.composite
def cases(draw: st.DrawFn, smallest: int, largest: int) -> tuple[int, list[Any], dict[str, Any]]:
    """A number of nodes and a request."""
    numa_nodes = draw(st.integers(smallest, largest))
    return numa_nodes, *draw(requests(numa_nodes))
