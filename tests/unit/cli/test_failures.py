"""Why a subcommand failed is said in a line, and its exit status is none of a refusal."""

from __future__ import annotations

import errno
import sys
from importlib.util import find_spec

import click
import pytest

from alignup.cli import failures
from alignup.cli.program import exit_status
from alignup.errors import InputError
from running.terminals import on_terminal


class Exited(click.ClickException):
    """An error with a status of its own."""

    exit_code = 3


def test_what_kubectl_tells_of_a_rejection_has_its_entry_among_the_messages(alignup, write):
    file = write(
        "events.txt",
        "LAST SEEN   TYPE      REASON             OBJECT      MESSAGE\n"
        "2m          Warning   FailedScheduling   pod/train   0/3 nodes are available: "
        "1 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector.\n",
    )
    ended = alignup("explain", file)
    assert ended.status == 2
    assert ended.err.rstrip().endswith("; see Messages: insufficient, node-s-didnt-match-pods-node")
    assert len(ended.err.splitlines()) == 1


def test_other_sentences_stay_as_they_are():
    sentence = 'the file is of UnexpectedAdmissionError ("no healthy devices present")'
    assert failures.with_entries(sentence) == sentence
    assert failures.with_entries('a ; it tells: b ("c")') == 'a ; it tells: b ("c")'


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), 130), (click.Abort(), 130), (OSError(28, "No space left on device"), 2)],
    ids=["Ctrl-C", "abort", "disk full"],
)
def test_interruptions_are_no_refusals(monkeypatch, error: BaseException, status: int) -> None:
    """Status 1 says that a pod was refused, and nothing else does."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["alignup"])
    monkeypatch.setattr("alignup.cli.failures.forget_output", lambda: None)

    assert exit_status(click.Command("failing", callback=fail)) == status


@pytest.mark.parametrize(
    ("error", "complaint"), [(MemoryError(), "memory"), (RecursionError(), "nested too deeply")]
)
def test_what_is_too_much_is_one_line(
    monkeypatch, capsys, error: BaseException, complaint: str
) -> None:
    """Where no reader noticed it before."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["alignup"])

    assert exit_status(click.Command("failing", callback=fail)) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [
        (("agent",), "grpc", "agent"),
        (("agent",), "google.protobuf", "agent"),
        (("extender",), "aiohttp", "cluster"),
        (("fleet", "-m", "gb200"), "kubernetes_asyncio", "cluster"),
        (("reconcile",), "aiohttp", "cluster"),
        (("node", "publish", "--name", "n"), "xxhash", "cluster"),
    ],
)
def test_a_missing_extra_is_named(
    alignup, monkeypatch, tmp_path, arguments: tuple[str, ...], missing: str, extra: str
) -> None:
    """In one line, before anything is done; where it is not, with a state of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(
        failures, "find_spec", lambda name: None if name == missing else find_spec(name)
    )
    assert alignup(*arguments).complains(
        f"the module {missing}, which is not installed: pip install 'alignup[{extra}]'"
    )


def test_a_module_of_an_extra_that_is_missed_late_is_named(monkeypatch) -> None:
    """By whichever import: the extra that has it and little else."""

    def work() -> int:
        raise ModuleNotFoundError("No module named 'xxhash'", name="xxhash")

    said: list[str] = []
    monkeypatch.setattr(failures, "complain", said.append)
    assert failures.status_of(work) == 2
    assert said == [
        "this needs the module xxhash, which is not installed: pip install 'alignup[kubelet]'"
    ]


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (InputError("no\nsuch"), "no\\nsuch"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "a.json"),
            "no such file or directory at a.json",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "no space left on device at standard output",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "too many open files"),
        (ImportError("cannot open shared object"), "cannot open shared object"),
    ],
)
def test_a_failure_is_one_line_and_the_status_that_is_asked_for(
    monkeypatch, capsys, error: BaseException, complaint: str
) -> None:
    """Only what is written elsewhere than to a named file is on standard output."""

    def work() -> int:
        raise error

    monkeypatch.setattr(failures, "forget_output", lambda: None)

    assert failures.status_of(work, 125) == 125
    assert capsys.readouterr().err == f"alignup: {complaint}\n"


@pytest.mark.parametrize(
    ("error", "status"), [(click.UsageError("x"), 125), (Exited("x"), 3), (click.Abort(), 130)]
)
def test_statuses_of_clicks_errors_are_kept_where_they_say_more(error, status: int) -> None:
    def work() -> int:
        raise error

    assert failures.status_of(work, 125) == status
    assert failures.status_of(lambda: 7, 125) == 7


def test_an_extra_is_named_by_each_module_that_it_brings() -> None:
    assert "alignup[cluster]" in failures.missing_extra("aiohttp")
    assert "alignup[kubelet]" in failures.missing_extra("google")
    assert failures.missing_extra("nobody.has.this") == ""


def test_extras_that_are_there_are_not_imported(monkeypatch) -> None:
    """A module whose package is missing is missing, too."""
    monkeypatch.setattr(failures, "EXTRAS", {"a": ("json.decoder",), "b": ("nobody.has.this",)})

    failures.need_extra("a")
    with pytest.raises(InputError, match=r"the module nobody\.has\.this, which is not installed"):
        failures.need_extra("b")


def test_words_for_a_server_are_text() -> None:
    failures.need_text("--name", "knoten-ä")
    with pytest.raises(InputError, match=r"expected UTF-8, got .* at --name"):
        failures.need_text("--name", "\udcff")


def test_on_a_terminal_a_sentence_is_broken_between_words() -> None:
    name = "no-such-file-" + "x" * 40
    text = on_terminal(50, "admit", "-m", "align-up-article", "-c", name, name)
    lines = text.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 50 or len(line.split()) == 1 for line in lines)
    assert lines[0].startswith("alignup: ")
    assert all(line.startswith("  ") for line in lines[1:])
    assert name in text


def test_a_wrong_option_is_broken_between_words() -> None:
    text = on_terminal(40, "admit", "--no-such-option-of-any-kind", "--machine", "x")
    assert "--no-such-option-of-any-kind" in text
    assert all(len(line) <= 40 or len(line.split()) == 1 for line in text.splitlines()[3:])
