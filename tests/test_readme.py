"""Every command and program in the README does what the README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


def sessions() -> list[tuple[str, str]]:
    """Return each command after a prompt, with the output shown below it."""
    found = []
    for block in CONSOLE:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def matches(shown: str, printed: str) -> bool:
    """Return whether the output is as shown: `...` stands for any lines, trailing blanks do not count."""
    shown_lines = [line.rstrip() for line in shown.splitlines()]
    text = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
    parts = [re.escape("\n".join(part).strip("\n")) for part in split_at_dots(shown_lines)]
    return re.fullmatch(r"[\s\S]*".join(parts), text) is not None


def split_at_dots(lines: list[str]) -> list[list[str]]:
    """Split lines at each line of dots."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all commands, as a reader has: what one writes a later one reads.

    The tests of a file are not dealt out to several processes (see conftest.py).
    """
    path = tmp_path_factory.mktemp("reader")
    (path / "tests").symlink_to(ROOT / "tests")
    return path


@pytest.mark.parametrize(("command", "shown"), sessions(), ids=lambda value: str(value)[:40])
def test_a_command_prints_what_is_shown(command: str, shown: str, folder: Path) -> None:
    """Commands run in the order of the README."""
    scripts = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder),
        "PYTHONIOENCODING": "utf-8",
    }

    done = subprocess.run(  # noqa: S603  # the README's own commands
        ["/bin/bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == (1 if "✗" in shown else 0), done.stderr
    assert matches(shown, done.stdout), done.stdout + done.stderr


def test_pictures_are_what_the_commands_draw(folder: Path) -> None:
    """A picture that has changed is drawn anew with its command, and put into docs/pictures."""
    pictures = re.findall(r"\((docs/pictures/([\w.]+\.svg))\)", README)
    assert pictures
    for path, name in pictures:
        assert (ROOT / path).read_text("utf-8") == (folder / name).read_text("utf-8"), path


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_runs(program: str) -> None:
    """Programs check what they show by assertions of their own."""
    exec(compile(program, "README.md", "exec"), {})  # noqa: S102  # that is what a README's program is for


def test_the_two_commands_are_one_line_each() -> None:
    """Setting up and testing take one line each, and the line that launches ranks is shown."""
    assert [len(block.strip().splitlines()) for block in SHELL] == [1, 1, 1]
    assert SHELL[0].strip().endswith("alignup admit --machine align-up-article")
    assert "pytest" in SHELL[-1]
