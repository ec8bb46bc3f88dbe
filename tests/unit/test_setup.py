"""How setup.py builds: the compiled modules themselves are what the other tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CYTHONIZE = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def cythonize(extensions, *, nthreads, **options):
    with ProcessPoolExecutor(nthreads, mp_context=get_context({method!r})) as workers:
        print("translated", *workers.map(len, ["board", "walk"]))
    return extensions
"""
SETUPTOOLS = """
def Extension(name, *arguments, **options):
    return name


def setup(*, ext_modules, **options):
    print("built", *ext_modules)
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_it_builds_however_processes_are_started(tmp_path, method: str) -> None:
    """A worker that is not forked imports setup.py, and must not build as well.

    On Linux the fork server is the default since Python 3.14.
    """
    (tmp_path / "setup.py").write_bytes((ROOT / "setup.py").read_bytes())
    modules = tmp_path / "modules"
    (modules / "Cython").mkdir(parents=True)
    (modules / "Cython" / "__init__.py").touch()
    (modules / "Cython" / "Build.py").write_text(CYTHONIZE.format(method=method), "utf-8")
    (modules / "setuptools.py").write_text(SETUPTOOLS, "utf-8")
    source = tmp_path / "cython" / "alignup" / "core" / "walk.pyx"
    source.parent.mkdir(parents=True)
    source.touch()

    done = subprocess.run(
        [sys.executable, "setup.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["translated 5 4", "built alignup.core.walk"]
