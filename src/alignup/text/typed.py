"""Types decoded documents: turns plain objects into msgspec Structs.

An error says in one line which field does not fit. The meaning of a document is decided
by the module that declares its Structs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from threading import RLock
from typing import Any, Final, TypeVar

import msgspec

from alignup.errors import InputError

_T = TypeVar("_T")
_LOCK: Final = RLock()
# msgspec's names for types, as its messages have them: our words, and the Python type
_TYPES: Final[Mapping[str, tuple[str, type | tuple[type, ...]]]] = {
    "str": ("a string", str),
    "bool": ("true or false", bool),
    "int": ("a whole number", int),
    "float": ("a number", (int, float)),
    "array": ("a list", list),
    "object": ("a mapping", Mapping),
    "null": ("null", type(None)),
}
# msgspec says what it expected only in sentences; tests/unit/text/test_typed.py pins each form that
# is read here; the patterns are compiled where one is needed
_PLACE: Final = r"(?P<problem>.*) - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`"
_MISSING: Final = r"Object missing required field `(?P<field>[^`]+)`"
_EXPECTED: Final = r"Expected `(?P<types>[^`]*)`(?P<limit>.*?)(?:, got `[^`]*`)?"
_STEP: Final = r"\.(?P<field>[^.\[]+)|\[(?P<index>[0-9]+)\]|\[\.\.\.\]"


def decode(
    value: object, kind: type[_T], where: str = "", *, strict: bool = True, own: Any = None
) -> _T:
    """Return plain objects as a `kind`.

    Args:
        value: mappings, lists, strings and numbers, as JSON and YAML have them.
        kind: a msgspec Struct, or another type that msgspec knows; fields that it does not have are
            ignored.
        where: the place of `value` that an error puts before the field's, such as `items[2]`;
            empty: the top.
        strict: numbers must be numbers; else their texts will do.
        own: a type in it that msgspec does not know, and that reads a value itself by its class
            method `parse`.

    Raises:
        InputError: a field is missing or of another type.
    """
    # a class is hashable, which mypy does not see of a type variable
    _prepare(kind)  # type: ignore[arg-type]
    try:
        return msgspec.convert(
            value, kind, strict=strict, dec_hook=own and (lambda _kind, found: own.parse(found))
        )
    except msgspec.ValidationError as error:
        raise _input_error(str(error), value, where) from None


@cache
def _prepare(kind: object) -> None:
    """Let msgspec look at the fields of a kind, in one thread only.

    It lets a second thread use what is half done, and crashes. From Python 3.14 on, `with` lets an
    exception of a signal's handler in between taking the lock and its own body, and nobody would
    ever give the lock back.
    """
    try:
        _LOCK.acquire()
        msgspec.json.Decoder(kind)
    finally:
        with suppress(RuntimeError):  # the exception came before the lock was taken
            _LOCK.release()


def _input_error(complaint: str, value: object, where: str) -> InputError:
    """Return msgspec's complaint in this package's words, with the value it is about."""
    problem = complaint
    path = ""
    is_of_key = False
    if place_match := re.fullmatch(_PLACE, complaint, re.DOTALL):
        problem = place_match["problem"]
        path = place_match["path"]
        is_of_key = place_match["key"] is not None

    name = ""
    if expected := re.fullmatch(_EXPECTED, problem, re.DOTALL):
        # of a value that may be null, null is not worth mentioning
        name = expected["types"].split(" | ")[0]

    type_words, python_type = _TYPES.get(name, (name, object))
    value, place = _look_up(value, path, python_type)
    if not where:
        place = place.removeprefix(".") or "the top"

    place = where + place
    if missing := re.fullmatch(_MISSING, problem):
        return InputError(f"expected the field {missing['field']!r}, which is missing at {place}")
    if expected is None:
        return InputError(f"{problem[:1].lower()}{problem[1:]} at {place}")
    if is_of_key:
        keys = value if isinstance(value, Mapping) else ()
        wrong_key = next((key for key in keys if not isinstance(key, str)), None)
        return InputError.at(place, f"{type_words} as key", wrong_key)

    return InputError.at(place, f"{type_words}{expected['limit']}", value)


def _look_up(value: object, path: str, python_type: type | tuple[type, ...]) -> tuple[object, str]:
    """Return the value at msgspec's path, and the path with the keys that msgspec leaves out.

    Of the entries of a mapping, msgspec does not tell which is wrong: it is the first that is not
    of the type, or, if that does not tell either, the mapping is returned.
    """
    place = ""
    for step in re.finditer(_STEP, path):
        if step["field"]:
            value = value[step["field"]]  # type: ignore[index]  # msgspec walked there
            place += f".{step['field']}"
        elif step["index"]:
            value = value[int(step["index"])]  # type: ignore[index]
            place += f"[{step['index']}]"
        else:
            entries = value.items() if isinstance(value, Mapping) else ()
            wrong_entries = [entry for entry in entries if not isinstance(entry[1], python_type)]
            if step.end() != len(path) or not wrong_entries:
                return value, f"{place}{path[step.start() :]}"

            key, value = wrong_entries[0]
            place += f'["{key}"]'

    return value, place
