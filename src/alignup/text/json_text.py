"""Decodes JSON text from outside the program, or raises an error of one line.

The meaning of the values is left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["decode_json"]

_T = TypeVar("_T")
_SHOWN: Final = 40


def decode_json(
    text: str | bytes | msgspec.Raw,
    expected: str,
    where: str = "",
    decode: Callable[[Any], _T] = msgspec.json.decode,
) -> _T:
    """Return the value in a JSON text.

    Args:
        text: one JSON value.
        expected: the words of an error for what should be there.
        where: the place that an error names; empty: the caller adds it.
        decode: makes values of the text, such as a msgspec decoder's `decode`.

    Raises:
        InputError: the text is no JSON, no UTF-8, not of the type that `decode` makes, or nests too deeply to
            be read.
    """
    try:
        return decode(text)
    except RecursionError:
        why = "values are nested too deeply"
    except (msgspec.MsgspecError, UnicodeError) as error:
        why = _in_our_words(str(error))
    place = f" at {where}" if where else ""
    given = bytes(text) if isinstance(text, msgspec.Raw) else text
    start = given[:_SHOWN]
    shown = start if isinstance(start, str) else start.decode("utf-8", "backslashreplace")
    more = "..." if len(given) > _SHOWN else ""
    raise InputError(f"expected {expected}, got {shown!r}{more} ({why}){place}")


def _in_our_words(complaint: str) -> str:
    """Return a decoder's complaint as a clause of a sentence."""
    words = complaint.replace("Input data was truncated", "the text is truncated: it ends within a value")
    return words.replace("Object missing required field", "it lacks the key")
