"""Splits JSON lines into numbered lines, and names the line in errors. Decoding a line is left to its reader."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["errors_at", "numbered_lines"]


def numbered_lines(
    lines: str | bytes | Iterable[str | bytes], source: str
) -> Iterator[tuple[str, str | bytes]]:
    """Yield each line that is not blank, without white space around it, and before it its place: `source:number`.

    Args:
        lines: a text, or its lines, with or without their ends.
        source: the name of the text in errors.
    """
    if isinstance(lines, bytes):
        lines = lines.split(b"\n")
    elif isinstance(lines, str):
        # splitlines would end a line at U+2028 too, which JSON has in strings
        lines = lines.split("\n")
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped:
            yield f"{source}:{number}", stripped


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
