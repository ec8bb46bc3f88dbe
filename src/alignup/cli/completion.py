"""Completes the words of a command line in a shell: names of the catalog's machines, and files.

The scripts that ask for it are click's; see the README.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    import click

__all__ = ["files", "machines"]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return that the shell shall complete a file."""
    return [CompletionItem(incomplete, type="file")]


def machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the machines of the catalog that begin so; where none does, that the shell shall complete a file."""
    from alignup.machine.catalog import catalog_entries  # startup counts

    names = [CompletionItem(name) for name in catalog_entries() if name.startswith(incomplete)]
    return names or files(ctx, param, incomplete)
