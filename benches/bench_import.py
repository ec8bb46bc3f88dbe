"""Import: under 30 ms more than numpy, for all public names; nothing of the command line comes with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cases import FACTOR

CODE = """
import sys
import numpy
from time import perf_counter
start = perf_counter()
{what}
print(perf_counter() - start)
sys.exit(any(name in sys.modules for name in ("click", "rich", "prometheus_client")))
"""


@pytest.fixture(scope="module")
def seconds(tmp_path_factory):
    """Return a function that says how long an import takes in a fresh interpreter that has numpy already.

    Bytecode is kept between the interpreters, as it is wherever a package is installed.
    """
    kept = {
        **os.environ,
        "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode")),
        "PYTHONDONTWRITEBYTECODE": "",
    }

    def run(what: str) -> float:
        command = [sys.executable, "-c", CODE.format(what=what)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)  # noqa: S603 - our own
        return float(done.stdout)

    return run


@pytest.mark.parametrize("what", ["import alignup", "from alignup import *", "from alignup import Node"])
@pytest.mark.benchmark(group="import")
def test_import(benchmark, seconds, what):
    """What alignup adds is the best of many; the benchmark times the whole interpreter."""
    seconds(what)
    best = min(seconds(what) for _ in range(20))
    benchmark.extra_info["import_ms"] = round(best * 1e3, 2)
    benchmark.pedantic(seconds, (what,), rounds=3)
    assert best * 1e3 < 30 * FACTOR
