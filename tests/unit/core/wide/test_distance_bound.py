"""Beyond 8 nodes: of the smallest sets the nearest wins, and of equally near ones the lowest."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from alignup.topology_manager.hints import feasible_hints
from alignup.topology_manager.policy import make_policy
from inputs.strategies import seeds
from models import topology_manager as model

OPTIONS = {"max-allowable-numa-nodes": "64", "prefer-closest-numa-nodes": "true"}


@pytest.mark.parametrize("seed", seeds(20, 90))
def test_of_equally_near_wide_masks_the_lowest_wins(seed: int) -> None:
    """Distances are of two, a few or many values.

    So bounds are rarely exact, and masks are found by improving.
    """
    random = Random(seed)
    values = [(11, 12), (11, 12, 13, 17), tuple(range(11, 60))][seed % 3]
    numa_nodes = random.choice([9, 10])
    distances = [[10] * numa_nodes for _ in range(numa_nodes)]
    for row in range(numa_nodes):
        for column in range(row):
            distances[row][column] = distances[column][row] = random.choice(values)

    amounts = [random.choice([1, 1, 2, 3]) for _ in range(numa_nodes)]
    request = random.randint(3, min(12, sum(amounts)))
    enough = [
        mask
        for mask in range(1 << numa_nodes)
        if sum(amounts[node] for node in model.nodes_of(mask)) >= request
    ]
    size = min(mask.bit_count() for mask in enough)
    nearest = [(model.apart(mask, distances), mask) for mask in enough if mask.bit_count() == size]
    hints = feasible_hints(
        numa_nodes, [(None, amounts, request)], universe=(1 << numa_nodes) - 1, preferred_size=size
    )
    best, _ = make_policy("restricted", numa_nodes, distances, OPTIONS).merge([{"cpu": hints}])

    assert (int(best.affinity), best.preferred) == (min(nearest)[1], True)


def boards_and_racks(numa_nodes: int) -> list[list[int]]:
    """Return distances of a hierarchy: boards of 4 nodes, and racks of 16."""

    def distance(node: int, neighbour: int) -> int:
        if node == neighbour:
            return 10
        if node // 4 == neighbour // 4:
            return 11
        return 20 if node // 16 == neighbour // 16 else 40

    return [
        [distance(node, neighbour) for neighbour in range(numa_nodes)] for node in range(numa_nodes)
    ]


@pytest.mark.parametrize(
    ("size", "empty", "expected"),
    [
        (1, (), [0]),
        (4, (), [0, 1, 2, 3]),
        (4, (2,), [4, 5, 6, 7]),
        (6, (), [0, 1, 2, 3, 4, 5]),
        (6, (1,), [0, 2, 4, 5, 6, 7]),  # a whole board and two of the next, not three and three
        (16, (5,), list(range(16, 32))),  # only whole racks need no second one
        (17, (), list(range(17))),
        (5, (*range(16), 17, 18, 19, 21, 22, 23), [16, 24, 25, 26, 27]),
    ],
)
def test_in_a_hierarchy_the_nearest_nodes_are_found_exactly(
    size: int, empty: tuple[int, ...], expected: list[int]
) -> None:
    """By hand, on 64 nodes with a CPU each but the empty ones."""
    amounts = [int(node not in empty) for node in range(64)]
    hints = feasible_hints(64, [(None, amounts, size)], universe=(1 << 64) - 1, preferred_size=size)
    best, _ = make_policy("restricted", 64, boards_and_racks(64), OPTIONS).merge([{"cpu": hints}])

    assert list(best.affinity) == expected
    assert (best.preferred, best.exact) == (True, True)


def test_distances_that_differ_by_direction_count_both_ways() -> None:
    """From 0 to 1 it is near and back it is far; 2 and 3 are the nearest pair by both."""
    distances = [[10 if node == far else 30 for far in range(9)] for node in range(9)]
    distances[0][1] = 11
    distances[2][3] = distances[3][2] = 20
    hints = feasible_hints(9, [(None, [1] * 9, 2)], universe=(1 << 9) - 1, preferred_size=2)
    best, _ = make_policy("restricted", 9, distances, OPTIONS).merge([{"cpu": hints}])

    assert list(best.affinity) == [2, 3]


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_where_distances_form_no_hierarchy_the_bound_is_never_too_high(seed: int) -> None:
    """Six of 20 nodes: more sets than are all looked at, and each is weighed here."""
    random = Random(seed)
    distances = [[10] * 20 for _ in range(20)]
    for row, column in combinations(range(20), 2):
        distance = random.choice([11, 12, 40])
        if seed % 2:
            distance = 10 + (column - row) * random.choice([1, 1, 2])
        distances[row][column] = distances[column][row] = distance

    hints = feasible_hints(20, [(None, [1] * 20, 6)], universe=(1 << 20) - 1, preferred_size=6)
    best, _ = make_policy("restricted", 20, distances, OPTIONS).merge([{"cpu": hints}])
    _, expected = min(
        (
            sum(distances[row][column] for row, column in combinations(nodes, 2)),
            sum(1 << node for node in nodes),
        )
        for nodes in combinations(range(20), 6)
    )

    assert int(best.affinity) == expected
