"""The help of every command: short, an example first, options by section.

`--help-all` has all of them. Values of options are completed as click's scripts ask for it.
"""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from alignup.cli.options import (
    RARE,
    SECTIONS,
    HelpWithSections,
    complete_versions,
    help_paragraphs,
    one_of,
    section_of,
)
from alignup.cli.program import (
    NODE_SUBCOMMANDS,
    SUBCOMMANDS,
    program,
)
from alignup.host.leases.file import LeaseFile
from inputs import leasing

MOST_LINES = 50
EXAMPLE_WITHIN = 10
SERVERS = {"agent", "extender", "fleet", "gates", "node publish", "reconcile"}
COMMANDS = [
    *(name for name in SUBCOMMANDS if name != "node"),
    *(f"node {name}" for name in NODE_SUBCOMMANDS),
]


def command_of(path: str) -> click.Command:
    """Return the command of a path, such as `node show`."""
    command: click.Command = program
    for word in path.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    return command


def options_of(path: str) -> list[click.Option]:
    command = command_of(path)
    return [
        parameter
        for parameter in command.get_params(click.Context(command))
        if isinstance(parameter, click.Option)
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


@pytest.mark.parametrize("path", ["", "node", *COMMANDS])
def test_a_help_is_one_screen_with_an_example_first(alignup, path):
    lines = alignup(*path.split(), "--help").out.splitlines()
    assert len(lines) <= MOST_LINES
    examples = help_paragraphs(command_of(path))[1].split("\n")
    assert all(line.split()[0] in {"alignup", "kubectl"} for line in examples)
    assert f"  {examples[0]}" in lines[:EXAMPLE_WITHIN]


@pytest.mark.parametrize("path", COMMANDS)
def test_examples_can_be_typed(path):
    """Each is of the command, with options that it has and values that they take."""
    for line in help_paragraphs(command_of(path))[1].split("\n"):
        [_, *typed] = shlex.split(line.replace("kubectl alignup", "alignup"))
        assert typed[: len(path.split())] == path.split()
        command = command_of(path)
        assert isinstance(command, HelpWithSections)
        command.make_context(path, typed[len(path.split()) :])


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_in_one_section_of_the_whole_help(alignup, path):
    text = alignup(*path.split(), "--help-all").out
    assert sorted(shown_options(text)) == sorted(
        name for option in options_of(path) for name in (*option.opts, *option.secondary_opts)
    )
    headings = [
        line.rstrip(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "
    ]
    assert headings == [
        name for name in SECTIONS if any(section_of(option) == name for option in options_of(path))
    ]
    assert all(
        "".join(part.split()) in "".join(text.split()) for part in help_paragraphs(command_of(path))
    )


@pytest.mark.parametrize("path", COMMANDS)
def test_a_short_help_counts_what_it_leaves_out(alignup, path):
    text, whole = (alignup(*path.split(), option).out for option in ("--help", "--help-all"))
    hidden_options = [
        option for option in options_of(path) if not set(option.opts) & set(shown_options(text))
    ]
    assert all(set(option.opts) <= set(shown_options(whole)) for option in hidden_options)
    assert (f"({len(hidden_options)} more)" in text) == bool(hidden_options)


def test_a_command_by_itself_has_the_short_name_of_help_too():
    """As a test calls it, or whoever puts a command into a program of their own."""
    shown = CliRunner().invoke(command_of("run"), ["-h"])
    assert (shown.exit_code, shown.output.splitlines()[0]) == (
        0,
        "Usage: run [OPTIONS] -- COMMAND...",
    )


def test_sections_and_rare_options_name_options_that_there_are():
    """One section each; what is rare in one command is not rare in all."""
    option_names = {
        name for path in COMMANDS for option in options_of(path) for name in option.opts
    }
    listed = [name for names in SECTIONS.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert set(listed) <= option_names
    for name in RARE:
        command, _, option_name = name.rpartition(":")
        if not command:
            assert option_name in option_names
            continue

        assert any(option_name in option.opts for option in options_of(command))
        assert option_name not in RARE


@pytest.mark.parametrize("path", COMMANDS)
def test_programs_can_read_every_command(path):
    """Objects of JSON, on standard output or on a descriptor; servers log them."""
    expected = {"run": "--json-fd", **dict.fromkeys(SERVERS, "--log-format")}
    names = {name for option in options_of(path) for name in option.opts}
    assert expected.get(path, "--json") in names


def completed(command_line: str) -> list[str]:
    """Return the answers to a command line whose last word is being typed.

    Kind and value, one a line.
    """
    environment = {
        "_ALIGNUP_COMPLETE": "bash_complete",
        "COMP_WORDS": command_line,
        "COMP_CWORD": str(len(command_line.split(" ")) - 1),
    }
    return CliRunner().invoke(program, env=environment, prog_name="alignup").output.split()


def test_machines_of_the_catalog():
    assert completed("alignup admit --machine align-up") == ["plain,align-up-article"]


def test_other_machines_are_files():
    assert completed("alignup machine -m ./some") == ["file,./some"]


def test_files_are_left_to_the_shell():
    for command_line in (
        "admit po",
        "admit --config ku",
        "explain po",
        "replay sc",
        "rank --nodes no",
        "simulate --nodes no",
        "run --devices de",
    ):
        assert completed(f"alignup {command_line}") == [f"file,{command_line.split()[-1]}"], (
            command_line
        )


@pytest.mark.parametrize(
    ("command_line", "value"),
    [
        ("run --policy single", "single-numa-node"),
        ("run --part a", "auto"),
        ("run --spread n", "numa"),
        ("split --layout s", "socket"),
        ("rank --strategy most", "most-allocated"),
        ("rank --koordinator-profile d", "document"),
        ("admit --kubelet-version 1.36,1.3", "1.36,1.37"),
        ("replay --compare none,restricted/", "none,restricted/pod"),
        ("claims --release 1.3", "1.36"),
        ("fleet --machine gb", "gb200"),
        ("node export --format n", "nrt"),
        ("extender --fail c", "closed"),
    ],
)
def test_values_complete(command_line, value):
    """Of a list, its last part."""
    assert f"plain,{value}" in [
        completion.replace("\n", ",") for completion in completed(f"alignup {command_line}")
    ]


def test_names_of_leases_complete(tmp_path):
    file = LeaseFile(tmp_path / "leases.json", pytest.fail)
    leasing.put(file, leasing.record("training"), leasing.record("tests"))
    assert completed(f"alignup release --state {file.path} trai") == ["plain,training"]
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    assert completed(f"alignup release --state {damaged} x") == []


def test_values_are_completed() -> None:
    assert [completion.value for completion in one_of("best-effort", "none")(None, None, "b")] == [
        "best-effort"
    ]
    assert "1.33" in [completion.value for completion in complete_versions(None, None, "1.3")]
