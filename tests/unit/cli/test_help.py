"""The help of every command: short, an example first, options by section.

`--help-all` has all of them.
"""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from alignup.cli.options import RARE, SECTIONS, HelpWithSections, help_paragraphs, section_of
from alignup.cli.program import NODE_SUBCOMMANDS, SUBCOMMANDS, program

MOST_LINES = 50
EXAMPLE_WITHIN = 10
SERVERS = {"agent", "extender", "fleet", "node publish", "reconcile"}
COMMANDS = [
    *(name for name in SUBCOMMANDS if name != "node"),
    *(f"node {name}" for name in NODE_SUBCOMMANDS),
]


def found(words: str) -> click.Command:
    """Return the command of some words."""
    command: click.Command = program
    for word in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    return command


def options(words: str) -> list[click.Option]:
    command = found(words)
    return [
        one for one in command.get_params(click.Context(command)) if isinstance(one, click.Option)
    ]


def shown_options(text: str) -> list[str]:
    """Return the names at the beginnings of lines, where a help has its options."""
    every = text.splitlines()
    first = next(place for place, line in enumerate(every) if line[:-1] in SECTIONS)
    lines = [line.strip() for line in every[first:] if line.startswith("  -")]
    return [
        word.strip(",")
        for line in lines
        for word in line.split("  ")[0].split()
        if word.startswith("-")
    ]


@pytest.mark.parametrize("words", ["", "node", *COMMANDS])
def test_a_help_is_one_screen_with_an_example_first(alignup, words):
    lines = alignup(*words.split(), "--help").out.splitlines()
    assert len(lines) <= MOST_LINES
    examples = help_paragraphs(found(words))[1].split("\n")
    assert all(line.split()[0] in {"alignup", "kubectl"} for line in examples)
    assert f"  {examples[0]}" in lines[:EXAMPLE_WITHIN]


@pytest.mark.parametrize("words", COMMANDS)
def test_examples_can_be_typed(words):
    """Each is of the command, with options that it has and values that they take."""
    for line in help_paragraphs(found(words))[1].split("\n"):
        [_, *typed] = shlex.split(line.replace("kubectl alignup", "alignup"))
        assert typed[: len(words.split())] == words.split()
        command = found(words)
        assert isinstance(command, HelpWithSections)
        command.make_context(words, typed[len(words.split()) :])


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_is_in_one_section_of_the_whole_help(alignup, words):
    text = alignup(*words.split(), "--help-all").out
    assert sorted(shown_options(text)) == sorted(
        name for one in options(words) for name in (*one.opts, *one.secondary_opts)
    )
    headings = [
        line.rstrip(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "
    ]
    assert headings == [
        name for name in SECTIONS if any(section_of(one) == name for one in options(words))
    ]
    assert all(
        "".join(part.split()) in "".join(text.split()) for part in help_paragraphs(found(words))
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_short_help_counts_what_it_leaves_out(alignup, words):
    text, whole = (alignup(*words.split(), option).out for option in ("--help", "--help-all"))
    left = [one for one in options(words) if not set(one.opts) & set(shown_options(text))]
    assert all(set(one.opts) <= set(shown_options(whole)) for one in left)
    assert (f"({len(left)} more)" in text) == bool(left)


def test_a_command_by_itself_has_the_short_name_of_help_too():
    """As a test calls it, or whoever puts a command into a program of their own."""
    shown = CliRunner().invoke(found("run"), ["-h"])
    assert (shown.exit_code, shown.output.splitlines()[0]) == (
        0,
        "Usage: run [OPTIONS] -- COMMAND...",
    )


def test_sections_and_rare_options_name_options_that_there_are():
    """One section each; what is rare in one command is not rare in all."""
    known = {name for words in COMMANDS for one in options(words) for name in one.opts}
    listed = [name for names in SECTIONS.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert set(listed) <= known
    for name in RARE:
        command, _, option = name.rpartition(":")
        assert option in (
            {each for one in options(command) for each in one.opts} if command else known
        )
        assert not command or option not in RARE


@pytest.mark.parametrize("words", COMMANDS)
def test_programs_can_read_every_command(words):
    """Objects of JSON, on standard output or on a descriptor; servers log them."""
    names = {name for one in options(words) for name in one.opts}
    assert (
        "--log-format" if words in SERVERS else "--json-fd" if words == "run" else "--json"
    ) in names
