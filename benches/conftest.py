"""What the benchmarks share: the yardstick beside each of them, and promises that are asserted."""

from __future__ import annotations

from time import perf_counter

import pytest

from cases import FACTOR, pairs_of, quietest
from models import topology_manager as model

PLAIN = pytest.StashKey[dict[str, list[float]]]()
QUIET = 0.069
"""Seconds that the yardstick takes where nothing else runs, on the machine of the promises."""

ROUNDS = 3


class Yardstick:
    """The plain product in Python of two lists of 255 hints.

    That are 65,025 permutations, in 255 pieces of 255. The time of the whole is the sum of the
    quickest times of its pieces. A piece takes a fraction of a millisecond, so that it fits between
    the turns of other processes, as a benchmark of microseconds does: both are then as quick as on
    a quiet machine. Longer products are never extrapolated: three lists would take minutes, four
    hours.
    """

    def __init__(self) -> None:
        self.first, self.second = pairs_of("every-mask-none-preferred", 2)
        self.pieces = [float("inf")] * len(self.first)

    def measure(self) -> None:
        """Walk the product once more; keep the quickest time of each piece."""
        for index, hint in enumerate(self.first):
            start = perf_counter()
            best = model.best_of_product([[hint], self.second], 8)
            taken = perf_counter() - start
            assert best[0] & ~hint[0] == 0
            self.pieces[index] = min(self.pieces[index], taken)

    @property
    def seconds(self) -> float:
        """What the whole product takes where nothing else runs."""
        return sum(self.pieces)


@pytest.fixture(autouse=True)
def yardstick(request) -> Yardstick:
    """Measure the yardstick before and after each benchmark, so that both see the same machine."""
    stick = Yardstick()
    if request.config.getoption("benchmark_disable"):
        stick.pieces = [0.0]
        yield stick
        return
    for _ in range(ROUNDS):
        stick.measure()
    yield stick
    for _ in range(ROUNDS):
        stick.measure()
    request.config.stash.setdefault(PLAIN, {})[request.node.nodeid] = stick.seconds


# the names are those of pytest-benchmark
def pytest_benchmark_update_json(config, benchmarks, output_json) -> None:  # noqa: ARG001
    """Write the ratios anew, now that the yardstick was measured after each benchmark too."""
    measured = config.stash.get(PLAIN, {})
    for bench in output_json["benchmarks"]:
        if "ratio" in bench["extra_info"]:
            bench["extra_info"]["ratio"] = ratio(measured[bench["fullname"]], bench["stats"]["min"])


def ratio(plain: float, mine: float) -> float:
    """Return how often a benchmark fits into the yardstick."""
    return round(plain / mine, 1)


@pytest.fixture
def promise(benchmark, yardstick):
    """Return a function that notes the ratio to the yardstick and asserts what the README promises.

    It takes microseconds: for the median, and where there is such a promise for the 99th
    percentile. Both are noted of all rounds, and asserted of the quietest stretch of them. They may
    be exceeded by FACTOR, because machines differ, and by as much as the yardstick is slower than
    where nothing else runs; what catches a regression on any machine is compare.py.
    """

    def check(median: float, ninety_ninth: float | None = None) -> None:
        # --benchmark-disable: the answers are checked, nothing is timed
        if benchmark.stats is None:
            return
        seconds = list(benchmark.stats.stats.data)
        taken = sorted(seconds)
        measured = {"median": taken[len(taken) // 2], "p99": taken[len(taken) * 99 // 100]}
        for name, value in measured.items():
            benchmark.extra_info[f"{name}_us"] = round(value * 1e6, 2)
        benchmark.extra_info["ratio"] = ratio(yardstick.seconds, taken[0])
        allowed = FACTOR * max(yardstick.seconds / QUIET, 1) / 1e6
        assert quietest(seconds, 0.5) < median * allowed
        assert ninety_ninth is None or quietest(seconds, 0.99) < ninety_ninth * allowed

    return check
