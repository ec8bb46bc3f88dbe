"""Prints for people: a console of the right width, tables, and text that cannot upset a terminal.

The text itself is made by the subcommands. It may have rich's marks in it, such as `[bold]`; users'
text goes through `safe`. Rich lays out what goes to a terminal. A file or pipe needs no colours and
no breaking of lines, and gets plain lines without the import of rich, which takes longer than most
answers.
"""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import contextmanager, redirect_stdout
from functools import cmp_to_key
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias, TypeVar

import click

from alignup.cli.failures import HANGING, WIDEST
from alignup.errors import one_line
from alignup.text.counting import short_bytes
from alignup.text.digits import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console as RichConsole
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    Console: TypeAlias = "RichConsole | PlainConsole"

_T = TypeVar("_T")
_SIZES: Final = ("COLUMNS", "LINES", "JUPYTER_COLUMNS", "JUPYTER_LINES")
# Columns that a table in a file or pipe may have: programs read it too, so no value is broken in
# two.
PLAIN_WIDTH: Final = 10_000
GAP: Final = "   "
# What rich takes for a mark, and the backslashes before it, of which an odd number makes it text.
_TAG: Final = r"(\\*)(\[[a-z#/@][^\[]*?\])"


class PlainConsole:
    """Standard output where it is no terminal."""

    width = PLAIN_WIDTH

    @property
    def encoding(self) -> str:
        """Of standard output."""
        return sys.stdout.encoding or "utf-8"

    def print(self, text: str = "") -> None:
        """Print a text without its marks."""
        click.echo(plain(text))


def make_console() -> Console:
    """Return a console on standard output.

    It is as wide as the terminal; without one, as wide as it needs to be.
    """
    columns = number_of(os.environ.get("COLUMNS", ""), WIDEST) or 0

    is_terminal = sys.stdout.isatty()
    if not is_terminal and not columns:
        return PlainConsole()

    from rich.console import Console, ConsoleDimensions

    class OpenConsole(Console):
        """Leaves it to the program what a closed pipe means.

        Rich would exit with 1, which says refused here.
        """

        def on_broken_pipe(self) -> None:
            """Raise the error that is being handled once more."""
            raise  # noqa: PLE0704  # called where rich handles it

        def print(self, *objects: Any, **arguments: Any) -> None:
            """Print something; a text whose lines are too long is broken between its words."""
            if len(objects) != 1 or not isinstance(objects[0], str):
                super().print(*objects, **arguments)
                return

            for line in objects[0].split("\n"):
                for part in broken_between_words(self.render_str(line), self.width):
                    super().print(part, **arguments)

    # rich makes numbers of these, whatever they are
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _SIZES or number_of(value, WIDEST) is not None
    }

    # rich would keep bold letters, but who wants no colours reads plain text
    wants_plain = not is_terminal or bool(os.environ.get("NO_COLOR"))
    console = OpenConsole(
        highlight=False,
        emoji=False,  # of names such as nic:100: too
        soft_wrap=True,
        color_system=None if wants_plain else "auto",
        _environ=environment,
    )
    if not is_terminal:
        # both numbers, or rich takes what it knows of the kind of terminal (dumb ones) instead
        console.size = ConsoleDimensions(columns, 25)

    return console


def broken_between_words(text: RichText, width: int) -> Iterator[RichText]:
    """Yield a line in parts of some width, none of which begins or ends inside a word.

    A word that is wider stands by itself. All parts but the first stand further right.

    Args:
        text: the line.
        width: in columns.
    """
    from rich.cells import cell_len

    if text.cell_len <= width:
        yield text
        return

    words = list(re.finditer(r"\S+", text.plain))
    indent = (words[0].start() if words else 0) + len(HANGING)
    line_start = 0
    space = width
    offsets = []
    for next_word in words[1:]:
        if cell_len(text.plain[line_start : next_word.end()]) > space:
            line_start = next_word.start()
            offsets.append(line_start)
            space = width - indent

    for number, part in enumerate(text.divide(offsets)):
        part.rstrip()
        if number:
            part.pad_left(indent)

        yield part


