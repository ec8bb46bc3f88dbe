"""Makes what the site takes from elsewhere: the page of commands, the curves, and docstrings of compiled modules."""

from __future__ import annotations

import json
import re
from enum import Enum
from html import escape
from importlib import import_module
from inspect import signature
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import griffe

from alignup.cli.options import SECTIONS, help_paragraphs, section_of
from alignup.cli.program import program
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator


HISTORY = Path(__file__).parents[1] / "benches/history.jsonl"
WIDTH, HEIGHT, LEFT, EDGE = 420, 180, 80, 12
"""Of a picture of curves, and of its margins; so narrow that its letters can be read on a phone."""
WHOLE = 100
"""Ratios from which on nobody asks for decimals."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the commands and the curves where a page asks for them (a hook of MkDocs)."""
    for place, lines in (
        (
            "<!-- commands -->",
            lambda: described(program, click.Context(program, info_name="alignup")),
        ),
        ("<!-- curves -->", curves),
    ):
        if place in markdown:
            markdown = markdown.replace(place, "\n".join(lines()))
    return markdown


def curves() -> Iterator[str]:
    """Yield a picture for each module of benchmarks: a curve for each benchmark, with its name where a mouse rests."""
    runs = (
        [json.loads(line) for line in HISTORY.read_text("utf-8").splitlines()]
        if HISTORY.exists()
        else []
    )
    if not runs:
        yield (
            "*The history of the workflow was not fetched (`.ci/history`) before this page was "
            "built.*"
        )
    names = sorted({name for run in runs for name in run["ratios"]})
    for module in sorted({name.partition("::")[0] for name in names}):
        found = {
            name: [
                (at, run["ratios"][name]) for at, run in enumerate(runs) if name in run["ratios"]
            ]
            for name in names
            if name.startswith(f"{module}::")
        }
        yield f"## {module.removeprefix('benches/bench_').removesuffix('.py')}\n\n{picture(found, runs)}\n"


def picture(found: dict[str, list[tuple[int, float]]], runs: list[dict[str, Any]]) -> str:
    """Return a drawing of ratios by run, upwards by powers of ten."""
    ratios = [ratio for curve in found.values() for _, ratio in curve]
    low, high = log10(min(ratios)) - 0.1, log10(max(ratios)) + 0.1

    def place(at: int, ratio: float) -> str:
        x = LEFT + (WIDTH - LEFT - EDGE) * at / max(len(runs) - 1, 1)
        return f"{x:.1f},{HEIGHT - 30 - (HEIGHT - 30 - EDGE) * (log10(ratio) - low) / (high - low):.1f}"

    def words(spot: str, text: str, anchor: str) -> str:
        x, y = spot.split(",")
        return (
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="12" '
            f'fill="currentColor">{text}</text>'
        )

    parts = [
        words(
            f"{LEFT - 8},{place(0, some).split(',')[1]}",
            f"{some:,.{0 if some >= WHOLE else 1}f}",
            "end",
        )
        for some in (min(ratios), max(ratios))
    ]
    parts += [
        words(f"{x},{HEIGHT - 8}", f"{run['date']} {run['commit']}", anchor)
        for x, run, anchor in ((LEFT, runs[0], "start"), (WIDTH - EDGE, runs[-1], "end"))
    ]
    for name, curve in found.items():
        title = f"<title>{escape(name.partition('::')[2])}: {curve[-1][1]:g}</title>"
        line = " ".join(place(*point) for point in curve)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="#5470c6" '
            f'stroke-width="1.5">{title}</polyline>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'style="width:100%;max-width:560px">{"".join(parts)}</svg>'
    )


def described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the lines of a command and of those below it: what its `--help` says, as Markdown."""
    if context.parent is not None:
        yield from (
            f"## {context.command_path}\n",
            f"    {context.command_path} {usage(command, context)}\n",
        )
        summary, examples, *description = help_paragraphs(command)
        yield from (f"{one}\n" for one in (escaped(summary), examples, *map(escaped, description)))
        options = [one for one in command.params if isinstance(one, click.Option)]
        yield from ("| option | |", "|---|---|")
        for section in SECTIONS:
            records = [
                one.get_help_record(context) for one in options if section_of(one) == section
            ]
            if records:
                yield f"| **{section}** | |"
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


def default_of(field: Any, default: object) -> str:
    """Return the default of a record's field as its class writes it."""
    if callable(field.default_factory):
        return repr(field.default_factory())
    if isinstance(default, Record):
        return f"{type(default).__name__}()"
    return (
        f"{type(default).__name__}.{default.name}" if isinstance(default, Enum) else repr(default)
    )


class CompiledDocstrings(griffe.Extension):
    """Gives what stubs describe the docstrings of the compiled modules, and records the constructors that they have."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add the constructor of a record, which is made of its fields."""
        if "__init__" in cls.members or not any("Record" in str(base) for base in cls.bases):
            return
        found = getattr(import_module(cls.module.path), cls.name, None)
        fields = getattr(found, "__record_fields__", {})
        if not fields:
            return
        parameters = [
            griffe.Parameter(
                name,
                annotation=str(one.annotation),
                kind=griffe.ParameterKind.positional_or_keyword,
                default=None if one.default is one.empty else default_of(fields[name], one.default),
            )
            for name, one in signature(found).parameters.items()
        ]
        made = griffe.Function(
            "__init__", parameters=griffe.Parameters(griffe.Parameter("self"), *parameters)
        )
        cls.set_member("__init__", made)

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
