"""The version is one that packages, images and tags can have, and costs nothing to ask."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import alignup
from alignup.version import VERSION

ROOT = Path(__file__).parents[2]


def test_the_version_is_the_packages() -> None:
    assert alignup.__version__ == metadata.version("alignup") == VERSION


def test_it_is_three_numbers() -> None:
    """The chart and the tag of the image are named by it, too."""
    assert re.fullmatch(r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}", VERSION)


def test_the_changelog_begins_with_it() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == VERSION


def test_asking_for_it_reads_no_metadata() -> None:
    program = (
        "import sys, alignup; alignup.__version__; sys.exit('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)  # noqa: S603  # ours
    assert done.returncode == 0
