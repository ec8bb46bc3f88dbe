"""Runs a headless Chromium, where one is installed, and asks it how it laid a page out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")

MEASURE = """
<script>
const found = [];
for (const svg of document.querySelectorAll("svg.au")) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].filter(text => text.getClientRects().length);
  const boxes = texts.map(text => { const r = text.getBoundingClientRect();
    return {text: text.textContent, left: r.left, right: r.right,
      top: r.top + 1, bottom: r.bottom - 2}; });
  boxes.forEach((a, i) => {
    if (a.left < frame.left || a.right > frame.right + 1 ||
        a.top < frame.top || a.bottom > frame.bottom + 1)
      found.push("outside: " + a.text);
    boxes.slice(i + 1).forEach(b => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom && b.top < a.bottom)
        found.push("overlap: " + a.text + " and " + b.text);
    });
  });
}
const seen = document.createElement("pre");
seen.id = "measured";
seen.textContent = JSON.stringify({found: found.slice(0, 20),
  texts: document.querySelectorAll("svg.au text").length,
  width: document.documentElement.scrollWidth});
document.body.appendChild(seen);
</script>
"""


FIT = """
<script>
const cut = [...document.querySelectorAll(".scrolling")].filter(
  table => table.scrollWidth > table.clientWidth + 1);
const broken = [];
for (const heading of document.querySelectorAll("h1, h2, h3, th")) {
  const words = heading.textContent.split(/\\s+/).filter(Boolean).length;
  const range = document.createRange();
  range.selectNodeContents(heading);
  const lines = new Set([...range.getClientRects()].map(r => Math.round(r.top))).size;
  if (lines > words) broken.push(heading.textContent);
}
const measured = document.createElement("pre");
measured.id = "measured";
measured.textContent = JSON.stringify({
  cut: cut.map(table => table.textContent.slice(0, 60)), broken,
  page: document.documentElement.scrollWidth - document.documentElement.clientWidth});
document.body.appendChild(measured);
</script>
"""
"""Tells which tables and pictures are wider than the page.

And which headings have more lines than words.
"""


def browser() -> str:
    """Return the program; skip the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed")
    return program


def run(page: Path, *options: str) -> str:
    """Show a page without a window, and return the standard output."""
    command = [
        browser(),
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={page.parent}/profile",
    ]
    if os.geteuid() == 0:
        command.append("--no-sandbox")  # it refuses to run as root with one

    done = subprocess.run(  # noqa: S603  # a browser on a page of ours
        [*command, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def measured(page: Path, width: int = 1600) -> Any:
    """Return what a browser finds in a page that ends in `MEASURE` or `FIT`."""
    text = run(page, "--dump-dom", f"--window-size={width},1200")
    seen = re.search(r'<pre id="measured">(.*?)</pre>', text, re.DOTALL)
    assert seen
    return json.loads(unescape(seen[1]))


def screenshot(page: Path, width: int, height: int) -> bytes:
    """Return what a browser shows, as a PNG file."""
    path = page.with_suffix(".png")
    run(page, f"--screenshot={path}", f"--window-size={width},{height}")
    return path.read_bytes()
