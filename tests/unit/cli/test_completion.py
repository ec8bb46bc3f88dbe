"""The shell's completion of values, as click's scripts ask for it."""

from __future__ import annotations

from click.testing import CliRunner

from alignup.cli.program import program


def completed(words: str) -> list[str]:
    """Return the answers to a command line whose last word is being typed: kind and value, one a line."""
    asked = {"_ALIGNUP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    return CliRunner().invoke(program, env=asked, prog_name="alignup").output.split()


def test_machines_of_the_catalog():
    assert completed("alignup admit --machine align-up") == ["plain,align-up-article"]


def test_other_machines_are_files():
    assert completed("alignup machine -m ./some") == ["file,./some"]


def test_files_are_left_to_the_shell():
    for words in (
        "admit po",
        "admit --config ku",
        "explain po",
        "replay sc",
        "rank --nodes no",
        "simulate --nodes no",
        "run --devices de",
    ):
        assert completed(f"alignup {words}") == [f"file,{words.split()[-1]}"], words


def test_a_misspelt_subcommand_is_guessed():
    result = CliRunner().invoke(program, ["amdit"])
    assert result.exit_code == 2
    assert "No such command 'amdit'. Did you mean 'admit'?" in result.stderr
    assert "Did you mean" not in CliRunner().invoke(program, ["xyz"]).stderr
