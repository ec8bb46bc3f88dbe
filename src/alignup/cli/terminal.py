"""Where subcommands print for people: a console of the right width, and text that cannot upset it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["make_console", "make_table", "safe"]

PLAIN_WIDTH: Final = 120
"""Columns of a table that goes into a file or pipe."""


def make_console() -> Console:
    """Return a console on standard output: as wide as the terminal, and of a fixed width without one."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PLAIN_WIDTH
    return console


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
