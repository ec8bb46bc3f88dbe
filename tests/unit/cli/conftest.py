"""The whole program in this process: words in; exit status, output and complaints out."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from alignup.cli.program import exit_status, program
from inputs.refusals import GPU, wish

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines; any other line is an error."""
        return [json.loads(line) for line in self.out.splitlines()]

    def complains(self, *parts: str, status: int = 2) -> bool:
        """Return whether the end is that status with one complaint that has these parts.

        The complaint is one line on standard error, and standard output is empty.
        """
        one_line = (
            self.err.startswith("alignup: ")
            and self.err.count("\n") == 1
            and self.err.endswith("\n")
        )
        return (
            self.status == status
            and not self.out
            and one_line
            and all(part in self.err for part in parts)
        )


@pytest.fixture
def alignup(monkeypatch, capfdbinary):
    """Return a function that runs the program with words and standard input.

    What it logs ends with the test.
    """
    loggers = [logging.getLogger(name) for name in ("alignup", "aiohttp", "asyncio")]
    before = [(logger, logger.handlers, logger.level, logger.propagate) for logger in loggers]
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def run(*words: object, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "argv", ["alignup", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        capfdbinary.readouterr()
        status = exit_status(program)
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Ended(status, captured.out.decode(), captured.err.decode())

    yield run
    for logger, logger.handlers, level, logger.propagate in before:
        logger.setLevel(level)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes data to a file and returns its path.

    Data is written as JSON unless it is text or bytes.
    """

    def into(name: str, content: Any) -> str:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return str(path)

    return into


@pytest.fixture
def conflict(tmp_path: Path) -> str:
    """Three pods, of which the last is refused on the article's machine."""
    pods = [
        wish("trainer", cpu="1", **{GPU: "1"}),
        wish("batch", cpu="4"),
        wish("new", cpu="2", **{GPU: "1"}),
    ]
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "items": pods}))
    return str(path)
