"""Import: under 30 ms more than numpy, for all public names; nothing of the command line comes with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cases import FACTOR

CODE = """
import sys
import numpy
from time import process_time
start = process_time()
{what}
print(process_time() - start)
sys.exit(any(name in sys.modules for name in ("click", "rich", "prometheus_client")))
"""


def seconds(what: str) -> float:
    """Return how long an import takes in a fresh interpreter that has numpy already."""
    command = [sys.executable, "-c", CODE.format(what=what)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own
    return float(done.stdout)


@pytest.mark.parametrize("what", ["import alignup", "from alignup import *", "from alignup import Node"])
@pytest.mark.benchmark(group="import")
def test_import(benchmark, plain_seconds, what):
    """What alignup adds is its own processor time, the best of many; the benchmark times the whole interpreter."""
    best = min(seconds(what) for _ in range(10))
    benchmark.extra_info["import_ms"] = round(best * 1e3, 2)
    benchmark.extra_info["ratio"] = round(plain_seconds / best, 2)
    benchmark.pedantic(seconds, (what,), rounds=3)
    assert best * 1e3 < 30 * FACTOR
