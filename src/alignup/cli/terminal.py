"""Prints for people: a console of the right width, tables, and text that cannot upset a terminal.

The text itself is made by the subcommands.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from alignup.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

__all__ = [
    "devices_text",
    "make_console",
    "make_table",
    "mark",
    "nodes_text",
    "print_table",
    "print_whole",
    "safe",
]

PLAIN_WIDTH: Final = 10_000
"""Columns that a table in a file or pipe may have: programs read it too, so no value is broken in two."""


def make_console() -> Console:
    """Return a console on standard output: as wide as the terminal; without one, as wide as it needs to be."""
    from rich.console import Console, ConsoleDimensions

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        asked = os.environ.get("COLUMNS", "")
        width = (int(asked) if asked.isdecimal() else 0) or PLAIN_WIDTH
        # both numbers, or rich takes what it knows of the kind of terminal instead, as for TERM=dumb
        console.size = ConsoleDimensions(width, 25)
    return console


def print_whole(console: Console, table: Table) -> None:
    """Print a table as wide as the console is; where rich would drop columns, as wide as its longest lines."""
    from rich.measure import Measurement

    needed = Measurement.get(console, console.options.update(width=PLAIN_WIDTH), table)
    if needed.minimum <= console.width:
        console.print(table)
        return
    width = console.width
    console.width = needed.maximum
    console.print(table)
    console.width = width


def mark(console: Console, *, good: bool) -> str:
    """Return a tick or a cross in colour, or a word where the console's encoding lacks them."""
    sign, word, colour = ("✓", "ok", "green") if good else ("✗", "no", "red")
    try:
        sign.encode(console.encoding)
    except UnicodeEncodeError:
        sign = word
    return f"[bold {colour}]{sign}[/]"


def make_table(*headings: str, numbers: tuple[str, ...] = ()) -> Table:
    """Return an empty table, with nothing but a line under its headings.

    Args:
        headings: of the columns.
        numbers: those of the columns that hold numbers, which are aligned at the right.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        if heading in numbers:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")
    return table


def safe(text: str) -> str:
    """Return a user's text with nothing in it that a terminal or rich would obey."""
    from rich.markup import escape

    printable = "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
    return escape(printable)


def nodes_text(numa_nodes: Iterable[int] | None) -> str:
    """Return ids of NUMA nodes in a cell of a table; None: those of any node will do."""
    return "any" if numa_nodes is None else ",".join(map(str, numa_nodes))


def devices_text(devices: Mapping[str, Sequence[str]]) -> str:
    """Return devices in a cell of a table."""
    return (
        one_line(" ".join(f"{resource}={','.join(ids)}" for resource, ids in sorted(devices.items()))) or "-"
    )


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table: as wide as the terminal, or as it needs to be where there is none."""
    table = make_table(*headings)
    for row in rows:
        table.add_row(*map(safe, row))
    print_whole(make_console(), table)
