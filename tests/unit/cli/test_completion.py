"""The shell's completion of values, as click's scripts ask for it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from alignup.cli import complete_for_kubectl
from alignup.cli.program import NODE_SUBCOMMANDS, SUBCOMMANDS, program
from alignup.host.leases.file import LeaseFile
from inputs import leasing


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


def test_a_misspelt_subcommand_is_guessed():
    result = CliRunner().invoke(program, ["amdit"])
    assert result.exit_code == 2
    assert "No such command 'amdit'. Did you mean 'admit'?" in result.stderr
    assert "Did you mean" not in CliRunner().invoke(program, ["xyz"]).stderr


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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_have_scripts(shell):
    script = (
        CliRunner()
        .invoke(program, env={"_ALIGNUP_COMPLETE": f"{shell}_source"}, prog_name="alignup")
        .output
    )
    assert "_ALIGNUP_COMPLETE" in script


def test_every_help_has_its_exit_status(alignup):
    """That of the program and of groups too."""
    for subcommand in (
        (),
        ("node",),
        *((name,) for name in SUBCOMMANDS),
        *(("node", name) for name in NODE_SUBCOMMANDS),
    ):
        assert "Exit status: " in alignup(*subcommand, "--help").out


def test_misspelt_commands_of_a_group_are_guessed(alignup):
    assert "Did you mean 'check'?" in alignup("node", "chek").err
    assert alignup("help", "node", "check") == alignup("node", "check", "--help")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["wh"], ["why", ":4"]),
        (["rebalance", "--cont"], ["--continuous", ":4"]),
        (["why", "--kubeconfig", ""], [":0"]),
    ],
)
def test_kubectl_completes_as_its_plugins_do(typed, expected, monkeypatch, capsys):
    """The words that can come, and cobra's directive: no files (4), or files (0)."""
    monkeypatch.setattr("sys.argv", ["kubectl_complete-alignup", *typed])
    complete_for_kubectl()
    assert capsys.readouterr().out.splitlines() == expected
