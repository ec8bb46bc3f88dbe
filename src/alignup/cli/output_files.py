"""Writes the files that a subcommand is asked for, such as pictures and pages; `-` is standard output."""

from __future__ import annotations

import os
from pathlib import Path

import click

from alignup.errors import InputError

__all__ = ["html_option", "svg_option", "write_text"]

svg_option = click.option("--svg", metavar="FILE", help="Draw it into an SVG file (`-`: standard output).")
html_option = click.option(
    "--html", metavar="FILE", help="Write a page of one self-contained HTML file (`-`: standard output)."
)


def write_text(name: str, text: str) -> None:
    """Write a text file, or to standard output for `-`.

    Raises:
        InputError: the file cannot be written.
    """
    if name == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"expected a file that can be written, got {name!r}: {os.strerror(error.errno or 0).lower()}"
        ) from error
