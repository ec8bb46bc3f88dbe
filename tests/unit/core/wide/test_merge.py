"""Beyond 8 nodes the merge gives what enumeration gives.

Up to 11 nodes against all masks, beyond against a few nodes padded with useless ones and against
vectors of counts on machines of a few kinds of nodes; long written lists; and the budget.
"""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alignup import BitMask, HintList, Merger, TopologyHint, make_policy
from alignup.topology_manager.hints import feasible_hints
from fakes.hint_providers import hint
from inputs.strategies import POLICIES, distance_matrices, examples, pairs, requests
from models import topology_manager as model

if TYPE_CHECKING:
    from collections.abc import Sequence


def sizes_of(masks: Any) -> Any:
    """Count the nodes of each mask of 40 nodes."""
    table = np.array([value.bit_count() for value in range(1 << 16)], "u1")
    return table[masks & 0xFFFF] + table[masks >> 16 & 0xFFFF] + table[masks >> 32]


def written(masks: Any) -> HintList:
    return HintList.from_arrays(masks, np.zeros(len(masks), bool))


def test_long_written_lists_are_folded_exactly() -> None:
    """Two lists of 1,000 hints: the answer is that of all pairs."""
    random = np.random.default_rng(1)
    first, second = (random.integers(1, 1 << 40, 1000, "u8") for _ in range(2))
    results = (first[:, None] & second).ravel()
    sizes, narrowest = sizes_of(results), max(sizes_of(first).min(), sizes_of(second).min())
    size = sizes[(sizes > 0) & (sizes <= narrowest)].max()

    best = Merger(40).merge([written(first), written(second)])

    assert best.exact
    assert int(best.affinity or 0) == int(results[sizes == size].min())


def test_very_long_written_lists_are_within_the_budget() -> None:
    """Two lists of 3,900 hints make 15 million ANDs, of which nothing need be kept."""
    random = np.random.default_rng(2)
    lists = [written(random.integers(1, 1 << 40, 3900, "u8")) for _ in range(2)]

    best = Merger(40).merge(lists)

    assert best.exact
    assert best == Merger(40).merge(lists[::-1])


