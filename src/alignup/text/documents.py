"""Reads the documents in a YAML or JSON text into plain objects of bounded size.

Anything else in a text becomes an `InputError` of one line that names the place. The objects are
typed by `alignup.text.typed`, and their meaning is decided by the modules that declare the types.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from alignup.errors import InputError

# The longest text that is read, in bytes; a single Pod that the API server takes has at most 1.5
# MiB.
TEXT_LIMIT: Final = 8 * 2**20


# How a text of UTF-16 begins, such as PowerShell writes.
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def is_utf_16(data: bytes) -> bool:
    """Return whether bytes begin as a text of UTF-16 that says so."""
    return data.startswith(_UTF_16)


def utf8_of(data: bytes) -> bytes:
    """Return a text of UTF-16 that says so as UTF-8, and anything else as it is.

    >>> utf8_of("kind: Pod".encode("utf-16")), utf8_of(b"kind: Pod")
    (b'kind: Pod', b'kind: Pod')
    """
    if is_utf_16(data):
        with suppress(UnicodeDecodeError):
            return data.decode("utf-16").encode()
    return data


def read_documents(text: str | bytes, source: str) -> list[object]:
    """Return the documents in `text` as plain objects, in order; an empty YAML document is None.

    Text that starts with a brace is tried as one JSON document first, and then as JSON lines.

    Args:
        text: YAML with any number of documents, JSON, or JSON lines; bytes are UTF-8, or UTF-16
            that begins with its mark.
        source: what an error calls the text, such as a file's name.

    Raises:
        InputError: the text is longer than `TEXT_LIMIT`, or neither YAML nor JSON, or names a key
            twice in one mapping, or expands by aliases beyond measure.
    """
    if len(text) > TEXT_LIMIT:
        raise InputError(f"{source} has {len(text)} bytes or more: at most {TEXT_LIMIT} are read")

    try:
        if isinstance(text, bytes):
            characters = utf8_of(text).decode("utf-8-sig")
        else:
            characters = text.removeprefix("\ufeff")
            characters.encode()  # a str may hold surrogates; what was decoded cannot
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(f"not UTF-8: {error.reason} at offset {error.start} of {source}") from None

    if characters.lstrip().startswith("{"):
        from alignup.text.json_text import decode_json  # noqa: PLC0415  # msgspec is slow to import

        with suppress(InputError):
            return [decode_json(characters, "JSON")]
        with suppress(InputError):
            return [decode_json(line, "JSON") for line in characters.splitlines() if line.strip()]

        # YAML's flow style starts with a brace too, and its errors name the line
    # processes that read objects or JSON only must not pay for importing PyYAML
    from alignup.text.yaml_reader import read_yaml  # noqa: PLC0415

    return read_yaml(characters, source)
