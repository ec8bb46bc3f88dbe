"""What described lists have in common: the nodes outside are divided among them."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from alignup import Merger
from alignup.topology_manager.hints import feasible_hints
from fakes.hint_providers import hint
from inputs.strategies import seeds
from models.topology_manager import is_better, nodes_of

NODES = 9


def can_leave_out(amounts: list[int], request: int, mask: int) -> bool:
    """Return whether a list holds its request without some nodes, and not without all."""
    rest = [amount for node, amount in enumerate(amounts) if not mask >> node & 1]
    return bool(rest) and sum(rest) >= request


def can_divide(demands: list[tuple[list[int], int]], outside: int) -> bool:
    """Return whether nodes can be divided among lists that each do without their part."""
    (amounts, request), *others = demands
    if not others:
        return can_leave_out(amounts, request, outside)

    nodes = nodes_of(outside)
    for count in range(len(nodes) + 1):
        for part in combinations(nodes, count):
            mask = sum(1 << node for node in part)
            if can_leave_out(amounts, request, mask) and can_divide(others, outside & ~mask):
                return True

    return False


@pytest.mark.parametrize("seed", seeds(4, 24))
def test_what_lists_have_in_common_is_found_by_dividing_what_is_outside(seed: int) -> None:
    """No mask is preferred; every set of nodes outside, and every way to divide it, is tried."""
    random = Random(seed)
    demands = []
    for _ in range(random.choice([2, 2, 3])):
        amounts = [random.choice([0, 1, 2, 5]) for _ in range(NODES)]
        demands.append((amounts, random.randint(1, max(1, sum(amounts) - 2))))

    every_node = (1 << NODES) - 1
    sizes = [
        min(
            (
                mask.bit_count()
                for mask in range(1, 1 << NODES)
                if can_leave_out(amounts, request, every_node & ~mask)
            ),
            default=0,
        )
        for amounts, request in demands
    ]
    best = None
    for mask in range(1, 1 << NODES):
        new = mask, False
        if best is not None and not is_better(new, best, max(sizes), None):
            continue
        if can_divide(demands, every_node & ~mask):
            best = new

    lists = [
        feasible_hints(NODES, [(None, amounts, request)], universe=every_node, preferred_size=-1)
        for amounts, request in demands
    ]
    merged = Merger(NODES).merge(lists)

    assert merged.exact
    assert (int(merged.affinity), merged.preferred) == (best or (every_node, False))


def test_lists_leave_out_each_what_it_can_spare() -> None:
    """Of 12 nodes the first list can spare node 3 only, the second one node 5 only.

    Either alone comes to 11 nodes, the widest that is needed; without node 5 the mask is lower.
    """
    everything = (1 << 12) - 1
    lists = []
    for spare in (3, 5):
        amounts = [int(node != spare) for node in range(12)]
        lists.append(
            feasible_hints(12, [(None, amounts, 11)], universe=everything, preferred_size=-1)
        )

    assert Merger(12).merge(lists) == hint(False, *(node for node in range(12) if node != 5))


def test_a_list_may_leave_out_a_node_that_is_all_it_can_spare() -> None:
    """Each list can do without one node of nine; both can agree on the same one."""
    lists = [
        feasible_hints(9, [(None, [2] * 9, 16)], universe=(1 << 9) - 1, preferred_size=-1)
        for _ in range(2)
    ]
    assert Merger(9).merge(lists) == hint(False, *range(8))


def test_a_division_that_is_short_by_one_is_none() -> None:
    """The first list can spare 5, the second one 8, and each needs four nodes.

    Without {3, 5, 6, 7, 8}: the first does without 3, 5 and 6, which are 3, the second without 7
    and 8, which are 8. Without {4, 5, 6, 7, 8} the mask would be lower; but the second list would
    have to do without 4 as well, which is 9.
    """
    demands = [([1, 9, 1, 1, 7, 1, 1, 9, 9], 34), ([7, 1, 7, 1, 1, 1, 7, 1, 7], 25)]
    lists = [
        feasible_hints(NODES, [(None, amounts, request)], universe=511, preferred_size=-1)
        for amounts, request in demands
    ]

    assert Merger(NODES).merge(lists) == hint(False, 0, 1, 2, 4)
