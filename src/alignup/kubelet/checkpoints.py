"""Decodes the JSON of a kubelet's checkpoints into typed values, and words the errors for those that are damaged.

Each checkpoint has a module that gives the values a meaning.
"""

from __future__ import annotations

from typing import TypeVar

from alignup.errors import InputError
from alignup.text.json_text import decode_json
from alignup.text.typed import decode

__all__ = ["decode_checkpoint"]

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
