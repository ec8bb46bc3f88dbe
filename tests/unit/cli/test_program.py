"""The program as a whole: exit status, help, and how it ends when things go wrong."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from alignup.cli import complete_for_kubectl, main
from alignup.cli.program import (
    NODE_SUBCOMMANDS,
    SUBCOMMANDS,
    let_write_anything,
    program,
)

SCENARIO = (
    b'{"machine": {"numaNodes": [{"id": 0, "memory": 1, "cores": [{"cpus": [0], "socket": 0}]}]}}\n'
)
ANSWER = b'{"name":"","steps":[]}\n'
SCRIPT = Path(sys.executable).with_name("alignup")

installed = pytest.mark.skipif(
    not SCRIPT.exists(), reason="the script alignup is not installed beside this Python"
)


def test_every_subcommand_has_help(alignup) -> None:
    """The program lists them all without importing one, and each explains itself."""
    ended = alignup("--help")
    assert ended.status == 0
    for name, line in SUBCOMMANDS.items():
        assert f"{name} " in ended.out
        assert line in " ".join(ended.out.split())
        shown = alignup(name, "-h")
        assert (shown.status, shown.err) == (0, "")
        assert f"alignup {name}" in shown.out


def test_help_is_a_subcommand_too(alignup) -> None:
    assert alignup("help") == alignup("--help")
    assert alignup("help", "ps") == alignup("ps", "--help")
    assert "Did you mean 'ps'?" in alignup("help", "pss").err


def test_the_version(alignup) -> None:
    ended = alignup("--version")

    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("alignup ")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "alignup", "--version"], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("alignup ")


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_help_says_what_the_exit_status_means(alignup, name: str) -> None:
    assert "exit status" in " ".join(alignup(name, "--help").out.lower().split())


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_no_help_leaves_a_value_open(alignup, name: str) -> None:
    """Choices, forms or kinds of values are shown, and not that they are text."""
    assert "TEXT" not in alignup(name, "--help").out


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["admit", "--bogus"], ["replay"], ["machine", "--json", "extra"]]
)
def test_bad_usage_is_status_2(alignup, arguments: list[str]) -> None:
    """Click's own words on standard error, and nothing on standard output."""
    ended = alignup(*arguments)

    assert (ended.status, ended.out) == (2, "")
    assert "Error: " in ended.err


def test_subcommands_are_imported_when_they_are_called() -> None:
    """Help must not cost what rich, PyYAML or numpy cost."""
    heavy = (
        "import sys; print([m for m in ('rich', 'yaml', 'numpy', 'msgspec') if m in sys.modules])"
    )
    code = f"from alignup.cli.program import exit_status, program\nexit_status(program)\n{heavy}"
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_streams_can_be_other_peoples() -> None:
    """Only what would raise an error is changed."""
    ours, theirs = (
        io.TextIOWrapper(io.BytesIO(), "ascii", errors=errors)
        for errors in ("strict", "backslashreplace")
    )
    for stream in (ours, theirs, io.StringIO(), None):
        let_write_anything(stream)

    assert (ours.errors, theirs.errors) == ("replace", "backslashreplace")


def test_subcommands_by_name() -> None:
    """In the order in which help lists them; an unknown one is none."""
    context = click.Context(program)

    assert program.list_commands(context) == list(SUBCOMMANDS)
    assert program.get_command(context, "bogus") is None
    assert [program.get_command(context, name).name for name in SUBCOMMANDS] == list(SUBCOMMANDS)


def test_nobody_reads_the_output(alignup, monkeypatch) -> None:
    """What SIGPIPE would say, wherever the subcommand notices."""
    forgotten = []

    def fail(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("alignup.cli.program.forget_output", lambda: forgotten.append(True))
    monkeypatch.setattr("alignup.machine.load.load_with_devices", fail)

    assert alignup("machine").status == 141
    assert forgotten == [True]


def test_the_entry_point_exits_with_the_status(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["alignup", "bogus"])

    with pytest.raises(SystemExit) as caught:
        main()

    assert caught.value.code == 2


@pytest.mark.parametrize("closed", ["1>&-", "0<&- 1>&-"])
def test_closed_output_is_said(closed: str) -> None:
    """As of any program that cannot write."""
    done = run_in_shell(closed, "machine", "--machine", "dgx-h100")

    assert (done.returncode, done.stderr) == (
        2,
        b"alignup: bad file descriptor at standard output\n",
    )


def test_closed_input_is_said() -> None:
    """It is not taken for an empty file."""
    done = run_in_shell("0<&-", "admit", "--machine", "dgx-h100", "-")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"alignup: cannot read '-': bad file descriptor\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    "arguments", [("admit", "no-such-file"), ("bogus",), ("release", "nobody", "--state", "/x/y")]
)
def test_complaints_that_cannot_be_written_keep_the_status(arguments: tuple[str, ...]) -> None:
    """They are lost, it is not."""
    assert (
        run_in_shell("2>/dev/full", *arguments).returncode
        == run_in_shell("", *arguments).returncode
        > 0
    )


