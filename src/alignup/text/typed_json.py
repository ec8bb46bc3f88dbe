"""Turns decoded JSON into typed values, and msgspec's error about a bad field into an `InputError`.

The meaning of a document is left to the module that declares its shape.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from alignup.errors import InputError

__all__ = ["convert"]

T = TypeVar("T")

_PATH: Final = re.compile(r"^(?P<what>.*) - at `\$(?P<path>[^`]*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_EXPECTED: Final = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `[^`]+`)?$", re.DOTALL)
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_SHOWN: Final = 60


def convert(data: object, shape: type[T], where: str) -> T:
    """Return `data`, as a JSON parser leaves it, in the shape of a type that msgspec knows.

    Args:
        data: mappings, lists, strings and numbers.
        shape: the type.
        where: the name of the document; the place of a bad field is appended to it.

    Raises:
        InputError: something in `data` does not fit.
    """
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise _input_error(str(error), data, where) from None


def _input_error(message: str, data: object, where: str) -> InputError:
    """Return msgspec's `message` as an error in this package's words."""
    found = _PATH.match(message)
    what, path = (found["what"], found["path"]) if found else (message, "")
    missing = _MISSING.match(what)
    if missing:
        return InputError(f"expected the field {missing[1]!r}, which is missing at {where}{path}")
    expected = _EXPECTED.match(what)
    if not expected:
        return InputError(f"{what[:1].lower()}{what[1:]} at {where}{path}")
    kinds = " or ".join(_WORDS.get(kind.strip(), kind.strip()) for kind in expected[1].split("|"))
    came = repr(_look_up(data, path))
    came = came if len(came) <= _SHOWN else f"{came[:_SHOWN]}..."
    return InputError(f"expected {kinds}{expected[2]}, got {came} at {where}{path}")


def _look_up(data: Any, path: str) -> object:
    """Return the value at msgspec's `path`; the innermost one that the path names exactly."""
    rest = 0
    for step in _STEP.finditer(path):
        if step.start() != rest:
            break
        data = data[step[1]] if step[1] is not None else data[int(step[2])]
        rest = step.end()
    return data