class Table:
    """Headings and rows of cells, which may have several lines and rich's marks."""

    def __init__(
        self,
        *headings: str,
        numbers: Sequence[str] = (),
        whole: Sequence[str] = (),
        rows: Iterable[Iterable[str]] = (),
    ) -> None:
        """Make a table with nothing but a line under its headings.

        Args:
            headings: of the columns.
            numbers: those of the columns that hold numbers, which are aligned at the right.
            whole: those whose lines are not broken.
            rows: of users' text; `add_row` takes marks too.
        """
        self.headings = headings
        self.numbers = numbers
        self.whole = whole
        self.rows = [tuple(map(safe, row)) for row in rows]

    def add_row(self, *cells: str) -> None:
        """Append a row; cells that are missing at its end are empty."""
        self.rows.append(cells)

    def lines(self, rule: str) -> Iterator[str]:
        """Yield the table as lines; `rule` is the letter of the line below the headings."""
        rows = [[plain(cell).split("\n") for cell in row] for row in (self.headings, *self.rows)]
        _, widths = self.column_widths()
        for number, row in enumerate(rows):
            for parts in zip_longest(*row, fillvalue=""):
                cells = (
                    part.rjust(width) if heading in self.numbers else part.ljust(width)
                    for part, width, heading in zip(parts, widths, self.headings, strict=False)
                )
                yield GAP.join(cells).rstrip()

            if not number:
                yield rule * _table_width(widths)

    def column_widths(self) -> tuple[list[int], list[int]]:
        """Return how wide each column must be to break no word, and to break no line.

        A line that is whole is not broken between words either.
        """
        narrow, wide = [], []
        for index, heading in enumerate(self.headings):
            lines = []
            for row in self.rows:
                if index < len(row):
                    lines += plain(row[index]).split("\n")

            parts = lines
            if heading not in self.numbers and heading not in self.whole:
                parts = [word for line in lines for word in line.split()]

            narrow.append(max(map(len, (*heading.split(), *parts))))
            wide.append(max(map(len, (heading, *lines))))

        return narrow, wide


def print_whole(console: Console, table: Table, *, below: bool = False) -> None:
    """Print a table as wide as the console is.

    Where words would be broken, it is as wide as its longest lines. `below`: an empty line parts it
    from what is above it.
    """
    if below:
        console.print()

    if isinstance(console, PlainConsole):
        rule = "─" if can_write(console, "─") else "-"
        click.echo("\n".join(table.lines(rule)))
        return

    width = console.width
    narrow, wide = table.column_widths()
    if _table_width(narrow) <= width:
        console.print(_rich_table(table, _shared_widths(width, narrow, wide)))
        return

    console.width = max(width, _table_width(wide))
    console.print(_rich_table(table, wide))
    console.width = width


def fits(console: Console, table: Table, limit: int = PLAIN_WIDTH) -> bool:
    """Return whether a table fits on the console, and into so many columns, without breaking words.

    In a file or pipe no line is broken.
    """
    narrow, wide = table.column_widths()
    widths = wide if isinstance(console, PlainConsole) else narrow
    return _table_width(widths) <= min(console.width, limit)


