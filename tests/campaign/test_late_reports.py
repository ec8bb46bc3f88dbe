"""What the extender lets pass where all that it knows of the nodes is late."""

from __future__ import annotations

import pytest

from models.cluster import Delays, Miss, ModelCluster

pytestmark = pytest.mark.slow

USUAL = Delays(admission=0.05, report=0.05, watch=0.05)
BUSY = Delays(admission=0.2, report=0.5, watch=0.2)
VERY_LATE = Delays(admission=1.0, report=4.0, watch=2.0)
RUNS = 12


@pytest.fixture
def played(capsys):
    """Return a function that plays several runs, and tells and returns its numbers.

    They are how many pods ran, and the misses.
    """

    def play(delays: Delays, *, with_holdings: bool) -> tuple[int, list[Miss]]:
        ran, misses = numbers(delays, with_holdings=with_holdings)
        with capsys.disabled():
            kind = "amounts"
            if with_holdings:
                kind = "holdings"
            # a campaign tells its numbers
            print(f"{kind}, {delays}: {ran} ran, {len(misses)} rejected")  # noqa: T201
        return ran, misses

    return play


def numbers(delays: Delays, *, with_holdings: bool) -> tuple[int, list[Miss]]:
    """Return how many pods ran in all runs, and those that were rejected."""
    runs = [ModelCluster(seed, delays, with_holdings=with_holdings).run() for seed in range(RUNS)]
    assert all(model_run.ran + len(model_run.misses) == len(model_run.pods) for model_run in runs)
    return sum(model_run.ran for model_run in runs), [
        miss for model_run in runs for miss in model_run.misses
    ]


@pytest.mark.parametrize("delays", [USUAL, BUSY], ids=["usual", "busy"])
def test_nodes_that_publish_holdings_take_all_that_passed(delays, played) -> None:
    ran, misses = played(delays, with_holdings=True)
    assert not misses
    assert ran == RUNS * 150


def test_what_nobody_could_know_is_the_only_cause_of_a_miss(played) -> None:
    """Of two pods that are bound, another may end before the first is admitted.

    It goes elsewhere than was foreseen.
    """
    ran, misses = played(VERY_LATE, with_holdings=True)
    assert all(miss.overtaken for miss in misses)
    assert len(misses) <= 0.002 * ran


@pytest.mark.parametrize(("delays", "most"), [(USUAL, 0.002), (BUSY, 0.01), (VERY_LATE, 0.02)])
def test_few_are_rejected_where_only_amounts_are_known(delays, most, played) -> None:
    """Amounts do not say which NUMA nodes are tied by memory.

    A best-effort node then fails to allocate.
    """
    ran, misses = played(delays, with_holdings=False)
    assert {miss.rejection.reason for miss in misses} <= {
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
    unexpected = [miss for miss in misses if miss.rejection.reason == "UnexpectedAdmissionError"]
    assert all("memory" in miss.rejection.message for miss in unexpected)
    assert len(misses) <= most * ran
