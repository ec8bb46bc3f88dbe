"""Boxes, the parts of a picture as data, and how wide text is.

Boxes are arranged below each other, in rows or in a frame. A box knows its place within the box
around it. Nothing is drawn here. The width of text is estimated a little wider than common
sans-serif fonts, since the reader's font is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from unicodedata import combining, east_asian_width

from alignup.records import Record, replace

# Pixels of the font of headings.
FONT: Final = 13
# Pixels of the font of everything inside frames.
CELL_FONT: Final = 12
# Pixels between the top of a frame and its contents.
HEADER: Final = 20
PADDING: Final = 6
GAP: Final = 5

# The name of a box that something is drawn on later: `("cpu", 5)`, `("memory", 0,
# "hugepages-2Mi")`.
Key = tuple[str | int, ...]

_ELLIPSIS: Final = "…"
_NARROW: Final = frozenset(" .,:;!|'`ijl()[]/-")
_BROAD: Final = frozenset("mwMW@%…")


class Box(Record):
    """A rectangle with a heading, a tooltip and boxes inside.

    Its place is in pixels from the left upper corner of the box around it.

    Attributes:
        kind: decides how it is drawn: `socket`, `node`, `l3`, `core`, `cpu`, `bar`, `device`,
            `text`...
        label: the heading, short enough for the box.
        title: all that is to be said of it: the tooltip.
    """

    kind: str
    width: int
    height: int
    label: str = ""
    title: str = ""
    key: Key = ()
    children: tuple[Box, ...] = ()
    x: int = 0
    y: int = 0

    def at(self, x: int, y: int) -> Box:
        """Return the same box in another place."""
        return replace(self, x=x, y=y)


def walk(box: Box, x: int = 0, y: int = 0) -> Iterator[Box]:
    """Yield a box and those inside it, outer ones first, with their places in the whole picture."""
    placed = box.at(x + box.x, y + box.y)
    yield placed

    for child in box.children:
        yield from walk(child, placed.x, placed.y)


def stacked(boxes: Sequence[Box], gap: int = GAP) -> list[Box]:
    """Return the boxes below each other."""
    placed = []
    y = 0
    for box in boxes:
        placed.append(box.at(0, y))
        y += box.height + gap

    return placed


def in_rows(boxes: Sequence[Box], width: int, gap: int = GAP) -> list[Box]:
    """Return the boxes side by side, in as many rows as keep each within `width`."""
    placed: list[Box] = []
    x = y = row_height = 0
    for box in boxes:
        if x and x + box.width > width:
            x = 0
            y += row_height + gap
            row_height = 0

        placed.append(box.at(x, y))
        x += box.width + gap
        row_height = max(row_height, box.height)

    return placed


def framed(
    kind: str,
    parts: Sequence[Box],
    label: str = "",
    title: str = "",
    *,
    key: Key = (),
    padding: int = PADDING,
) -> Box:
    """Return a box around placed boxes, `padding` pixels away, with its label as a heading."""
    top = HEADER if label else padding
    children = tuple(box.at(box.x + padding, box.y + top) for box in parts)

    inner_width = max([text_width(label, FONT), *(box.x + box.width for box in parts)])
    inner_height = max((box.y + box.height for box in parts), default=-padding)
    return Box(
        kind,
        inner_width + 2 * padding,
        inner_height + top + padding,
        label,
        title,
        key,
        children,
    )


def group(parts: Sequence[Box]) -> Box:
    """Return placed boxes as one that is not seen itself."""
    return framed("group", parts, padding=0)


def text_width(text: str, size: int) -> int:
    """Return how many pixels a line of text takes at most, in a font of `size` pixels."""
    return -int(-sum(map(_letter_width, text)) * size // 100)


def _letter_width(letter: str) -> int:
    """Return the width of a letter, in hundredths of the font's size."""
    if combining(letter):
        return 0
    if east_asian_width(letter) in {"W", "F"}:
        return 105
    if letter in _NARROW:
        return 42
    if letter in _BROAD:
        return 102
    if letter.isupper():
        return 74
    return 64 if letter.isascii() else 90


def fitted(text: str, width: int, size: int) -> str:
    """Return the text, cut and ended with an ellipsis if it is wider than `width` pixels.

    Examples:
        >>> fitted("gpu0", 100, 10), fitted("GPU-8f2b1c04-77aa", 60, 10)
        ('gpu0', 'GPU-8f2…')
    """
    printable = drawable(text)
    if text_width(printable, size) <= width:
        return printable

    prefix = ""
    for letter in printable:
        if text_width(prefix + letter + _ELLIPSIS, size) > width:
            break
        prefix += letter

    return prefix + _ELLIPSIS


def wrapped(text: str, width: int, size: int, lines: int) -> list[str]:
    """Return the text in lines of up to `width` pixels, broken between words.

    There are at most `lines` of them; the last is cut where it is too long.
    """
    text_lines: list[str] = []
    next_words = drawable(text).split(" ")
    while next_words and len(text_lines) < lines - 1:
        line = next_words.pop(0)
        while next_words and text_width(f"{line} {next_words[0]}", size) <= width:
            line += f" {next_words.pop(0)}"

        text_lines.append(fitted(line, width, size))

    if next_words:
        text_lines.append(fitted(" ".join(next_words), width, size))

    return text_lines


def drawable(text: str) -> str:
    """Return the text with a replacement character for each letter that is not printable.

    XML allows few of those.
    """
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
