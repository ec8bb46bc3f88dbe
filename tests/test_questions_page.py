"""The nine questions of docs/dev/questions.md have their answers where that page says.

Each answer stands under a heading that there is, at most three clicks from the start page, and its
command or program is in a block that tests/test_pages.py runs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_pages import BLOCK

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "dev" / "questions.md").read_text(encoding="utf-8")
CLICKS = 3
LINK = re.compile(r"\]\(([^)#:\s]+\.md)")
ANSWER = re.compile(
    r"^\| `[^`]+` \| [^|]+ \| \[([^]]+)\]\(\.\./([^)#]+)#?([^)]*)\) \| `(.+)` \|$", re.MULTILINE
)
ANSWERS = ANSWER.findall(PAGE)


def clicks() -> dict[Path, int]:
    """Return how many clicks lead from the start page to each page by links in texts."""
    counts = {DOCS / "index.md": 0}
    for page, count in (pages := list(counts.items())):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if target not in counts and target.exists():
                counts[target] = count + 1
                pages.append((target, count + 1))

    return counts


def anchor(heading: str) -> str:
    """Return the address of a heading within its page, as MkDocs makes it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def blocks_that_run(text: str) -> list[str]:
    return [
        block
        for language, title, block in BLOCK.findall(text)
        if title or language in {"console", "python"}
    ]


def test_nine_questions_have_an_answer() -> None:
    questions = re.findall(r"^\| (operator|trainer|Python) \|", PAGE, re.MULTILINE)

    assert sorted(questions) == ["Python"] * 3 + ["operator"] * 3 + ["trainer"] * 3
    assert len(ANSWERS) == len(questions)


@pytest.mark.parametrize(("title", "page", "heading", "command"), ANSWERS)
def test_an_answer_is_where_the_page_says(title, page, heading, command) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    prose = BLOCK.sub("", text)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)

    assert title == headings[0]
    assert not heading or heading in map(anchor, headings)
    assert clicks()[DOCS / page] <= CLICKS
    assert any(command.replace("\\|", "|") in block for block in blocks_that_run(text)), command
