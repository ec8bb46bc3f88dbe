"""Makes what the site takes from elsewhere.

That is the page of commands, the curves, and docstrings of compiled modules.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from html import escape, unescape
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

    from mkdocs.structure.pages import Page


HISTORY = Path(__file__).parents[1] / "benches/history.jsonl"
COMMANDS = "<!-- commands -->"
CURVES = "<!-- curves -->"
WIDTH, HEIGHT, LEFT, EDGE = 420, 180, 80, 12
"""Of a picture of curves, and of its margins; so narrow that its letters can be read on a phone."""
WHOLE = 100
"""Ratios from which on nobody asks for decimals."""

CODE = re.compile(r"(<code[^>]*>)(.*?)</code>", re.DOTALL)
BREAKABLE = re.compile(r"(?<!\S)(?=\S*[-/?!}\])._])\S{2,}(?!\S)")
"""A word with a character behind which a browser may end a line."""
LINE = 40
"""Letters of code on a line of a phone: longer words are whole on wider screens only."""

SEARCHED = (
    ("dev/questions.md", {"exclude": True}),
    ("dev/", {"boost": 0.1}),
    ("questions/refused.md", {"boost": 1}),
    ("questions/", {"boost": 2}),
)
"""How the search treats pages whose address begins so: the first that fits, or none.

`docs/dev/questions.md` has what was asked, and would answer each question with itself.
"""


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the commands and the curves where a page asks for them (a hook of MkDocs).

    Pages that answer questions come first in the search, and those for developers last.
    """
    address = page.file.src_uri
    treatments = (treatment for start, treatment in SEARCHED if address.startswith(start))
    page.meta["search"] = next(treatments, {})

    if COMMANDS in markdown:
        lines = described(program, click.Context(program, info_name="alignup"))
        markdown = markdown.replace(COMMANDS, "\n".join(lines))
    if CURVES in markdown:
        markdown = markdown.replace(CURVES, "\n".join(curves()))

    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Mark words of code in sentences that a browser would break (a hook of MkDocs).

    No style says that a hyphen within a word is no place for the end of a line.
    """
    blocks = re.split(r"(<pre.*?</pre>)", html, flags=re.DOTALL)
    for place in range(0, len(blocks), 2):
        blocks[place] = CODE.sub(with_marked_words, blocks[place])

    return "".join(blocks)


def with_marked_words(code: re.Match[str]) -> str:
    """Return code whose words are marked, but for tags."""
    parts = re.split(r"(<[^>]*>)", code[2])
    for place in range(0, len(parts), 2):
        parts[place] = BREAKABLE.sub(marked, parts[place])

    return f"{code[1]}{''.join(parts)}</code>"


def marked(word: re.Match[str]) -> str:
    """Return a word with what a style knows it by."""
    kind = "word" if len(unescape(word[0])) <= LINE else "long-word"
    return f'<span class="{kind}">{word[0]}</span>'


def curves() -> Iterator[str]:
    """Yield a picture for each module of benchmarks.

    It has a curve for each benchmark, with its name where a mouse rests.
    """
    runs = []
    if HISTORY.exists():
        runs = [json.loads(line) for line in HISTORY.read_text("utf-8").splitlines()]
    if not runs:
        yield (
            "*The history of the workflow was not fetched (`.ci/history`) before this page was "
            "built.*"
        )

    names = sorted({name for run in runs for name in run["ratios"]})
    for module in sorted({name.partition("::")[0] for name in names}):
        curves_of_module = {
            name: curve_of(name, runs) for name in names if name.startswith(f"{module}::")
        }
        title = module.removeprefix("benches/bench_").removesuffix(".py")
        yield f"## {title}\n\n{picture(curves_of_module, runs)}\n"


def curve_of(name: str, runs: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Return the ratios of a benchmark, each with the place of its run."""
    ratios = [(place, run["ratios"].get(name)) for place, run in enumerate(runs)]
    return [(place, ratio) for place, ratio in ratios if ratio is not None]


