"""Why a subcommand failed is said in a line, and its exit status is none of a refusal."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click
import pytest

from alignup.cli import failures
from alignup.cli.program import exit_status


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
    alignup, monkeypatch, arguments: tuple[str, ...], missing: str, extra: str
) -> None:
    """In one line, before anything is done."""
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
