"""The figures of the surface count what they say, and src over a bound fails."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SURFACE = runpy.run_path(str(Path(__file__).parents[2] / ".ci/surface"))

SPACED = "def f():\n" + "    x = 1\n" * 8 + "\n" + "    y = 2\n" * 8
UNSPACED = "def f():\n" + "    x = 1\n" * 16


@pytest.mark.parametrize(
    ("text", "figure", "value"),
    [
        ("found = 1", "vague", 1),
        ("for one in range(3):\n    mask = one", "vague", 0.5),
        ("def f(self, wanted, /, *, given): pass", "vague", 2 / 3),
        ("masks = [one for one in ()]", "vague", 0),
        ("def __or__(self, other): pass", "vague", 0),
        ("_known: int = 1", "vague", 1),
        ("a = 1 if b else 2", "conditional", 1),
        ("if b:\n    a = 1 if b else 2", "conditional", 0.5),
        ("a = 1 if b else 2 if c else 3", "nested", 1),
        ("a = (1 if c else 3) if b else 2", "nested", 1),
        ("a = f(1 if c else 3) if b else 2", "nested", 0),
        (UNSPACED, "unspaced", 1),
        (SPACED, "unspaced", 0),
        (f"{UNSPACED}\n\n{SPACED.replace('f()', 'g()')}", "unspaced", 0.5),
        ('def f():\n    """Say.\n\n    More.\n    """\n' + "    x = 1\n" * 13, "unspaced", 0),
        ("A = 1\ndef f(): pass", "late", 0),
        ("def f(): pass\nA = 1\n_B: int = 2\nc = 3", "late", 2),
        ("class C: pass\nA = 1", "late", 0),
    ],
)
def test_a_figure_counts_what_it_says(text: str, figure: str, value: float) -> None:
    assert SURFACE["counts_of"](text).figures()[figure] == pytest.approx(value)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Return the root of a tree with a file in each folder, one of them made by protoc."""
    for folder in SURFACE["FOLDERS"]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module.py").write_text("mask = 1\n", encoding="utf-8")

    (tmp_path / "src" / "messages_pb2.py").write_text("found = 1\n", encoding="utf-8")
    monkeypatch.setitem(SURFACE["main"].__globals__, "ROOT", tmp_path)
    return tmp_path


def test_only_src_has_bounds(tree, capsys) -> None:
    (tree / "tests" / "module.py").write_text("found = 1\n", encoding="utf-8")
    assert SURFACE["main"]([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4

    (tree / "src" / "module.py").write_text("found = 1\n", encoding="utf-8")
    assert SURFACE["main"]([]) == 1
    assert capsys.readouterr().err == "src is over the bound of: vague\n"


def test_the_compiled_core_is_counted(tree, capsys) -> None:
    (tree / "cython").mkdir()
    (tree / "cython" / "kernel.pyx").write_text(
        "cdef int add(int a,\n             int b) noexcept nogil:\n    return a + b\n",
        encoding="utf-8",
    )
    SURFACE["main"]([])
    assert capsys.readouterr().out.splitlines()[-1] == "cython: 1 modules, 2 statements, 3 lines"
