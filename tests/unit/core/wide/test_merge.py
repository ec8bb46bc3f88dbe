"""Beyond 8 nodes: machines of a few kinds of nodes against their vectors of counts, long written lists, the budget."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alignup import HintList, Merger, TopologyHint
from alignup.topology_manager.hints import feasible_hints
from fakes import hint
from model import is_better

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Vector = tuple[int, ...]


class Kinds:
    """A machine whose nodes are of a few kinds: `kind[i]` is that of node i."""

    def __init__(self, kind: Sequence[int]) -> None:
        self.kind = kind
        self.members = [[node for node, k in enumerate(kind) if k == one] for one in range(max(kind) + 1)]
        self.sizes = tuple(len(nodes) for nodes in self.members)

    def vectors(self, most: Vector) -> Iterator[Vector]:
        """Every number of nodes of each kind, up to so many."""
        return product(*(range(count + 1) for count in most))

    def lowest_mask(self, counts: Vector) -> int:
        """Fill each kind from its lowest node."""
        return sum(
            1 << node for nodes, count in zip(self.members, counts, strict=True) for node in nodes[:count]
        )


def holds(demands: Sequence[tuple[Vector, int]], counts: Vector) -> bool:
    return all(
        sum(count * amount for count, amount in zip(counts, amounts, strict=True)) >= request
        for amounts, request in demands
    )


def less(one: Vector, other: Vector) -> Vector:
    return tuple(a - b for a, b in zip(one, other, strict=True))


def plus(one: Vector, other: Vector) -> Vector:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def best_by_counts(
    machine: Kinds,
    lists: Sequence[tuple[Sequence[tuple[Vector, int]], int]],
    distances: Sequence[Sequence[int]] | None,
) -> tuple[int, bool]:
    """Return the best result, looking at every vector of counts."""
    every = machine.lowest_mask(machine.sizes)
    feasible = [[v for v in machine.vectors(machine.sizes) if any(v) and holds(d, v)] for d, _ in lists]
    best = None
    for counts in set.intersection(*map(set, feasible)):
        if all(sum(counts) == size for _, size in lists):
            new = machine.lowest_mask(counts), True
            if best is None or is_better(new, best, 0, distances):
                best = new
    if best or not all(feasible):
        return best or (every, False)
    left_out = {tuple(0 for _ in machine.sizes)}
    for vectors in feasible:
        parts = [less(machine.sizes, v) for v in vectors]
        sums = {plus(out, part) for out in left_out for part in parts}
        left_out = {out for out in sums if min(less(machine.sizes, out)) >= 0}
    wanted = max(min(map(sum, vectors)) for vectors in feasible)
    for out in left_out:
        new = machine.lowest_mask(less(machine.sizes, out)), False
        if new[0] and (best is None or is_better(new, best, wanted, distances)):
            best = new
    return best or (every, False)


@st.composite
def machines_of_kinds(draw: st.DrawFn) -> Any:
    """9 to 64 nodes of 1 to 3 kinds that lie in any order, lists of demands by kind, distances by kind or none."""
    sizes = draw(
        st.one_of(
            st.just((2, 32)),
            st.tuples(st.integers(9, 64)),
            st.tuples(st.integers(4, 10), st.integers(5, 12)),
            st.tuples(st.integers(1, 4), st.integers(4, 6), st.integers(4, 6)),
        )
    )
    kind = draw(st.permutations([k for k, size in enumerate(sizes) for _ in range(size)]))
    amounts = st.tuples(*(st.integers(0, 4) for _ in sizes))
    demand = st.tuples(amounts, st.integers(0, 40))
    lists = draw(
        st.lists(
            st.tuples(st.lists(demand, min_size=1, max_size=2), st.integers(0, 4)), min_size=1, max_size=3
        )
    )
    distances = None
    if draw(st.booleans()):
        table = [[draw(st.sampled_from([10, 12, 20, 32])) for _ in sizes] for _ in sizes]
        distances = [
            [10 if a == b else table[min(kind[a], kind[b])][max(kind[a], kind[b])] for b in range(len(kind))]
            for a in range(len(kind))
        ]
    return Kinds(kind), lists, distances


def check_kinds(case: Any) -> None:
    machine, lists, distances = case
    nodes = len(machine.kind)
    packed = [
        feasible_hints(
            nodes,
            [(None, [amounts[kind] for kind in machine.kind], request) for amounts, request in demands],
            universe=(1 << nodes) - 1,
            preferred_size=size,
        )
        for demands, size in lists
    ]

    best = Merger(nodes, distances).merge(packed)

    assert best.exact
    assert (int(best.affinity or 0), best.preferred) == best_by_counts(machine, lists, distances)


@settings(max_examples=60, deadline=None)
@given(machines_of_kinds())
def test_a_machine_of_a_few_kinds_of_nodes_is_searched_through(case: Any) -> None:
    """Up to 64 nodes: the answer is that of all vectors of counts, filled from the lowest nodes, and exact."""
    check_kinds(case)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(machines_of_kinds())
def test_many_machines_of_a_few_kinds_of_nodes(case: Any) -> None:
    check_kinds(case)


def sizes_of(masks: Any) -> Any:
    """Count the nodes of each mask of 40 nodes."""
    table = np.array([value.bit_count() for value in range(1 << 16)], "u1")
    return table[masks & 0xFFFF] + table[masks >> 16 & 0xFFFF] + table[masks >> 32]


def written(masks: Any) -> HintList:
    return HintList.from_arrays(masks, np.zeros(len(masks), bool))


def test_long_written_lists_are_folded_exactly() -> None:
    """Two lists of 1,000 hints: the answer is that of all pairs."""
    random = np.random.default_rng(1)
    one, other = (random.integers(1, 1 << 40, 1000, "u8") for _ in range(2))
    results = np.unique(one[:, None] & other)
    sizes, wanted = sizes_of(results), max(sizes_of(one).min(), sizes_of(other).min())
    size = sizes[(sizes > 0) & (sizes <= wanted)].max()

    best = Merger(40).merge([written(one), written(other)])

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
        [10 if a == b else 11 + (a * b * 7 + a + b) % 13 for b in range(nodes)] for a in range(nodes)
    ]
    lists = []
    for _ in range(3):
        amounts = [random.randint(1, 50) for _ in range(nodes)]
        demand = (None, amounts, sum(amounts) // 2)
        lists.append(feasible_hints(nodes, [demand], universe=(1 << nodes) - 1, preferred_size=0))

    best = Merger(nodes, distances).merge(lists)

    assert not best.exact
    assert best.affinity


@pytest.mark.parametrize("distance", [(1 << 40) + 1, -(1 << 63), 1 << 70])
@pytest.mark.parametrize("nodes", [2, 9])
def test_distances_whose_sums_could_overflow_are_refused(nodes: int, distance: int) -> None:
    rows = [[10] * nodes for _ in range(nodes)]
    rows[0][1] = distance

    with pytest.raises(ValueError, match="expected distances of at most 1099511627776, got"):
        Merger(nodes, rows)


@pytest.mark.parametrize("nodes", [4, 12])
def test_single_nodes_are_taken_from_any_list(nodes: int) -> None:
    """Described, written and any-node lists: the lowest node that all prefer."""
    everywhere = feasible_hints(nodes, [(None, [1] * nodes, 1)], universe=(1 << nodes) - 1, preferred_size=1)
    some = HintList([hint(True, 3), hint(True, 2), hint(False, 0), hint(True, 0, 1)])
    anywhere = HintList([TopologyHint(None, True)])
    merger = Merger(nodes)

    assert merger.merge([everywhere, some, anywhere], single_nodes=True) == hint(True, 2)
    assert merger.merge([anywhere, anywhere], single_nodes=True) == hint(True, *range(nodes))
    assert merger.merge([some, HintList([hint(True, 1)])], single_nodes=True) == hint(False, *range(nodes))
    assert merger.merge([some, HintList.empty()], single_nodes=True) == hint(False, *range(nodes))
