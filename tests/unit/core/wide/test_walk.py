"""Beyond 8 nodes: interchangeable nodes are walked over as counts of each kind."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alignup import Merger
from alignup.topology_manager.hints import feasible_hints
from inputs.strategies import examples
from models.topology_manager import is_better

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Vector = tuple[int, ...]


class Kinds:
    """A machine whose nodes are of a few kinds: `kind[i]` is that of node i."""

    def __init__(self, kind: Sequence[int]) -> None:
        self.kind = kind
        self.members = [
            [node for node, k in enumerate(kind) if k == number] for number in range(max(kind) + 1)
        ]
        self.sizes = tuple(len(nodes) for nodes in self.members)

    def vectors(self, most: Vector) -> Iterator[Vector]:
        """Every number of nodes of each kind, up to so many."""
        return product(*(range(count + 1) for count in most))

    def lowest_mask(self, counts: Vector) -> int:
        """Fill each kind from its lowest node."""
        return sum(
            1 << node
            for nodes, count in zip(self.members, counts, strict=True)
            for node in nodes[:count]
        )


def holds(demands: Sequence[tuple[Vector, int]], counts: Vector) -> bool:
    return all(
        sum(count * amount for count, amount in zip(counts, amounts, strict=True)) >= request
        for amounts, request in demands
    )


def less(counts: Vector, subtracted: Vector) -> Vector:
    return tuple(a - b for a, b in zip(counts, subtracted, strict=True))


def plus(counts: Vector, added: Vector) -> Vector:
    return tuple(a + b for a, b in zip(counts, added, strict=True))


def best_by_counts(
    machine: Kinds,
    lists: Sequence[tuple[Sequence[tuple[Vector, int]], int]],
    distances: Sequence[Sequence[int]] | None,
) -> tuple[int, bool]:
    """Return the best result, looking at every vector of counts."""
    every = machine.lowest_mask(machine.sizes)
    feasible = [
        [v for v in machine.vectors(machine.sizes) if any(v) and holds(d, v)] for d, _ in lists
    ]
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

    narrowest = max(min(map(sum, vectors)) for vectors in feasible)
    for out in left_out:
        new = machine.lowest_mask(less(machine.sizes, out)), False
        if new[0] and (best is None or is_better(new, best, narrowest, distances)):
            best = new

    return best or (every, False)


@st.composite
def machines_of_kinds(draw: st.DrawFn) -> Any:
    """9 to 64 nodes of 1 to 3 kinds that lie in any order.

    With them lists of demands by kind, and distances by kind or none.
    """
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
            st.tuples(st.lists(demand, min_size=1, max_size=2), st.integers(0, 4)),
            min_size=1,
            max_size=3,
        )
    )
    distances = None
    if draw(st.booleans()):
        table = [[draw(st.sampled_from([10, 12, 20, 32])) for _ in sizes] for _ in sizes]
        distances = [
            [
                10 if a == b else table[min(kind[a], kind[b])][max(kind[a], kind[b])]
                for b in range(len(kind))
            ]
            for a in range(len(kind))
        ]

    return Kinds(kind), lists, distances


def check_kinds(case: Any) -> None:
    machine, lists, distances = case
    nodes = len(machine.kind)
    packed = [
        feasible_hints(
            nodes,
            [
                (None, [amounts[kind] for kind in machine.kind], request)
                for amounts, request in demands
            ],
            universe=(1 << nodes) - 1,
            preferred_size=size,
        )
        for demands, size in lists
    ]

    best = Merger(nodes, distances).merge(packed)

    assert best.exact
    assert (int(best.affinity or 0), best.preferred) == best_by_counts(machine, lists, distances)


@examples(60)
@given(machines_of_kinds())
def test_a_machine_of_a_few_kinds_of_nodes_is_searched_through(case: Any) -> None:
    """Up to 64 nodes: the answer is that of all vectors of counts, and exact.

    The counts are filled from the lowest nodes.
    """
    check_kinds(case)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(machines_of_kinds())
def test_many_machines_of_a_few_kinds_of_nodes(case: Any) -> None:
    check_kinds(case)


def test_of_interchangeable_nodes_the_lowest_are_taken() -> None:
    """64 nodes of two kinds: those of odd number have two CPUs, the others one."""
    amounts = [1 + node % 2 for node in range(64)]
    for request, expected in (
        (10, [1, 3, 5, 7, 9]),
        (11, [0, 1, 3, 5, 7, 9]),  # as good as six of two CPUs, and lower
        (64, list(range(1, 64, 2))),
        (96, list(range(64))),
    ):
        hints = feasible_hints(
            64,
            [(None, amounts, request)],
            universe=(1 << 64) - 1,
            preferred_size=len(expected),
        )

        assert hints.best() == (sum(1 << node for node in expected), True)
        assert Merger(64).merge([hints]).exact


def test_a_mask_reaches_all_that_it_has_to_touch() -> None:
    """Of two nodes that are handed on each must be in the mask, or one of those beside it."""
    hints = feasible_hints(
        60,
        [(None, [1] * 60, 3)],
        universe=(1 << 60) - 1,
        preferred_size=3,
        touching=[1 << 40, 1 << 50 | 1 << 51],
    )

    assert hints.best() == (1 | 1 << 40 | 1 << 50, True)
    assert hints.best_containing(1 << 51) == (1 | 1 << 40 | 1 << 51, True)


def test_a_larger_mask_is_preferred_if_it_touches_as_few_sockets_as_it_should() -> None:
    """Four sockets of five nodes, of which the first four nodes have no CPU.

    Nodes 4 and 5 are the lowest two with enough, and lie in two sockets.
    """
    hints = feasible_hints(
        20,
        [(None, [0] * 4 + [1] * 16, 2)],
        universe=(1 << 20) - 1,
        preferred_size=1,
        sockets=[0b11111 << start for start in range(0, 20, 5)],
        preferred_sockets=1,
    )

    assert hints.best() == (1 << 5 | 1 << 6, True)
    assert hints.best_containing(1 << 9) == (1 << 5 | 1 << 9, True)
    assert hints.best_containing(1 << 4) == (1 << 4 | 1 << 5, False)
