"""A keeper in random worlds in which groups change in any way (see `models.changing_groups`)."""

from __future__ import annotations

from collections import Counter

import pytest

from inputs.strategies import counts
from models.changing_groups import ChangingGroups

STEPS = 100


def world_of(seed: int, *, strangers: bool) -> ChangingGroups:
    """Return a world: in some pods go for others, in some nodes come for pods.

    In each second one no node is kept for anybody, so that nobody waits who fits.
    """
    patience = (5.0, float("inf"))[seed % 2]
    return ChangingGroups(
        seed, strangers=strangers, evicts=seed % 3 == 1, grows=seed % 4 >= 2, patience=patience
    )


def live(world: ChangingGroups) -> Counter[str]:
    """Let a world live and come to rest, first while pods run on, and later as they end."""
    for pods_end in (False, True):
        for _ in range(STEPS):
            world.step()
        world.rest(pods_end=pods_end)
        world.check_at_rest()
    world.finish()
    return world.outcomes


@pytest.mark.parametrize("seeds", counts(10, 150))
@pytest.mark.parametrize("strangers", [True, False])
def test_groups_that_change_get_places_once_and_nothing_is_kept_of_them(seeds, strangers) -> None:
    """Where nobody else takes gates off, kubelets refuse no pod."""
    outcomes: Counter[str] = Counter()
    for seed in range(seeds):
        outcomes += live(world_of(seed, strangers=strangers))
    assert outcomes["bound"] > 5 * seeds
    assert outcomes["waiting"] > seeds
    assert outcomes["evicted"] >= seeds // 50
    assert outcomes["grown"]
