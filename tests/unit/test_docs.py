"""The pages for contributors name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = "benches|cython|docs|src|tests"
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")


def named_in(page: str) -> set[str]:
    """Return the words in backticks that are paths from the root, or names of Python and Cython files."""
    words = re.findall(r"`([\w./-]+)`", (ROOT / page).read_text(encoding="utf-8"))
    file = re.compile(rf"(?:{ROOMS}|\.ci)/.*|.*\w\.(?:md|toml|pyi?|pyx|pxd)")
    return {word for word in words if file.fullmatch(word)}


def exists(word: str) -> bool:
    """Return whether there is such a path, or for a bare name such a file in the sources."""
    return (ROOT / word).exists() or (
        "/" not in word and any(any((ROOT / room).rglob(word)) for room in ("src", "cython"))
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    named = named_in(page)
    assert len(named) > 10
    assert [word for word in sorted(named) if not exists(word)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_room_of_the_package_is_on_the_map(page: str) -> None:
    """The architecture page leaves out no folder of the package; the other page leads to it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page != PAGES[0]:
        assert PAGES[0] in text
        return
    rooms = {path.name for path in (ROOT / "src" / "alignup").iterdir() if path.is_dir()} - {"__pycache__"}
    assert [room for room in sorted(rooms) if f"src/alignup/{room}" not in text] == []
