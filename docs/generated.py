"""Makes what the site takes from the program itself: the page of commands, and docstrings of compiled modules."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click
import griffe

from alignup.cli.program import program

if TYPE_CHECKING:
    from collections.abc import Iterator


PLACE = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the commands where a page asks for them (a hook of MkDocs)."""
    return markdown.replace(PLACE, "\n".join(described(program, click.Context(program, info_name="alignup"))))


def described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the lines of a command and of those below it: what its `--help` says, as Markdown."""
    if context.parent is not None:
        yield from (f"## {context.command_path}\n", f"    {context.command_path} {usage(command, context)}\n")
        yield escaped(cleandoc(command.help or "")) + "\n"
        yield from ("| option | |", "|---|---|")
        records = (one.get_help_record(context) for one in command.get_params(context))
        yield from (f"| `{words}` | {cell(text)} |" for words, text in filter(None, records))
        yield f"\n{command.epilog or ''}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None  # noqa: S101  # it is listed
            yield from described(one, click.Context(one, context, name))


def usage(command: click.Command, context: click.Context) -> str:
    """Return the words after the command's name."""
    return " ".join(command.collect_usage_pieces(context))


def cell(text: str) -> str:
    """Return a text for the cell of a table."""
    return escaped(text).replace("|", "\\|")


def escaped(text: str) -> str:
    """Return a text whose angle brackets are no tags, and whose stars are no emphasis."""
    return re.sub(r"(`[^`]*`)|[<*_]", lambda found: found[1] or f"&#{ord(found[0])};", text)


class CompiledDocstrings(griffe.Extension):
    """Gives what stubs describe the docstrings that the compiled modules have."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Add the docstring, without the signature that Cython puts before it."""
        if obj.docstring or obj.is_module or getattr(obj.filepath, "suffix", "") != ".pyi":
            return
        found: Any = import_module(obj.module.path)
        for name in obj.path.removeprefix(f"{obj.module.path}.").split("."):
            found = getattr(found, name, None)
        text = getattr(found, "__doc__", None) or ""
        first, _, rest = text.partition("\n")
        text = rest if first.startswith((f"{obj.name}(", f"{obj.parent.name}.")) else text
        if text.strip():
            obj.docstring = griffe.Docstring(text.strip("\n"), parent=obj, parser="google")
