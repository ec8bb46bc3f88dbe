"""Decodes JSON text and JSON lines from outside the program.

An error is one line that names the place. The meaning of the values is left to the caller.
"""

from __future__ import annotations

import json
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
# The levels of lists and objects that a JSON text may have, whatever the interpreter could bear.
DEPTH_LIMIT: Final = 500
_STEPS: Final = dict(zip(b"[{]}", (1, 1, -1, -1), strict=True))
# Bytes that are looked at in one step: the interpreter does other things in between.
_CHUNK: Final = 1 << 20
_NO_BRACKETS: Final = bytes(set(range(256)) - set(_STEPS))

# from the first letter of a line to its end
_INK: Final = r"\S[^\n]*"


def decode_json(
    text: str | bytes | msgspec.Raw,
    expected: str,
    where: str = "",
    kind: type[_T] = object,  # type: ignore[assignment]  # then the caller says what it expects
    *,
    decode: Callable[[Any], _T] | None = None,
    once: bool | None = None,
) -> _T:
    """Return the value in a JSON text.

    Args:
        text: one JSON value.
        expected: the words of an error for what should be there.
        where: the place that an error names; empty: the caller adds it.
        kind: a type that msgspec knows.
        decode: makes values of the text, where msgspec needs more than a type for that.
        once: refuse a key that an object has twice, for which the text is read again; None: where
            no type is given, as for what users write. Programs write what has a type, and no key
            twice.

    Raises:
        InputError: the text is no JSON, no UTF-8, not of that type, or has more than `DEPTH_LIMIT`
            levels.
    """
    why = f"values are nested more than {DEPTH_LIMIT} levels deep"
    try:
        if isinstance(text, msgspec.Raw) or not is_too_deep(text):
            value = decode(text) if decode else msgspec.json.decode(text, type=kind)
            if once or (once is None and decode is None and kind is object):
                _check_keys(text)

            return value
    except RecursionError:
        pass
    except _KeyTwiceError as error:
        why = f"it has the key {error.args[0]!r:.{_SHOWN}} twice"
    except (msgspec.MsgspecError, UnicodeError) as error:
        why = str(error)
        why = why.replace(
            "Input data was truncated", "the text is truncated: it ends within a value"
        )
        why = why.replace("Object missing required field", "it lacks the key")
        # before msgspec 0.23 these are the interpreter's words, which name the codec
        why = why.replace("Invalid UTF-8 encoded string", "a string is not encoded in utf-8")

    if isinstance(text, msgspec.Raw):
        text = bytes(text)

    start = text[:_SHOWN]
    if isinstance(start, bytes):
        start = start.decode("utf-8", "backslashreplace")

    more = "..." if len(text) > _SHOWN else ""
    place = f" at {where}" if where else ""
    raise InputError(f"expected {expected}, got {start!r}{more} ({why}){place}")


class _KeyTwiceError(Exception):
    """An object of a JSON text has a key twice: the argument."""


def _check_keys(text: str | bytes | msgspec.Raw) -> None:
    """Refuse a JSON text in which an object has a key twice.

    Raises:
        _KeyTwiceError: one has.
    """

    def check(pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            names = [name for name, _ in pairs]
            raise _KeyTwiceError(next(name for name in names if names.count(name) > 1))

    if isinstance(text, msgspec.Raw):
        text = bytes(text)

    json.loads(text, object_pairs_hook=check, parse_int=len, parse_float=len)


def check_levels(text: bytes, expected: str) -> None:
    """Refuse a JSON text of more than `DEPTH_LIMIT` levels.

    Args:
        text: one JSON value.
        expected: the words of an error for what should be there.

    Raises:
        InputError: it has more.
    """
    if is_too_deep(text):
        raise InputError(
            f"expected {expected}, but values are nested more than {DEPTH_LIMIT} levels deep"
        )


def is_too_deep(text: str | bytes) -> bool:
    """Return whether a JSON text has more than `DEPTH_LIMIT` levels."""
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) <= DEPTH_LIMIT:  # type: ignore[arg-type]  # of one type
        return False

    data = text.encode(errors="replace") if isinstance(text, str) else text
    data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    depth = 0
    within_string = 0  # 1 where a chunk begins inside a string
    for start in range(0, len(data), _CHUNK):
        parts = data[start : start + _CHUNK].split(b'"')
        brackets = b"".join(parts[within_string::2]).translate(None, _NO_BRACKETS)
        depths = list(accumulate(map(_STEPS.__getitem__, brackets), initial=depth))
        if max(depths) > DEPTH_LIMIT:
            return True

        depth = depths[-1]
        within_string ^= len(parts) - 1 & 1

    return False


def numbered_lines(
    lines: str | bytes | Iterable[str | bytes], source: str
) -> Iterator[tuple[str, str | bytes]]:
    """Yield each line that is not blank, and before it its place: `source:number`.

    There is no white space around a line. A line of a text ends at a newline only; U+2028, for
    one, may be in a JSON string. Not each blank line is looked at: there may be millions.

    Args:
        lines: a text, or its lines, with or without their ends.
        source: the name of the text in errors.
    """
    if not isinstance(lines, str | bytes):
        for number, line in enumerate(lines, 1):
            if stripped := line.strip():
                yield f"{source}:{number}", stripped

        return

    newline: str | bytes
    matches: Iterator[re.Match[str]] | Iterator[re.Match[bytes]]
    # two calls and not one, since the type of the pattern is that of the text
    if isinstance(lines, str):
        newline = "\n"
        matches = re.finditer(_INK, lines)
    else:
        newline = b"\n"
        matches = re.finditer(_INK.encode(), lines)

    number = 1
    counted = 0  # the offset up to which lines are counted
    for match in matches:
        start = match.start()
        number += lines.count(newline, counted, start)  # type: ignore[arg-type]  # of one type
        counted = start
        yield f"{source}:{number}", match[0].strip()


def without_depths(text: bytes, levels: int) -> bytes:
    """Return a JSON text with null in the place of each list and object below so many others.

    Examples:
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
