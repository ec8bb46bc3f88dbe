"""Import: under 30 ms more than numpy, for all public names; nothing of the command line comes with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
import numpy
from time import perf_counter
start = perf_counter()
{what}
print(perf_counter() - start)
sys.exit(any(name in sys.modules for name in ("click", "rich", "prometheus_client")))
"""


def seconds(what: str) -> float:
    """Return how long an import takes in a fresh interpreter that has numpy already."""
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(what=what)], capture_output=True, text=True, check=True
    )  # noqa: S603 - our own
    return float(done.stdout)


@pytest.mark.parametrize("what", ["import alignup", "from alignup import *", "from alignup import Node"])
@pytest.mark.benchmark(group="import")
def test_import(benchmark, promise, what):
    """The benchmark times the whole interpreter; `import_ms` is what alignup adds, the best of many."""
    best = min(seconds(what) for _ in range(15))
    benchmark.extra_info["import_ms"] = round(best * 1e3, 2)
    benchmark.pedantic(seconds, (what,), rounds=5)
    promise(1e6)
    assert benchmark.stats is None or best < 0.030 * 4
