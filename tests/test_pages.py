"""Every command and program in the README and on the pages of the site does what the page shows.

A block of a page is a file where it has a title (```yaml title="pod.yaml"), a session of commands
with what they print (console), or a program that checks itself by assertions (python). Other blocks
(sh, py) need what a test has not: a cluster, a GPU, root.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if re.search(r"^```(console|python|\w+ title=)", page.read_text("utf-8"), re.MULTILINE)
)
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks() -> list[Any]:
    """Return page, language, title and text of every block that is run, as parameters of a test."""
    parameters = []
    for page in PAGES:
        for number, (language, title, text) in enumerate(
            BLOCK.findall((ROOT / page).read_text("utf-8")), 1
        ):
            if title or language in {"console", "python"}:
                parameters.append(pytest.param(page, language, title, text, id=f"{page}-{number}"))
    return parameters


def sessions(text: str) -> list[tuple[str, str]]:
    """Return each command after a prompt, with the output shown below it.

    `> ` goes on with a command.
    """
    commands = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, shown = re.match(r"((?:.*\n)(?:> .*\n)*)([\s\S]*)", part).groups()
        commands.append((command.replace("\n> ", "\n"), shown))
    return commands


def matches(shown: str, printed: str) -> bool:
    """Return whether the output is as shown.

    `...` stands for any lines, trailing blanks do not count.
    """
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
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """By page, one folder and one namespace for all its blocks, as a reader has.

    What one leaves a later one finds.

    The tests of a file are not dealt out to several processes (see conftest.py).
    """
    by_page = {}
    for page in PAGES:
        folder = tmp_path_factory.mktemp("reader")
        for name in ("tests", "examples"):
            (folder / name).symlink_to(ROOT / name)
        by_page[page] = (folder, {"__name__": "page"})
    return by_page


@pytest.mark.parametrize(("page", "language", "title", "text"), blocks())
def test_a_block_does_what_it_shows(page, language, title, text, readers, monkeypatch) -> None:
    """Blocks run in the order of their page."""
    folder, names = readers[page]
    monkeypatch.chdir(folder)
    if title:
        (folder / title).write_text(text, "utf-8")
    elif language == "python":
        # that is what a page's program is for
        exec(compile(text, page, "exec"), names)  # noqa: S102
    else:
        for command, shown in sessions(text):
            run(command, shown, folder)


def run(command: str, shown: str, folder: Path) -> None:
    """Run one command.

    One that shows a refusal, or a kubelet that would not start, ends with status 1.
    """
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder),
        "PYTHONIOENCODING": "utf-8",
    }

    arguments = ["/bin/bash", "-c", command]
    done = subprocess.run(  # noqa: S603  # the page's own commands
        arguments,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    signs = ("✗", "refused, ", "would not start", "does not start")
    refused = any(sign in shown for sign in signs)
    assert done.returncode == (1 if refused else 0), (
        f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    )
    assert matches(shown, done.stdout), f"{command}\n{done.stdout}{done.stderr}"


def test_pictures_of_explanations_show_what_is_so(monkeypatch) -> None:
    """They are as docs/pictures/draw.py draws them now."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "pictures")
    for name, picture in importlib.import_module("draw").pictures().items():
        assert (ROOT / "docs" / "pictures" / name).read_text("utf-8") == picture, name


def test_pictures_are_what_the_commands_draw(readers) -> None:
    """A picture that has changed is drawn anew with its command, and put into docs/pictures."""
    drawn = [path for folder, _ in readers.values() for path in folder.glob("*.svg")]
    assert drawn
    for path in drawn:
        assert path.read_text("utf-8") == (ROOT / "docs" / "pictures" / path.name).read_text(
            "utf-8"
        ), path.name


def test_the_two_commands_are_one_line_each() -> None:
    """Setting up and testing take one line each."""
    shell_blocks = [text for language, _, text in BLOCK.findall(README) if language == "sh"]
    assert [len(text.strip().splitlines()) for text in shell_blocks] == [1, 1]
    assert shell_blocks[0].strip().endswith("alignup admit --machine align-up-article")
    assert "pytest" in shell_blocks[1]


def test_the_readme_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= 120
