"""Decodes the JSON of a kubelet's checkpoints into typed values, and words the errors for those that are damaged.

Each checkpoint has a module that gives the values a meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from alignup.errors import InputError
from alignup.text.json_text import decode_json
from alignup.text.typed import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_T = TypeVar("_T")


def decode_checkpoint(data: bytes, kind: type[_T], what: str, source: str) -> _T:
    """Return the value of a checkpoint.

    Args:
        data: the content of the file.
        kind: the msgspec Struct that describes it.
        what: what the file should hold, in an error.
        source: the file's name in errors.

    Raises:
        InputError: it is no JSON, or not of this shape.
    """
    if not data.strip():
        raise InputError(f"expected {what}, got an empty file at {source}")
    value: object = decode_json(data, what, source)
    try:
        return decode(value, kind)
    except InputError as error:
        raise type(error)(f"{error} in {source}") from None


_Key = TypeVar("_Key", int, str)
_Value = TypeVar("_Value")

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_MASK: Final = 0xFFFFFFFF


def checksum_of(text: str) -> int:
    """Return the checksum of a value that Go prints as `text`."""
    found = _OFFSET
    for byte in text.encode():
        found = (found ^ byte) * _PRIME & _MASK
    return found


def matching_sum(texts: Iterable[tuple[int, str]], written: int, likely: int) -> tuple[int, int]:
    """Return the version whose checksum is the written one, and that checksum; without one, those of a likely version.

    Args:
        texts: version and text of each format that a file may have.
        written: the checksum in the file.
        likely: the version that it looks like.
    """
    expected: dict[int, int] = {}
    for version, text in texts:
        found = checksum_of(text)
        if found == written:
            return version, found
        expected.setdefault(version, found)
    return likely, expected[likely]


def map_text(mapping: Mapping[_Key, _Value] | None, text: Callable[[_Value], str] = str) -> str:
    """Return a map as spew prints it, sorted by key; None is Go's nil map."""
    if mapping is None:
        return "<nil>"
    return f"map[{' '.join([f'{key}:{text(value)}' for key, value in sorted(mapping.items())])}]"


def list_text(items: Iterable[_Value] | None, text: Callable[[_Value], str] = str) -> str:
    """Return a slice as spew prints it; None is Go's nil slice."""
    if items is None:
        return "<nil>"
    return f"[{' '.join(map(text, items))}]"
