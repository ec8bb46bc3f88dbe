"""The disk that all machines boot from.

Without `ALIGNUP_VM` and what builds it, tests of machines are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAMS = ("qemu-system-x86_64", "debootstrap", "mke2fs", "python3.11")


def why_not() -> str:
    """Return why there can be no machine here; empty if there can."""
    if "ALIGNUP_VM" not in os.environ:
        return "ALIGNUP_VM is not set"
    if os.geteuid() != 0:
        return "a disk is built by root"
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)}"
    return ""


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the disk, made with the program and the unit of this tree."""
    if reason := why_not():
        pytest.skip(reason)

    folder, wheels = Path(os.environ["ALIGNUP_VM"]), tmp_path_factory.mktemp("wheels")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        wheels,
        ROOT,
    ]
    subprocess.run(build, check=True)  # noqa: S603  # ours
    (wheel,) = wheels.iterdir()
    subprocess.run([HERE / "build-image", folder, wheel], check=True)  # noqa: S603  # ours
    return folder
