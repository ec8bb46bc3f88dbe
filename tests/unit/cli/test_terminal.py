"""What is printed for people: widths, signs and sizes."""

from __future__ import annotations

import io
import sys

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from alignup.cli.terminal import (
    Table,
    amount_text,
    broken_between_words,
    first_to_last,
    make_console,
    mark,
    nodes_text,
    plain,
    print_line,
    print_table,
    print_whole,
    printed,
)

WORDS = st.text("abz019", min_size=1, max_size=18)
CELLS = st.lists(WORDS, min_size=4, max_size=8).map(" ".join)


@pytest.mark.parametrize("kind", ["dumb", "xterm"])
def test_values_are_whole_where_there_is_no_terminal(monkeypatch, capsys, kind: str) -> None:
    """Whatever the terminal is that the program was started from: a program may read the table."""
    monkeypatch.setenv("TERM", kind)
    monkeypatch.delenv("COLUMNS", raising=False)
    cpus = ",".join(map(str, range(0, 400, 2)))
    print_table(("rank", "CPUs"), [("0", cpus)])

    assert f"0      {cpus}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("columns", "width"),
    [("60", 60), *((text, 10_000) for text in ("0", "many", "-1", "²", "10001", "9" * 5_000))],
)
def test_a_width_that_is_asked_for_is_kept(monkeypatch, columns: str, width: int) -> None:
    """If it is one."""
    monkeypatch.setenv("COLUMNS", columns)

    assert make_console().width == width


@pytest.mark.parametrize("name", ["COLUMNS", "LINES", "JUPYTER_COLUMNS"])
@pytest.mark.parametrize("text", ["²", "9" * 5_000])
def test_a_terminal_has_its_own_width_where_none_is_asked_for(monkeypatch, name, text) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv(name, text)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    assert 0 < make_console().width <= 10_000


@pytest.mark.parametrize("columns", ["1", "10", "30"])
def test_no_column_is_lost_where_there_is_no_room(monkeypatch, capsys, columns: str) -> None:
    """The terminal breaks the lines then, and nothing is gone."""
    monkeypatch.setenv("COLUMNS", columns)
    print_table(("rank", "NUMA nodes", "CPUs"), [("0", "1,2,3", "0-31,64-95")])

    assert {"rank", "NUMA", "nodes", "CPUs", "0", "1,2,3", "0-31,64-95"} <= set(
        capsys.readouterr().out.split()
    )


@given(
    st.integers(20, 90),
    st.lists(
        st.tuples(WORDS, CELLS, st.integers(0, 10**12).map(str), WORDS), min_size=1, max_size=4
    ),
)
def test_no_line_of_a_whole_column_and_no_number_is_broken(
    width: int, rows: list[tuple[str, ...]]
) -> None:
    """Rich cuts off what has no room."""
    rows = [
        (name, cell.replace(" ", "\n", 1), number, cell_text)
        for name, cell, number, cell_text in rows
    ]
    made = Table(
        "name", "whole", "number", "text", numbers=("number",), whole=("whole",), rows=rows
    )
    out = io.StringIO()
    print_whole(Console(file=out, width=width), made)

    shown = out.getvalue()
    assert all(
        part in shown
        for name, cell, number, _ in rows
        for part in (name, *cell.split("\n"), number)
    )


@pytest.mark.parametrize(
    ("encoding", "good", "bad"), [("utf-8", "✓", "✗"), ("ascii", "ok", "no"), ("cp437", "ok", "no")]
)
def test_marks_are_words_where_signs_cannot_be_written(encoding: str, good: str, bad: str) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))

    assert mark(console, good=True) == f"[bold green]{good}[/]"
    assert mark(console, good=False) == f"[bold red]{bad}[/]"


@pytest.mark.parametrize(("ids", "text"), [(None, "any"), ((), ""), ((0, 250), "0,250")])
def test_numa_nodes_in_a_cell(ids, text: str) -> None:
    """Kernel ids, or any node."""
    assert nodes_text(ids) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["lws-1", "lws-1"], "lws-1"),
        (["a", "b"], "a to b"),
        (["a", "b", "c", "a"], "a to c"),
    ],
)
def test_a_range_of_names_has_two_ends(names: list[str], text: str) -> None:
    assert first_to_last(names) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 3 << 30, "3Gi"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("cpu", 1 << 30, str(1 << 30)),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_only_memory_is_counted_in_bytes(resource: str, amount: int, text: str) -> None:
    assert amount_text(resource, amount) == text


MARKS = st.sampled_from(["", "[bold]", "[red]", "[bold red]"])
MARKED_WORDS = st.tuples(MARKS, WORDS, st.booleans()).map(
    lambda parts: f"{parts[0]}{parts[1]}{'[/]' if parts[0] else ''}{'  ' if parts[2] else ''}"
)


@given(
    indent=st.integers(0, 6),
    words=st.lists(MARKED_WORDS, min_size=1, max_size=12),
    width=st.integers(1, 60),
)
def test_a_line_is_broken_between_words_only(indent: int, words: list[str], width: int) -> None:
    """No part that has several words is too wide, and none could have had the next word too."""
    line = " " * indent + " ".join(words)
    parts = [part.plain for part in broken_between_words(Text.from_markup(line), width)]
    if len(plain(line)) <= width:
        assert parts == [plain(line)]
        return

    assert " ".join(parts).split() == plain(line).split()
    assert parts[0].startswith(" " * indent)
    for part, next_part in zip(parts, [*parts[1:], ""], strict=True):
        assert len(part) <= width or len(part.split()) == 1
        if next_part:
            assert len(part) + 3 + len(next_part.split()[0]) > width
            assert next_part.startswith(" " * (indent + 2))


def test_names_are_no_pictures(monkeypatch, capsys) -> None:
    """A name between colons is not what rich calls an emoji."""
    monkeypatch.setenv("COLUMNS", "80")
    make_console().print("nic:100:0 :smile:")
    assert capsys.readouterr().out == "nic:100:0 :smile:\n"


def test_what_is_held_back_is_as_standard_output_has_it(monkeypatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", stream)
    assert (
        printed(lambda: click.echo(f"{sys.stdout.encoding} {sys.stdout.isatty()}"))
        == "latin-1 True\n"
    )
    stream.flush()
    assert stream.buffer.getvalue() == b""


def test_a_line_of_names_is_one_line_and_no_mark(monkeypatch, capsys) -> None:
    """On a narrow terminal it is broken between words; a file gets it as it is."""
    line = "a [bold]name[/] of\nmany words that goes on"
    print_line(line)
    assert capsys.readouterr().out == "a [bold]name[/] of\\nmany words that goes on\n"

    monkeypatch.setenv("COLUMNS", "24")
    print_line(line)
    lines = capsys.readouterr().out.splitlines()
    assert [text.strip() for text in lines] == ["a [bold]name[/] of\\nmany", "words that goes on"]
