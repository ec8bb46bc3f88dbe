"""A log line for machines is one JSON object."""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import warnings

import pytest

from alignup.cli import agent
from alignup.cli.agent import JournalFormatter, JSONFormatter, start_logging
from alignup.errors import InputError


def test_a_record_is_one_object():
    record = logging.LogRecord("alignup.x", logging.WARNING, "", 1, "a %s\nb", ("line",), None)
    record.created, record.msecs, record.lease = 0.25, 250.0, "id"
    assert json.loads(JSONFormatter().format(record)) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "alignup.x",
        "message": "a line\nb",
        "lease": "id",
    }


def test_warnings_and_tracebacks_are_logged_too(capsys, monkeypatch):
    names = ("alignup", "aiohttp", "asyncio")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    before = [(logging.getLogger(name), logging.getLogger(name).__dict__.copy()) for name in names]
    try:
        start_logging("json", "info")
        for _ in range(3):  # which comes with each look at something
            warnings.showwarning(UserWarning("odd"), UserWarning, "file", 1)
        for _ in range(100):  # in a second
            logging.getLogger("asyncio").error(
                "socket.accept() out of system resource\n<socket>",
                exc_info=OSError(24, "Too many open files"),
            )

        try:
            _ = 1 / 0
        except ZeroDivisionError:
            logging.getLogger("alignup.y").exception("failed")
    finally:
        for logger, state in before:
            logger.__dict__.update(state)

    first, second, third = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["message"] == "odd"
    assert second["message"].startswith(
        r"socket.accept() out of system resource\n<socket>: OSError: [Errno 24] Too many"
    )
    assert "traceback" not in second
    assert "ZeroDivisionError" in third["traceback"]


def test_the_same_line_is_logged_again_after_a_pause(monkeypatch):
    log_filter = agent._WithoutTraceback()
    logged = []
    for moment, words in (
        (1000, "a"),
        (1001, "a"),
        (1011, "a"),
        (1021.5, "a"),
        (1022, "b"),
        (1022, "a"),
        (1022, "a"),
    ):
        monkeypatch.setattr(agent.time, "monotonic", lambda moment=moment: moment)
        error = OSError(24, words)
        record = logging.LogRecord("asyncio", 40, "", 1, "failed", (), (OSError, error, None))
        if log_filter.filter(record):
            logged.append((moment, words))
    assert logged == [(1000, "a"), (1021.5, "a"), (1022, "b"), (1022, "a")]


def test_a_program_that_may_open_few_files_does_not_start(monkeypatch):
    """It would have none left for what it is asked."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20, 63))
    with pytest.raises(InputError, match="expected at least 64 open files, got 63 at ulimit -n"):
        start_logging("json", "info")


@pytest.mark.parametrize(
    ("level", "priority"),
    [("CRITICAL", 2), ("ERROR", 3), ("WARNING", 4), ("INFO", 6), ("DEBUG", 7)],
)
def test_the_journal_is_told_the_priority_of_each_line(level, priority):
    record = logging.LogRecord("x", getattr(logging, level), "", 1, "two\nlines", (), None)
    assert (
        JournalFormatter(logging.Formatter()).format(record)
        == f"<{priority}>two\n<{priority}>lines"
    )


@pytest.mark.parametrize(
    ("stream", "line"),
    [("its own", "<4>WARNING odd\n"), ("1:2", "WARNING odd\n"), ("", "WARNING odd\n")],
)
def test_only_the_journal_is_told_priorities(tmp_path, stream, line):
    """It says which file it reads.

    A program that was started by another with that variable may have another one.
    """
    program = (
        "import logging\nfrom alignup.cli.agent import start_logging\n"
        "start_logging('text', 'info')\nlogging.getLogger('alignup').warning('odd')"
    )
    with (tmp_path / "log").open("w") as log:
        file_status = os.fstat(log.fileno())
        named = f"{file_status.st_dev}:{file_status.st_ino}" if stream == "its own" else stream
        subprocess.run(  # noqa: S603  # ours
            [sys.executable, "-c", program],
            stderr=log,
            check=True,
            env={**os.environ, "JOURNAL_STREAM": named},
        )

    assert (tmp_path / "log").read_text() == line
