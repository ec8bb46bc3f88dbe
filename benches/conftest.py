"""What the benchmarks share: the yardstick of a run, and promises that are asserted."""

from __future__ import annotations

from time import perf_counter

import pytest

import model
from cases import FACTOR, pairs_of


@pytest.fixture(scope="session")
def plain_seconds() -> float:
    """The yardstick: how long the plain product in Python takes for two lists of 255 hints, in this run.

    Longer products are never extrapolated: three lists would take minutes, four hours.
    """
    lists = pairs_of("every-mask-none-preferred", 2)
    took = []
    for _ in range(3):
        start = perf_counter()
        assert model.best_of_product(lists, 8) == (1, False)
        took.append(perf_counter() - start)
    return min(took)


@pytest.fixture
def promise(benchmark, plain_seconds):
    """Return a function that notes the ratio to the yardstick, and asserts what the README promises.

    It takes microseconds: for the median, and where there is such a promise for the 99th percentile.
    """

    def check(median: float, ninety_ninth: float | None = None) -> None:
        if benchmark.stats is None:  # --benchmark-disable: the answers are checked, nothing is timed
            return
        taken = sorted(benchmark.stats.stats.data)
        measured = {"median": taken[len(taken) // 2], "p99": taken[len(taken) * 99 // 100]}
        for name, seconds in measured.items():
            benchmark.extra_info[f"{name}_us"] = round(seconds * 1e6, 2)
        benchmark.extra_info["ratio"] = round(plain_seconds / taken[0], 1)
        assert measured["median"] * 1e6 < median * FACTOR
        assert ninety_ninth is None or measured["p99"] * 1e6 < ninety_ninth * FACTOR

    return check
