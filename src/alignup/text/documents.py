"""Reads the documents in a YAML or JSON text into plain objects of bounded size, and these into typed records.

Anything else in a text becomes an `InputError` of one line that names the place. The meaning of the objects is
decided in `alignup.kubernetes.manifest` and
`alignup.kubernetes.kubelet_config`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from alignup.errors import InputError

__all__ = ["TEXT_LIMIT", "decode", "read_documents"]

TEXT_LIMIT: Final = 8 * 2**20
"""The longest text that is read, in bytes; a single Pod that the API server takes has at most 1.5 MiB."""

_T = TypeVar("_T")
# msgspec's names for types: the words of an error message, and the Python type
_TYPES: Final[Mapping[str, tuple[str, type]]] = {
    "str": ("a string", str),
    "bool": ("true or false", bool),
    "int": ("a whole number", int),
    "array": ("a list", list),
    "object": ("a mapping", Mapping),
    "null": ("null", type(None)),
}
_COMPLAINT: Final = re.compile(
    r"Expected `(?P<expected>[^`]*)`.* - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`"
)
_STEP: Final = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>[0-9]+)\]|\[\.\.\.\]")


def read_documents(text: str | bytes, source: str) -> list[object]:
    """Return the documents in `text` as plain objects, in order; an empty YAML document is None.

    Text that starts with a brace is tried as one JSON document first.

    Args:
        text: YAML with any number of documents, or JSON; bytes are UTF-8.
        source: what an error calls the text, such as a file's name.

    Raises:
        InputError: the text is longer than `TEXT_LIMIT`, or neither YAML nor JSON, or names a key twice in
            one mapping, or expands by aliases beyond measure.
    """
    if len(text) > TEXT_LIMIT:
        raise InputError(f"expected at most {TEXT_LIMIT} bytes, got {len(text)} or more in {source}")
    try:
        characters = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        characters.encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(f"expected UTF-8, got {error.reason} at offset {error.start} of {source}") from None
    if characters.lstrip().startswith("{"):
        try:
            return [msgspec.json.decode(characters)]
        except (msgspec.DecodeError, RecursionError):
            pass  # YAML's flow style starts with a brace too, and its errors name the line
    # processes that read objects or JSON only must not pay for importing PyYAML
    from alignup.text.yaml_reader import read_yaml  # noqa: PLC0415

    return read_yaml(characters, source)


def decode(value: object, kind: type[_T], place: str = "") -> _T:
    """Return `value` as a `kind`, a msgspec Struct.

    Args:
        value: plain objects, as `read_documents` returns them.
        kind: the type of Struct; fields that it does not have are ignored.
        place: the place of `value` that an error puts before the field's, such as `items[2]`; empty: the top.

    Raises:
        InputError: A field is of another type than `kind` says.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _translated(str(error), value, place) from None


def _translated(complaint: str, value: object, place: str) -> InputError:
    """Return msgspec's error in this package's words, with the value concerned."""
    match = _COMPLAINT.fullmatch(complaint if " - at " in complaint else f"{complaint} - at `$`")
    if match is None:
        return InputError(f"{complaint} at {place or 'the top'}")
    expected = match["expected"].split(" | ")[0]
    words, python_type = _TYPES.get(expected, (expected, object))
    for step in _STEP.finditer(match["path"]):
        if step["field"]:
            value, place = _item(value, step["field"]), f"{place}.{step['field']}" if place else step["field"]
        elif step["index"]:
            value, place = _item(value, int(step["index"])), f"{place}[{step['index']}]"
        else:
            key, value = _first_wrong(value, python_type)
            place = f'{place}["{key}"]'
    if match["key"]:
        words = f"{words} as key"
        value = (
            next((key for key in value if not isinstance(key, str)), None)
            if isinstance(value, Mapping)
            else None
        )
    return InputError.at(place or "the top", words, value)


def _item(value: object, key: str | int) -> object:
    """Return the item of a mapping or list."""
    return value[key]  # type: ignore[index]  # msgspec has just walked there


def _first_wrong(value: object, python_type: type) -> tuple[object, object]:
    """Return the first entry of a mapping whose value is not of the type."""
    entries = value.items() if isinstance(value, Mapping) else ()
    return next((entry for entry in entries if not isinstance(entry[1], python_type)), ("...", None))
