"""A keeper of gated pods in random days of a cluster (see `models.gated_kubelets`)."""

from __future__ import annotations

from collections import Counter

import pytest

from inputs.strategies import counts
from models.gated_kubelets import GatedKubelets
from models.two_keepers import TwoKeepers

DAY = 86_400.0


@pytest.mark.parametrize("steps", counts(250, 20_000))
@pytest.mark.parametrize("strangers", [True, False])
def test_no_place_is_given_on_what_a_kubelet_still_holds(strangers, steps) -> None:
    """Where nobody else binds pods, kubelets refuse none, though new keepers lead."""
    bound = 0
    for seed in range(0, steps, 250):
        cluster = GatedKubelets(seed, leaves=True, faults=strangers, strangers=strangers)
        for _ in range(250):
            cluster.step()
        cluster.settle()
        bound += cluster.outcomes["bound"]
        if not strangers:
            assert cluster.outcomes["refused"] == 0
    assert bound > steps / 10


@pytest.mark.parametrize("steps", counts(500, 20_000))
def test_nothing_else_is_decided_after_what_is_no_news(steps) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(0, steps, 250):
        cluster = GatedKubelets(seed, checks_news=True)
        for _ in range(250):
            cluster.step()
        outcomes += cluster.outcomes

    assert outcomes["an expected report"] > steps / 50
    assert outcomes["a pod that is seen again"] > steps / 50


@pytest.mark.parametrize("days", [0.1, pytest.param(7, marks=pytest.mark.slow)])
def test_a_week_of_a_keeper_grants_nothing_twice_and_keeps_no_more_than_its_first_day(
    days, capsys
) -> None:
    """Pods come and go, nodes leave, static pods are made again, leaders are replaced."""
    _live(GatedKubelets(1, pace=20.0, leaves=True), days, capsys)


def _live(cluster: GatedKubelets, days: float, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize("steps", counts(250, 20_000))
@pytest.mark.parametrize("strangers", [True, False])
def test_two_keepers_that_take_turns_give_nothing_twice(strangers, steps) -> None:
    """A late one decides by what it knew, and its patches are refused for their versions."""
    outcomes: Counter[str] = Counter()
    for seed in range(0, steps, 250):
        cluster = TwoKeepers(seed, leaves=True, faults=strangers, strangers=strangers)
        for _ in range(250):
            cluster.step()
        cluster.settle()
        outcomes += cluster.outcomes
        if not strangers:
            assert cluster.outcomes["refused"] == 0
    assert outcomes["bound"] > steps / 10


@pytest.mark.parametrize(
    ("seeds", "turns", "pace", "least_turns"),
    [(range(5, 10), 6.0, 1.0, 20), (range(20), 20.0, 0.3, 40)],
    ids=["often", "all the time"],
)
def test_late_patches_of_a_former_leader_are_there_and_refused(
    seeds, turns, pace, least_turns
) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        cluster = TwoKeepers(
            seed, leaves=True, faults=False, strangers=False, turns=turns, pace=pace
        )
        for _ in range(300):
            cluster.step()
        cluster.settle()
        outcomes += cluster.outcomes
    assert outcomes["turns"] > least_turns
    assert outcomes["fenced"] >= 2
    assert outcomes["refused"] == 0


def test_without_versions_a_former_leader_grants_what_the_next_one_has_given() -> None:
    """What the model checks can fail, where leaders change often."""
    faults = 0
    for seed in range(40):
        cluster = TwoKeepers(
            seed, leaves=True, faults=False, strangers=False, turns=5.0, pace=0.3, is_fenced=False
        )
        try:
            for _ in range(300):
                cluster.step()
            cluster.settle()
        except AssertionError:
            faults += 1
        else:
            faults += cluster.outcomes["refused"] > 0
        if faults:
            return

    raise AssertionError("nothing was granted twice")


def _with_labels(seed: int, **options: bool) -> TwoKeepers:
    """Return a run in which places often turn out wrong, and leaders change often."""
    cluster = TwoKeepers(
        seed,
        names=("a", "b", "c", "d"),
        leaves=True,
        faults=False,
        strangers=False,
        terms=True,
        binding=30.0,
        turns=6.0,
        pace=0.5,
        cordons=4.0,
        **options,
    )
    for _ in range(300):
        cluster.step()
    cluster.settle()
    return cluster


@pytest.mark.parametrize("seeds", counts(20, 300))
def test_late_labels_of_a_former_leader_are_there_and_refused(seeds) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(seeds):
        outcomes += _with_labels(seed).outcomes
    assert outcomes["late labels"] > seeds
    assert outcomes["bound"] > 20 * seeds
    assert outcomes["refused"] == 0


def test_a_former_leader_whose_late_labels_are_taken_grants_what_the_next_one_has_given() -> None:
    for seed in range(100):
        try:
            cluster = _with_labels(seed, refuses_labels=False)
        except AssertionError:
            return
        if cluster.outcomes["refused"]:
            return

    raise AssertionError("nothing was granted twice")


@pytest.mark.parametrize("days", [0.1, pytest.param(7, marks=pytest.mark.slow)])
def test_days_of_two_keepers_grants_nothing_twice_and_keeps_no_more_than_its_first_day(
    days, capsys
) -> None:
    cluster = TwoKeepers(3, pace=20.0, leaves=True)
    _live(cluster, days, capsys)
    assert cluster.outcomes["turns"] > 5 * days