def picture(curves: dict[str, list[tuple[int, float]]], runs: list[dict[str, Any]]) -> str:
    """Return a drawing of ratios by run, upwards by powers of ten."""
    ratios = [ratio for curve in curves.values() for _, ratio in curve]
    low = log10(min(ratios)) - 0.1
    high = log10(max(ratios)) + 0.1

    def x_of(place: int) -> str:
        return f"{LEFT + (WIDTH - LEFT - EDGE) * place / max(len(runs) - 1, 1):.1f}"

    def y_of(ratio: float) -> str:
        part = (log10(ratio) - low) / (high - low)
        return f"{HEIGHT - 30 - (HEIGHT - 30 - EDGE) * part:.1f}"

    def label(x: int, y: object, text: str, anchor: str) -> str:
        return (
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="12" '
            f'fill="currentColor">{text}</text>'
        )

    parts = []
    for ratio in (min(ratios), max(ratios)):
        decimals = 0 if ratio >= WHOLE else 1
        parts.append(label(LEFT - 8, y_of(ratio), f"{ratio:,.{decimals}f}", "end"))

    for x, run, anchor in ((LEFT, runs[0], "start"), (WIDTH - EDGE, runs[-1], "end")):
        parts.append(label(x, HEIGHT - 8, f"{run['date']} {run['commit']}", anchor))

    for name, curve in curves.items():
        title = f"<title>{escape(name.partition('::')[2])}: {curve[-1][1]:g}</title>"
        points = " ".join(f"{x_of(place)},{y_of(ratio)}" for place, ratio in curve)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="#5470c6" '
            f'stroke-width="1.5">{title}</polyline>'
        )

    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'style="width:100%;max-width:560px">{"".join(parts)}</svg>'
    )


def described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the lines of a command and of those below it: what its `--help` says, as Markdown."""
    if context.parent is not None:
        yield f"## {context.command_path}\n"
        yield f"    {context.command_path} {usage(command, context)}\n"

        summary, examples, *description = help_paragraphs(command)
        for paragraph in (escaped(summary), examples, *map(escaped, description)):
            yield f"{paragraph}\n"

        yield from option_rows(command, context)
        yield f"\n{command.epilog or ''}\n"

    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None  # noqa: S101  # it is listed
            yield from described(subcommand, click.Context(subcommand, context, name))


def option_rows(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the table of a command's options, by section."""
    yield "| option | |"
    yield "|---|---|"
    options = [option for option in command.params if isinstance(option, click.Option)]
    for section in SECTIONS:
        records = [
            option.get_help_record(context) for option in options if section_of(option) == section
        ]
        if records:
            yield f"| **{section}** | |"
        for names, text in filter(None, records):
            yield f"| `{names}` | {cell(text)} |"


def usage(command: click.Command, context: click.Context) -> str:
    """Return the words after the command's name."""
    return " ".join(command.collect_usage_pieces(context))


def cell(text: str) -> str:
    """Return a text for the cell of a table."""
    return escaped(text).replace("|", "\\|")


def escaped(text: str) -> str:
    """Return a text whose angle brackets are no tags, and whose stars are no emphasis."""
    return re.sub(r"(`[^`]*`)|[<*_]", lambda matched: matched[1] or f"&#{ord(matched[0])};", text)


def default_of(field: Any, default: object) -> str:
    """Return the default of a record's field as its class writes it."""
    if callable(field.default_factory):
        return repr(field.default_factory())
    if isinstance(default, Record):
        return f"{type(default).__name__}()"
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    return repr(default)


class CompiledDocstrings(griffe.Extension):
    """Gives what stubs describe the docstrings of the compiled modules.

    Records get the constructors that they have.
    """

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add the constructor of a record, which is made of its fields."""
        if "__init__" in cls.members or not any("Record" in str(base) for base in cls.bases):
            return

        record_type = getattr(import_module(cls.module.path), cls.name, None)
        fields = getattr(record_type, "__record_fields__", {})
        if not fields:
            return

        parameters = [griffe.Parameter("self")]
        for name, parameter in signature(record_type).parameters.items():
            default = None
            if parameter.default is not parameter.empty:
                default = default_of(fields[name], parameter.default)
            parameters.append(
                griffe.Parameter(
                    name,
                    annotation=str(parameter.annotation),
                    kind=griffe.ParameterKind.positional_or_keyword,
                    default=default,
                )
            )

        constructor = griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
        cls.set_member("__init__", constructor)

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Add the docstring, without the signature that Cython puts before it."""
        if obj.docstring or obj.is_module or getattr(obj.filepath, "suffix", "") != ".pyi":
            return

        member: Any = import_module(obj.module.path)
        for name in obj.path.removeprefix(f"{obj.module.path}.").split("."):
            member = getattr(member, name, None)

        text = getattr(member, "__doc__", None) or ""
        first_line, _, remainder = text.partition("\n")
        if first_line.startswith((f"{obj.name}(", f"{obj.parent.name}.")):
            text = remainder
        if text.strip():
            obj.docstring = griffe.Docstring(text.strip("\n"), parent=obj, parser="google")
