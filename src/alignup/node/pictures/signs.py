"""Gives each holder a sign, a colour and a pattern, by which a picture tells it apart in black and white too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RESERVED", "Sign", "patterns", "sign_of", "signs_of"]

_LETTERS: Final = "ABCDEFGHJKLMNPQSTUVWXYZ"
"""Without I and O, which resemble digits, and R, which stands for what is reserved."""
_COLOURS: Final = (
    ("#cfe2f7", "#3b78b8"),
    ("#fbd9b5", "#c9741a"),
    ("#cdeacb", "#3f8f3a"),
    ("#f6cfe2", "#b8407f"),
    ("#f7eea6", "#a08c00"),
    ("#c5ecee", "#218a8f"),
    ("#dfd3f2", "#6f4fae"),
    ("#e6d5c3", "#80592e"),
)
"""A light tint, and the colour of the lines on it."""
_MOTIFS: Final = (
    "",
    "M-1 1L1 -1M-1 7L7 -1M5 7L7 5",
    "M2 3h2",
    "M-1 5L1 7M-1 -1L7 7M5 -1L7 1",
    "M0 3h6",
    "M3 0v6",
)
"""Lines of a tile of 6 by 6 pixels; none: the plain tint."""
_CROSSED: Final = "M-1 1L1 -1M-1 7L7 -1M5 7L7 5M-1 5L1 7M-1 -1L7 7M5 -1L7 1"


@dataclass(frozen=True, slots=True)
class Sign:
    """How one holder is shown."""

    text: str
    """One or more letters."""
    number: int
    """Chooses colour and pattern; -1: reserved."""

    @property
    def fill(self) -> str:
        """The value of the attribute `fill`."""
        return f"url(#{self._name})"

    @property
    def _name(self) -> str:
        return "au-r" if self.number < 0 else f"au-p{self.number % (len(_COLOURS) * len(_MOTIFS) // 2)}"

    def pattern(self) -> Element:
        """Return the definition of the pattern that `fill` names."""
        tint, line = ("#d6d6d6", "#777") if self.number < 0 else _COLOURS[self.number % len(_COLOURS)]
        motif = _CROSSED if self.number < 0 else _MOTIFS[self.number % len(_MOTIFS)]
        size = {"width": "6", "height": "6"}
        made = Element("pattern", {"id": self._name, "patternUnits": "userSpaceOnUse", **size})
        SubElement(made, "path", {"d": "M0 0h6v6h-6z", "fill": tint})
        if motif:
            SubElement(made, "path", {"d": motif, "stroke": line, "stroke-opacity": "0.6", "fill": "none"})
        return made


RESERVED: Final = Sign("R", -1)
"""The sign of what no pod can have for itself."""


def signs_of(holders: Iterable[str]) -> dict[str, Sign]:
    """Return a sign for each of these, in their order: A, B, ... Z, AA, AB..."""
    return {holder: sign_of(number) for number, holder in enumerate(dict.fromkeys(holders))}


def sign_of(number: int) -> Sign:
    """Return the sign of the holder that comes at this place, counted from 0."""
    return Sign(_letters(number), number)


def _letters(number: int) -> str:
    text = ""
    while number >= 0:
        number, last = divmod(number, len(_LETTERS))
        text = _LETTERS[last] + text
        number -= 1
    return text


def patterns(signs: Iterable[Sign]) -> list[Element]:
    """Return the definition of each pattern that these signs use, once."""
    return [one.pattern() for one in {sign.fill: sign for sign in signs}.values()]
