"""Estimates how wide text is drawn, shortens what is too wide, and leaves out letters that XML cannot hold.

The estimate is a little wider than common sans-serif fonts, since nobody knows which font a reader has.
"""

from __future__ import annotations

from typing import Final
from unicodedata import combining, east_asian_width

__all__ = ["drawable", "fitted", "text_width", "wrapped"]

_ELLIPSIS: Final = "…"
_NARROW: Final = frozenset(" .,:;!|'`ijl()[]/-")
_BROAD: Final = frozenset("mwMW@%…")


def text_width(text: str, size: int) -> int:
    """Return how many pixels a line of text takes at most, in a font of `size` pixels."""
    return -int(-sum(map(_part, text)) * size // 100)


def _part(letter: str) -> int:
    """Return the width of a letter, in hundredths of the font's size."""
    if combining(letter):
        return 0
    if east_asian_width(letter) in {"W", "F"}:
        return 105
    if letter in _NARROW:
        return 42
    if letter in _BROAD:
        return 102
    return 74 if letter.isupper() else 64 if letter.isascii() else 90


def fitted(text: str, width: int, size: int) -> str:
    """Return the text, cut and ended with an ellipsis if it is wider than `width` pixels.

    >>> fitted("gpu0", 100, 10), fitted("GPU-8f2b1c04-77aa", 60, 10)
    ('gpu0', 'GPU-8f2…')
    """
    shown = drawable(text)
    if text_width(shown, size) <= width:
        return shown
    kept = ""
    for letter in shown:
        if text_width(kept + letter + _ELLIPSIS, size) > width:
            break
        kept += letter
    return kept + _ELLIPSIS


def wrapped(text: str, width: int, size: int, lines: int) -> list[str]:
    """Return the text in lines of up to `width` pixels, broken between words; the last of `lines` is cut."""
    found: list[str] = []
    rest = drawable(text).split(" ")
    while rest and len(found) < lines - 1:
        line = rest.pop(0)
        while rest and text_width(f"{line} {rest[0]}", size) <= width:
            line += f" {rest.pop(0)}"
        found.append(fitted(line, width, size))
    if rest:
        found.append(fitted(" ".join(rest), width, size))
    return found


def drawable(text: str) -> str:
    """Return the text with a replacement character for each letter that is not printable; XML allows few of them."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
