"""Beyond 8 nodes: of the smallest sets the nearest wins, and of equally near ones the lowest."""

from __future__ import annotations

from random import Random

import pytest

from alignup.topology_manager.hints import feasible_hints
from alignup.topology_manager.policy import make_policy
from inputs.strategies import seeds
from models import topology_manager as model


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
    options = {"max-allowable-numa-nodes": "64", "prefer-closest-numa-nodes": "true"}
    best, _ = make_policy("restricted", numa_nodes, distances, options).merge([{"cpu": hints}])

    assert (int(best.affinity), best.preferred) == (min(nearest)[1], True)
