"""Splits JSON lines into numbered lines, and names the line in errors. Decoding a line is left to its reader."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["errors_at", "numbered_lines"]

# from the first letter of a line to its end
_INK: Final = re.compile(r"\S[^\n]*")
_INK_BYTES: Final = re.compile(rb"\S[^\n]*")


def numbered_lines(
    lines: str | bytes | Iterable[str | bytes], source: str
) -> Iterator[tuple[str, str | bytes]]:
    """Yield each line that is not blank, without white space around it, and before it its place: `source:number`.

    Args:
        lines: a text, or its lines, with or without their ends.
        source: the name of the text in errors.
    """
    if isinstance(lines, str | bytes):
        yield from _lines_of_text(lines, source)
        return
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped:
            yield f"{source}:{number}", stripped


def _lines_of_text(text: str | bytes, source: str) -> Iterator[tuple[str, str | bytes]]:
    """Yield the lines of a text as `numbered_lines` does, without a look at each blank one: there may be millions.

    A line ends at a newline only; U+2028, for one, may be in a JSON string.
    """
    # two calls and not one, since the type of the pattern is that of the text
    found = _INK.finditer(text) if isinstance(text, str) else _INK_BYTES.finditer(text)
    newline = "\n" if isinstance(text, str) else b"\n"
    number, counted = 1, 0
    for line in found:
        number += text.count(newline, counted, line.start())  # type: ignore[arg-type]  # of one type
        counted = line.start()
        yield f"{source}:{number}", line[0].strip()


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Put a place before the message of an error.

    Raises:
        InputError: of the same type as the one that the block raises.
    """
    try:
        yield
    except InputError as error:
        raise type(error)(f"{where}: {error}") from error