def test_what_was_cut_short_is_never_called_exact() -> None:
    """Later searches that come to their end do not make up for one that did not.

    Nodes that all differ, far apart without a pattern, and several lists: no bound is exact.
    """
    random = Random(20)
    nodes = 40
    distances = [
        [10 if a == b else 11 + (a * b * 7 + a + b) % 13 for b in range(nodes)]
        for a in range(nodes)
    ]
    lists = []
    for _ in range(3):
        amounts = [random.randint(1, 50) for _ in range(nodes)]
        demand = (None, amounts, sum(amounts) // 2)
        lists.append(feasible_hints(nodes, [demand], universe=(1 << nodes) - 1, preferred_size=0))

    best = Merger(nodes, distances).merge(lists)

    assert not best.exact
    assert best.affinity


@pytest.mark.parametrize("distance", [(1 << 40) + 1, -1, -(1 << 63), 1 << 70])
@pytest.mark.parametrize("nodes", [2, 9])
def test_distances_whose_sums_could_overflow_are_refused(nodes: int, distance: int) -> None:
    rows = [[10] * nodes for _ in range(nodes)]
    rows[0][1] = distance

    with pytest.raises(ValueError, match="expected distances of 0 to 1099511627776, got"):
        Merger(nodes, rows)


@pytest.mark.parametrize("nodes", [4, 12])
def test_single_nodes_are_taken_from_any_list(nodes: int) -> None:
    """Described, written and any-node lists: the lowest node that all prefer."""
    everywhere = feasible_hints(
        nodes, [(None, [1] * nodes, 1)], universe=(1 << nodes) - 1, preferred_size=1
    )
    written = HintList([hint(True, 3), hint(True, 2), hint(False, 0), hint(True, 0, 1)])
    anywhere = HintList([TopologyHint(None, True)])
    merger = Merger(nodes)

    assert merger.merge([everywhere, written, anywhere], single_nodes=True) == hint(True, 2)
    assert merger.merge([anywhere, anywhere], single_nodes=True) == hint(True, *range(nodes))
    assert merger.merge([written, HintList([hint(True, 1)])], single_nodes=True) == hint(
        False, *range(nodes)
    )
    assert merger.merge([written, HintList.empty()], single_nodes=True) == hint(
        False, *range(nodes)
    )


def described(
    numa_nodes: int, requested: Sequence[tuple[list[Any], dict[str, Any]]]
) -> list[dict[str, HintList]]:
    return [
        {"resource": feasible_hints(numa_nodes, demands, **options)}
        for demands, options in requested
    ]


@st.composite
def wide_cases(draw: st.DrawFn, largest: int) -> Any:
    """Nine or more nodes; described lists, a written one, and providers without a preference."""
    numa_nodes = draw(st.integers(9, largest))
    providers: list[Any] = described(
        numa_nodes, draw(st.lists(requests(numa_nodes), min_size=1, max_size=3))
    )
    if draw(st.integers(0, 3)) == 0:
        providers.append({"listed": model.hint_list(draw(st.lists(pairs(numa_nodes), max_size=5)))})
    if draw(st.integers(0, 4)) == 0:
        providers.append(None)
    return numa_nodes, providers, draw(st.none() | distance_matrices(numa_nodes))


def check_wide(policy: str, case: Any) -> None:
    numa_nodes, providers, distances = case
    merged = model.merged(policy, numa_nodes, providers, distances, model.best_of_folding)

    assert model.compiled(policy, numa_nodes, providers[::-1], distances) == merged


@settings(examples(60), suppress_health_check=list(HealthCheck))
@given(st.sampled_from(POLICIES), wide_cases(largest=9))
def test_a_wide_merge_is_that_of_enumeration(policy: str, case: Any) -> None:
    """Lists that are only described give the answer that all their masks would give."""
    check_wide(policy, case)


@pytest.mark.slow
@settings(max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(POLICIES), wide_cases(largest=11))
def test_many_wide_merges_are_those_of_enumeration(policy: str, case: Any) -> None:
    check_wide(policy, case)


def spread(mask: int, at: Sequence[int]) -> int:
    """Return a mask whose node i lies at position `at[i]`."""
    return sum(1 << place for node, place in enumerate(at) if mask >> node & 1)


def spread_places(places: Sequence[int] | None, at: Sequence[int]) -> list[int]:
    """Return the places of a demand where its nodes lie at `at`; None: each node is a place."""
    if places is None:
        return [1 << place for place in at]
    return [spread(place, at) for place in places]


def padded(
    requested: tuple[list[Any], dict[str, Any]], numa_nodes: int, at: Sequence[int], *, strict: bool
) -> HintList:
    """Return the hints of a request with its nodes at `at`; all other nodes hold nothing.

    Without `strict` the others may be used all the same, as nodes without CPUs may by the CPU
    manager.
    """
    demands, options = requested
    useless = (1 << numa_nodes) - 1 & ~spread(-1, at)
    moved = {
        **options,
        "universe": spread(options["universe"], at) | (0 if strict else useless),
        "alone": spread(options.get("alone", 0), at),
        **{
            name: [spread(mask, at) for mask in options.get(name, ())]
            for name in ("touching", "sockets", "groups", "extra")
        },
    }

    moved_demands = [
        (spread_places(places, at), amounts, request) for places, amounts, request in demands
    ]
    return feasible_hints(numa_nodes, moved_demands, **moved)


@st.composite
def padded_cases(draw: st.DrawFn) -> Any:
    """Requests on 2 to 7 nodes, and where these nodes lie among 12 to 64."""
    few = draw(st.integers(2, 7))
    requested = draw(st.lists(requests(few), min_size=1, max_size=3))
    numa_nodes = draw(st.integers(12, 64))
    at = sorted(draw(st.sets(st.integers(0, numa_nodes - 1), min_size=few, max_size=few)))
    strict = [
        True,
        *draw(st.lists(st.booleans(), min_size=len(requested) - 1, max_size=len(requested) - 1)),
    ]
    return requested, numa_nodes, at, strict, draw(st.none() | distance_matrices(few))


def padded_answer(
    policy: str,
    requested: Any,
    numa_nodes: int,
    at: Sequence[int],
    strict: Sequence[bool],
    distances: Any,
) -> tuple[set[int] | None, bool, bool]:
    """Return the merged hint as a set of nodes of the small machine; "every node" stays that."""
    rows = None
    if distances is not None:
        rows = [
            [10 if row == column else 99 for column in range(numa_nodes)]
            for row in range(numa_nodes)
        ]
        for row, row_distances in zip(at, distances, strict=True):
            for column, distance in zip(at, row_distances, strict=True):
                rows[row][column] = distance

    options = {"max-allowable-numa-nodes": "64"}
    if rows is not None:
        options["prefer-closest-numa-nodes"] = "true"

    lists = [
        padded(request, numa_nodes, at, strict=only)
        for request, only in zip(requested, strict, strict=True)
    ]
    best, admit = make_policy(policy, numa_nodes, rows, options).merge(
        [{"resource": hints} for hints in lists]
    )
    if best.affinity is None or best.affinity == BitMask().fill(numa_nodes):
        return None, best.preferred, admit

    return {at.index(bit) for bit in best.affinity}, best.preferred, admit


def check_padded(policy: str, case: Any) -> None:
    requested, numa_nodes, at, strict, distances = case
    few = len(at)
    if not padded(requested[0], few, range(few), strict=True):
        strict = [True] * len(strict)  # nothing else would keep useless nodes out
    small = padded_answer(policy, requested, few + 1, range(few), strict, distances)

    assert padded_answer(policy, requested, numa_nodes, at, strict, distances) == small


@settings(examples(100), suppress_health_check=list(HealthCheck))
@given(st.sampled_from(POLICIES[1:]), padded_cases())
def test_useless_nodes_change_nothing(policy: str, case: Any) -> None:
    """On 12 to 64 nodes, of which all but a few are useless, the answer is the small machine's."""
    check_padded(policy, case)


@pytest.mark.slow
@settings(max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(POLICIES[1:]), padded_cases())
def test_useless_nodes_never_change_anything(policy: str, case: Any) -> None:
    check_padded(policy, case)


def test_a_wide_list_may_meet_a_narrow_one() -> None:
    """A list whose masks fit 8 nodes merges with one that needs more, in either order."""
    narrow = {"a": HintList(model.hint_list([(1, True), (3, False)]))}
    wide = {"b": HintList(model.hint_list([(1 << 20 | 1, False), (1, True), (1 << 20, True)]))}
    policy = make_policy("restricted", 24, options={"max-allowable-numa-nodes": "24"})

    for providers in ([narrow, wide], [wide, narrow]):
        best, admit = policy.merge(providers)
        assert (int(best.affinity), best.preferred, admit) == (1, True, True)


def test_a_small_stack_is_enough() -> None:
    """Threads may have less than the main one: what a search needs is not on the stack."""
    distances = [
        [10 if row == column else 20 + row * column % 7 for column in range(20)]
        for row in range(20)
    ]
    hints = feasible_hints(20, [(None, [1] * 20, 4)], universe=(1 << 20) - 1, preferred_size=3)
    results: list[TopologyHint] = []
    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(
            target=lambda: results.append(Merger(20, distances).merge([hints, hints]))
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)

    assert results == [hint(False, 0, 1, 7, 14)]


def test_lists_too_long_to_fold_are_folded_in_part() -> None:
    """The answer then is not exact, but every list has a part in it."""
    random = Random(7)
    long = [
        HintList(
            [
                TopologyHint(BitMask.from_int(random.getrandbits(64) | 1 << 39), False)
                for _ in range(4100)
            ]
        )
        for _ in range(2)
    ]

    best = Merger(64).merge([*long, HintList([hint(False, 39)])])

    assert best == hint(False, 39)
    assert not best.exact


def test_lists_that_take_all_steps_leave_some_to_the_next_one() -> None:
    """Two lists of 16,384 hints are 268 million ANDs, more than are made.

    All that came of them meet the third list.
    """
    long = written(np.arange(1 << 14, dtype="u8") | np.uint64(1 << 39))
    nodes = (*range(10), 39)

    best = Merger(40).merge([long, long, HintList([hint(False, *nodes)])])

    assert best == hint(False, *nodes)
    assert not best.exact
