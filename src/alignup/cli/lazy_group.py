"""A group of subcommands that are listed without being imported; each is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """A group that knows its subcommands' names and imports them when they are called."""

    subcommands: ClassVar[Mapping[str, str]] = {}
    """Name and first line of help of each, in the order in which they are listed."""
    prefix: ClassVar[str]
    """What comes before a subcommand's name in the name of its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order in which they are listed."""
        return list(self.subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import and return a subcommand."""
        if cmd_name not in self.subcommands:
            return None
        found: click.Command = import_module(f"{self.prefix}{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.subcommands.items()))
