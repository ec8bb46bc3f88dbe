"""Random days of a watched cluster, beside what is true (see `models.watched_kubelets`)."""

from __future__ import annotations

import pytest

from inputs.strategies import counts
from models.watched_kubelets import SIZES, WatchedKubelets

WIDE = SIZES[1:4]
"""What fills a node with three pods."""


@pytest.mark.parametrize("steps", counts(250, 50_000))
@pytest.mark.parametrize("faults", [True, False])
def test_nothing_that_a_kubelet_holds_is_free_and_what_is_gone_is_soon(faults, steps) -> None:
    """The long run, of a hundred thousand steps with and without faults, is one of `.ci/nightly`.

    Each is cut into days, after each of which all has to become known.
    """
    bound = 0
    for seed in range(0, steps, 250):
        cluster = WatchedKubelets(seed, sizes=WIDE if seed % 500 else SIZES, faults=faults)
        for _ in range(250):
            cluster.step()
        cluster.settle()
        bound += cluster.outcomes["bound"]
    assert bound > steps / 20  # pods came, and not only other schedulers'
