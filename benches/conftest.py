"""What the benchmarks share: the yardstick of a run, and promises that are asserted."""

from __future__ import annotations

from time import perf_counter

import pytest

import model
from cases import FACTOR, pairs_of

PLAIN = pytest.StashKey[list[float]]()
STRETCHES = 20


@pytest.fixture(scope="module", autouse=True)
def plain_seconds(request) -> float:
    """The yardstick: how long the plain product in Python takes for two lists of 255 hints, in this run.

    It is measured before each module, and the quickest of all counts in the end: a machine that others use is slow at
    times. Longer products are never extrapolated: three lists would take minutes, four hours.
    """
    measured = request.config.stash.setdefault(PLAIN, [])
    if request.config.getoption("benchmark_disable") and measured:
        return min(measured)
    lists = pairs_of("every-mask-none-preferred", 2)
    for _ in range(3):
        start = perf_counter()
        assert model.best_of_product(lists, 8) == (1, False)
        measured.append(perf_counter() - start)
    return min(measured)


def pytest_benchmark_update_json(config, benchmarks, output_json) -> None:  # noqa: ARG001 - pytest-benchmark's names
    """Write the ratios anew, now that the quickest yardstick is known."""
    for bench in output_json["benchmarks"]:
        if "ratio" in bench["extra_info"]:
            bench["extra_info"]["ratio"] = ratio(min(config.stash[PLAIN]), bench["stats"]["min"])


def ratio(plain: float, mine: float) -> float:
    """Return how often a benchmark fits into the yardstick."""
    return round(plain / mine, 1)


def quietest(seconds: list[float]) -> float:
    """Return the 99th percentile of the quietest of 20 stretches: other processes come and go, what we do stays."""
    length = max(len(seconds) // STRETCHES, 1)
    stretches = [
        sorted(seconds[start : start + length]) for start in range(0, len(seconds) - length + 1, length)
    ]
    return min(stretch[length * 99 // 100] for stretch in stretches)


@pytest.fixture
def promise(benchmark, plain_seconds):
    """Return a function that notes the ratio to the yardstick, and asserts what the README promises.

    It takes microseconds: for the median, and where there is such a promise for the 99th percentile. Both may be
    exceeded by FACTOR, because machines differ; what catches a regression on any machine is check_ratios.py.
    """

    def check(median: float, ninety_ninth: float | None = None) -> None:
        if benchmark.stats is None:  # --benchmark-disable: the answers are checked, nothing is timed
            return
        seconds = list(benchmark.stats.stats.data)
        taken = sorted(seconds)
        measured = {"median": taken[len(taken) // 2], "p99": taken[len(taken) * 99 // 100]}
        for name, value in measured.items():
            benchmark.extra_info[f"{name}_us"] = round(value * 1e6, 2)
        benchmark.extra_info["ratio"] = ratio(plain_seconds, taken[0])
        assert measured["median"] * 1e6 < median * FACTOR
        assert ninety_ninth is None or quietest(seconds) * 1e6 < ninety_ninth * FACTOR

    return check