def test_too_few_files_may_be_open(tmp_path: Path) -> None:
    """One line, whichever import or file it is that cannot be opened."""
    ways = (
        ("machine", "--machine", "dgx-h100"),
        ("run", "--state", str(tmp_path / "l.json"), "--cpus", "1", "true"),
    )
    for limit in (5, 7):  # with fewer, the interpreter itself does not start
        for arguments in ways:
            done = run_in_shell("", *arguments, before=f"ulimit -n {limit};")
            assert b"Traceback" not in done.stderr, (limit, done.stderr)


def run_in_shell(
    redirections: str, *arguments: str, before: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run the program as a shell does with some redirections."""
    program = [sys.executable, "-c", "from alignup.cli import main; main()", *arguments]
    command = ["/bin/sh", "-c", f'{before} exec "$@" {redirections}', "sh", *program]
    return subprocess.run(command, capture_output=True, check=False)  # noqa: S603  # ours


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start the installed script, with pipes for its output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([SCRIPT, *map(str, arguments)], **pipes)  # noqa: S603 - our own script


def script(*arguments: object) -> tuple[int, bytes, bytes]:
    """Run the installed script; return its status, output and complaints."""
    with start(*arguments) as running:
        out, err = running.communicate(timeout=60)
        return running.returncode, out, err


@installed
def test_the_script_admits_and_refuses() -> None:
    """Status 0 for the article's pod, 1 when there is a second one."""
    admitted, _, complaints = script("admit", "--machine", "align-up-article")
    refused, _, more = script("admit", "--machine", "align-up-article", "--replicas", 2)

    assert (admitted, refused, complaints, more) == (0, 1, b"", b"")


@installed
@pytest.mark.parametrize("encoding", ["iso8859-1", "ascii", "cp437", "utf-8"])
def test_any_encoding_will_do(monkeypatch, tmp_path, encoding: str) -> None:
    """What it lacks is replaced, and marks have words that stand for them."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    status, out, err = script("admit", "--machine", "align-up-article", "--replicas", 2)
    marks = ("✓", "✗") if encoding == "utf-8" else ("ok", "no")
    lines = out.decode(encoding).splitlines()

    assert (status, err) == (1, b"")
    assert f"{marks[0]} default/numa-aligned-0 admitted" in lines
    assert f"{marks[1]} default/numa-aligned-1 refused: TopologyAffinityError" in lines
    assert script("admit", "--machine", tmp_path / "日本")[0] == 2


@installed
def test_the_script_has_no_traceback(tmp_path) -> None:
    """A file that is not there, and one that is a directory."""
    for name in (tmp_path / "none.yaml", tmp_path):
        status, out, err = script("admit", "--machine", "align-up-article", name)
        assert (status, out) == (2, b"")
        assert err.startswith(b"alignup: cannot read ")
        assert err.count(b"\n") == 1


@installed
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_closed_pipe_ends_the_script_quietly(tmp_path) -> None:
    """As in `alignup replay --json FILE | head -1`."""
    many = tmp_path / "many.jsonl"
    many.write_bytes(SCENARIO * 20_000)
    with start("replay", "--json", many) as running:
        assert running.stdout.readline() == ANSWER
        running.stdout.close()
        complaints = running.stderr.read()
        assert (running.wait(60), complaints) == (141, b"")


@installed
@pytest.mark.parametrize("columns", ["", "80", "100"])
def test_a_pipe_that_nobody_reads_is_no_refusal(monkeypatch, columns: str) -> None:
    """As in `alignup admit ... | head -1`; 1 says refused.

    It is so where COLUMNS asks for rich's tables, too.
    """
    monkeypatch.setenv("COLUMNS", columns)
    ours, theirs = os.pipe()
    os.close(ours)
    with (
        os.fdopen(theirs, "wb") as pipe,
        start("admit", "-m", "align-up-article", stdout=pipe) as running,
    ):
        assert running.stderr.read() == b""
        assert running.wait(60) == 141


def test_an_interrupt_while_the_program_is_imported_is_no_traceback(monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.__import__", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


@installed
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_one_line() -> None:
    with (
        Path("/dev/full").open("wb") as full,
        start("machine", "-m", "gb200", stdout=full) as running,
    ):
        assert running.stderr.read() == b"alignup: no space left on device at standard output\n"
        assert running.wait(60) == 2


@installed
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_script_without_a_traceback() -> None:
    """Scenarios are answered as they come, so that it is known to wait for the next one."""
    # a shell that runs the tests in the background lets its children ignore the signal
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with start("replay", "--json", "-", stdin=subprocess.PIPE, preexec_fn=heard) as running:
        running.stdin.write(SCENARIO)
        running.stdin.flush()
        answer = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)

    assert (running.returncode, answer, out, err.strip()) == (130, ANSWER, b"", b"")


def test_the_version_needs_no_program() -> None:
    """Nor anything else that is slow to import."""
    start = "import sys; sys.argv = ['alignup', '-V']; from alignup.cli import main"
    code = f"{start}; main(); print('click' in sys.modules)"
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"alignup {metadata.version('alignup')}\nFalse\n"


def test_a_misspelt_subcommand_is_guessed():
    result = CliRunner().invoke(program, ["amdit"])
    assert result.exit_code == 2
    assert "No such command 'amdit'. Did you mean 'admit'?" in result.stderr
    assert "Did you mean" not in CliRunner().invoke(program, ["xyz"]).stderr


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