def _table_width(widths: Sequence[int]) -> int:
    """Return the width of a table whose columns have these widths."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _shared_widths(width: int, narrow: Sequence[int], wide: Sequence[int]) -> list[int]:
    """Return the widths of columns of a table that is this wide.

    Columns that lack little get all of it first.
    """
    widths = list(narrow)
    spare = width - _table_width(narrow)
    lacks = [
        wide_width - narrow_width for narrow_width, wide_width in zip(narrow, wide, strict=True)
    ]
    columns = sorted(range(len(widths)), key=lacks.__getitem__)
    for position, column in enumerate(columns):
        share = spare // (len(columns) - position)
        added = min(lacks[column], share)
        widths[column] += added
        spare -= added

    return widths


def _rich_table(table: Table, widths: Sequence[int]) -> RichTable:
    """Return a table for rich, whose columns have these widths."""
    from rich import box
    from rich.table import Table as RichTable

    rich_table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading, width in zip(table.headings, widths, strict=True):
        side: Literal["left", "right"] = "right" if heading in table.numbers else "left"
        rich_table.add_column(heading, justify=side, overflow="fold", width=width)

    for row in table.rows:
        rich_table.add_row(*row)

    return rich_table


def can_write(console: Console, text: str) -> bool:
    """Return whether the console's encoding has all of a text's letters."""
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return True


def mark(console: Console, *, good: bool | None) -> str:
    """Return a tick or a cross in colour, or a word where the console's encoding lacks them.

    None: it is not known, for which a question mark stands.
    """
    sign, word, colour = "✗", "no", "red"
    if good:
        sign, word, colour = "✓", "ok", "green"
    elif good is None:
        sign, word, colour = "?", "?", "yellow"

    if not can_write(console, sign):
        sign = word

    return f"[bold {colour}]{sign}[/]"


def plain(text: str) -> str:
    """Return a text as rich would show it, without its marks."""
    if "[" not in text:
        return text

    return re.sub(_TAG, _without_mark, text)


def _without_mark(match: re.Match[str]) -> str:
    """Return a mark's backslashes as rich shows them, and the mark itself if they make it text."""
    backslashes, tag = match.groups()
    text = "\\" * (len(backslashes) // 2)
    if len(backslashes) % 2:
        text += tag

    return text


def safe(text: str) -> str:
    """Return a user's text with nothing in it that a terminal or rich would obey."""
    escaped = "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )
    if "[" in escaped:
        escaped = re.sub(_TAG, r"\1\1\\\2", escaped)

    if escaped.endswith("\\") and not escaped.endswith("\\\\"):
        # or it would escape a mark behind it
        escaped += "\\"

    return escaped


def nodes_text(numa_nodes: Iterable[int] | None) -> str:
    """Return ids of NUMA nodes in a cell of a table; None: those of any node will do."""
    if numa_nodes is None:
        return "any"
    return ",".join(map(str, numa_nodes))


def devices_text(devices: Mapping[str, Sequence[str]]) -> str:
    """Return devices in a cell of a table."""
    cells = [f"{resource}={','.join(ids)}" for resource, ids in sorted(devices.items())]
    return one_line(" ".join(cells)) or "-"


def print_json(*values: object) -> None:
    """Print each value of JSON's types on a line."""
    import json  # startup counts

    for value in values:
        click.echo(json.dumps(value, separators=(",", ":")))


def print_line(line: str) -> None:
    """Print a line of users' text, which a terminal gets broken between its words."""
    make_console().print(safe(one_line(line)))


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table of users' text by itself."""
    print_whole(make_console(), Table(*headings, rows=rows))


def amount_text(resource: str, amount: int) -> str:
    """Return an amount of a resource in a cell of a table."""
    if resource == "memory" or resource.startswith("hugepages-"):
        return short_bytes(amount)
    return str(amount)


def runs(items: Iterable[_T], alike: Callable[[_T, _T], bool]) -> Iterator[list[_T]]:
    """Yield items in order, those in a row that are alike together; `alike` is an equivalence."""

    def unlike(first: _T, second: _T) -> bool:
        return not alike(first, second)

    # of two keys `groupby` only asks whether they are equal
    yield from (list(run) for _, run in groupby(items, cmp_to_key(unlike)))


def first_to_last(names: Iterable[str]) -> str:
    """Return the first of some names and the last, as long as they are not all the same."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) == 1:
        return distinct[0]
    return f"{distinct[0]} to {distinct[-1]}"


def printed(work: Callable[[], None]) -> str:
    """Return what some work prints on standard output, which gets nothing of it."""
    held_back = _HeldBack(sys.stdout)
    with redirect_stdout(held_back):
        work()

    held_back.flush()
    held_back.seek(0)
    return held_back.read()


class _HeldBack(io.TextIOWrapper):
    """Takes what is meant for an output, in its encoding."""

    def __init__(self, output: TextIO) -> None:
        super().__init__(
            io.BytesIO(), encoding=output.encoding or "utf-8", errors=output.errors, newline=""
        )
        self._is_terminal = output.isatty()

    def isatty(self) -> bool:
        """Return whether the output is a terminal."""
        return self._is_terminal


@contextmanager
def progress(doing: str, total: int | None) -> Iterator[Callable[[float], None]]:
    """Show on a terminal how much of so much work is done.

    What this yields is to be told of all that is done.

    Args:
        doing: what is done.
        total: of the work; None: show nothing.
    """
    if total is None or not sys.stderr.isatty():
        yield lambda _: None
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(doing), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda done: bar.advance(task, done)
