"""Random days of a watched cluster, beside what is true (see `models.watched_kubelets`)."""

from __future__ import annotations

import pytest

from inputs.strategies import counts
from models.watched_kubelets import SIZES, WatchedKubelets

WIDE = SIZES[1:4]
"""What fills a node with three pods."""
DAY = 86_400.0


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


@pytest.mark.parametrize("days", [0.1, pytest.param(7, marks=pytest.mark.slow)])
def test_a_week_of_a_cluster_grants_nothing_twice_and_keeps_no_more_than_its_first_day(
    days, capsys
) -> None:
    """Pods come and go, nodes leave, static pods are made again, leaders are replaced."""
    cluster = WatchedKubelets(1, pace=20.0, leaves=True)
    kept = []
    while cluster.now < days * DAY:
        cluster.step()
        kept.append(cluster.kept)
    cluster.settle()
    if days >= 1:
        with capsys.disabled():
            # a long run tells its numbers
            print(f"{days} days: {dict(cluster.outcomes)}, at most {max(kept)} kept")  # noqa: T201
    assert cluster.outcomes["bound"] > 500 * days

    first_day, last_day = kept[: len(kept) // 7], kept[-len(kept) // 7 :]
    assert max(last_day) < 1.5 * max(first_day) + 20
