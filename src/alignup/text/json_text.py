"""Decodes JSON text and JSON lines from outside the program, or raises an error of one line that names the place.

The meaning of the values is left to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Final, TypeVar

import msgspec

from alignup.errors import InputError

_T = TypeVar("_T")
_SHOWN: Final = 40
# a string, to its end or that of the text; or a bracket
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
DEPTH_LIMIT: Final = 500
"""The levels of lists and objects that a JSON text may have, whatever the interpreter could bear."""
_STEPS: Final = dict(zip(b"[{]}", (1, 1, -1, -1), strict=True))
_CHUNK: Final = 1 << 20
"""Bytes that are looked at in one step: the interpreter does other things in between."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(_STEPS))


def decode_json(
    text: str | bytes | msgspec.Raw,
    expected: str,
    where: str = "",
    kind: type[_T] = object,  # type: ignore[assignment]  # then the caller says what it expects
    *,
    decode: Callable[[Any], _T] | None = None,
) -> _T:
    """Return the value in a JSON text.

    Args:
        text: one JSON value.
        expected: the words of an error for what should be there.
        where: the place that an error names; empty: the caller adds it.
        kind: a type that msgspec knows.
        decode: makes values of the text, where msgspec needs more than a type for that.

    Raises:
        InputError: the text is no JSON, no UTF-8, not of that type, or has more than `DEPTH_LIMIT` levels.
    """
    why = f"values are nested more than {DEPTH_LIMIT} levels deep"
    try:
        if isinstance(text, msgspec.Raw) or not is_too_deep(text):
            return decode(text) if decode else msgspec.json.decode(text, type=kind)
    except RecursionError:
        pass
    except (msgspec.MsgspecError, UnicodeError) as error:
        words = str(error).replace("Input data was truncated", "the text is truncated: it ends within a value")
        why = words.replace("Object missing required field", "it lacks the key")
    place = f" at {where}" if where else ""
    given = bytes(text) if isinstance(text, msgspec.Raw) else text
    start = given[:_SHOWN]
    shown = start if isinstance(start, str) else start.decode("utf-8", "backslashreplace")
    more = "..." if len(given) > _SHOWN else ""
    raise InputError(f"expected {expected}, got {shown!r}{more} ({why}){place}")


def check_levels(text: bytes, expected: str) -> None:
    """Refuse a JSON text of more than `DEPTH_LIMIT` levels; `expected` is what an error says should be there.

    Raises:
        InputError: it has more.
    """
    if is_too_deep(text):
        raise InputError(f"expected {expected}, but values are nested more than {DEPTH_LIMIT} levels deep")


def is_too_deep(text: str | bytes) -> bool:
    """Return whether a JSON text has more than `DEPTH_LIMIT` levels."""
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) <= DEPTH_LIMIT:  # type: ignore[arg-type]  # of one type
        return False
    data = text.encode(errors="replace") if isinstance(text, str) else text
    data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    depth = within_string = 0
    for start in range(0, len(data), _CHUNK):
        parts = data[start : start + _CHUNK].split(b'"')
        brackets = b"".join(parts[within_string::2]).translate(None, _NO_BRACKETS)
        depths = list(accumulate(map(_STEPS.__getitem__, brackets), initial=depth))
        if max(depths) > DEPTH_LIMIT:
            return True
        depth = depths[-1]
        within_string ^= len(parts) - 1 & 1
    return False


# from the first letter of a line to its end
_INK: Final = r"\S[^\n]*"


def numbered_lines(lines: str | bytes | Iterable[str | bytes], source: str) -> Iterator[tuple[str, str | bytes]]:
    """Yield each line that is not blank, without white space around it, and before it its place: `source:number`.

    Args:
        lines: a text, or its lines, with or without their ends.
        source: the name of the text in errors.
    """
    if isinstance(lines, str | bytes):
        yield from _lines_of_text(lines, source)
        return
    for number, line in enumerate(lines, 1):
        if stripped := line.strip():
            yield f"{source}:{number}", stripped


def _lines_of_text(text: str | bytes, source: str) -> Iterator[tuple[str, str | bytes]]:
    """Yield the lines of a text as `numbered_lines` does, without a look at each blank one: there may be millions.

    A line ends at a newline only; U+2028, for one, may be in a JSON string.
    """
    # two calls and not one, since the type of the pattern is that of the text
    found = re.finditer(_INK, text) if isinstance(text, str) else re.finditer(_INK.encode(), text)
    newline = "\n" if isinstance(text, str) else b"\n"
    number, counted = 1, 0
    for line in found:
        number += text.count(newline, counted, line.start())  # type: ignore[arg-type]  # of one type
        counted = line.start()
        yield f"{source}:{number}", line[0].strip()


def without_depths(text: bytes, levels: int) -> bytes:
    """Return a JSON text with null in the place of each list and object below so many others.

    >>> without_depths(b'{"a": [[1], 2], "b": 3}', 2)
    b'{"a": [null, 2], "b": 3}'
    """
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKENS.finditer(text):
        if token[0] in {b"[", b"{"}:
            if depth == levels:
                kept += [text[start : token.start()], b"null"]
            depth += 1
        elif token[0] in {b"]", b"}"}:
            depth -= 1
            if depth == levels:
                start = token.end()
    if depth <= levels:  # else the text ends within what is cut out
        kept.append(text[start:])
    return b"".join(kept)
