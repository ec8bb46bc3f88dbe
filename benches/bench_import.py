"""Start-up: what Python, the public names and the command line take beside an empty interpreter.

Ratios of the quickest of several runs, taken in turns; user and system time, which other processes disturb less than
the clock. Bytecode is kept between the interpreters, as it is wherever a package is installed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from cases import FACTOR

ROUNDS = 15
EMPTY = ("-c", "")
STARTS = {
    "from alignup import Node": (("-c", "from alignup import Node"), 4.5),
    "alignup --version": (("-m", "alignup", "--version"), 4.5),
    "alignup admit": (("-m", "alignup", "admit", "--machine", "align-up-article"), 9),
}
"""What is started, and how many empty interpreters it may take on a quiet machine."""


@pytest.fixture(scope="module")
def seconds(tmp_path_factory):
    """Return a function that says how much processor time a Python with some arguments takes."""
    kept = {
        **os.environ,
        "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode")),
        "PYTHONDONTWRITEBYTECODE": "",
    }

    def run(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True, env=kept)  # noqa: S603 - our own
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


@pytest.mark.parametrize("what", STARTS)
@pytest.mark.benchmark(group="import")
def test_start(benchmark, seconds, what):
    """The benchmark times the whole interpreter; the ratio is what is promised."""
    words, most = STARTS[what]
    seconds(*words)
    taken = [(seconds(*EMPTY), seconds(*words)) for _ in range(ROUNDS)]
    ratio = min(full for _, full in taken) / min(empty for empty, _ in taken)
    benchmark.extra_info["interpreters"] = round(ratio, 2)
    benchmark.pedantic(seconds, words, rounds=3)
    assert ratio < most * max(1, FACTOR / 2)
