"""What other programs print is what `tests/recorded` has of the same releases.

Each recorder there fetches pinned packages and writes its files anew. After a pin is raised, the
difference is what a new release prints otherwise: `python tests/recorded/NAME.py
tests/recorded/NAME` records it.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from running.outside import outside_environment

RECORDED = Path(__file__).parents[1] / "recorded"
RECORDERS = sorted(path.stem for path in RECORDED.glob("*.py"))
SECONDS = 600

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the pinned packages are x86-64's"),
]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", RECORDERS)
def test_programs_print_what_was_recorded(name: str, tmp_path: Path) -> None:
    if name in {"kubernetes", "nfd"} and shutil.which("go") is None:
        pytest.skip("Go is not installed")

    command = [sys.executable, str(RECORDED / f"{name}.py"), str(tmp_path)]
    done = subprocess.run(  # noqa: S603  # ours
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=outside_environment(),
    )
    if "Could not find a version" in done.stderr or "No matching distribution" in done.stderr:
        pytest.skip(f"no package index has the pinned packages: {done.stderr[-300:]}")

    assert done.returncode == 0, done.stderr
    printed, recorded = contents(tmp_path), contents(RECORDED / name)
    assert printed.keys() == recorded.keys()
    for file_name, text in printed.items():
        assert text.splitlines() == recorded[file_name].splitlines(), file_name
