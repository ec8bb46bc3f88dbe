"""What is printed for people: widths, signs and sizes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from alignup.cli.options import print_table
from alignup.cli.terminal import make_console, mark, size_text


@pytest.mark.parametrize("kind", ["dumb", "xterm"])
def test_values_are_whole_where_there_is_no_terminal(monkeypatch, capsys, kind: str) -> None:
    """Whatever the terminal is that the program was started from: a program may read the table."""
    monkeypatch.setenv("TERM", kind)
    monkeypatch.delenv("COLUMNS", raising=False)
    cpus = ",".join(map(str, range(0, 400, 2)))
    print_table(("rank", "CPUs"), [("0", cpus)])

    assert f"0      {cpus}" in capsys.readouterr().out


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("0", 10_000), ("many", 10_000)])
def test_a_width_that_is_asked_for_is_kept(monkeypatch, columns: str, width: int) -> None:
    """If it is one."""
    monkeypatch.setenv("COLUMNS", columns)

    assert make_console().width == width


@pytest.mark.parametrize(
    ("encoding", "good", "bad"),
    [("utf-8", "✓", "✗"), ("ascii", "ok", "refused"), ("cp437", "ok", "refused")],
)
def test_marks_are_words_where_signs_cannot_be_written(encoding: str, good: str, bad: str) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))

    assert mark(console, good=True) == f"[bold green]{good}[/]"
    assert mark(console, good=False) == f"[bold red]{bad}[/]"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1025, "1025"),
        (1536 << 20, "1536Mi"),
        (256 << 30, "256Gi"),
        (1 << 40, "1Ti"),
        (10_001, "9.8Ki"),
        (263_921_606_656, "245.8Gi"),
        ((1 << 40) + 1, "1.0Ti"),
    ],
)
def test_sizes_are_short(size: int, text: str) -> None:
    """Exact if that is short; else one decimal is enough for a table, and shows that it is rounded."""
    assert size_text(size) == text
