"""Decodes the JSON of a kubelet's checkpoints into typed values, and words the errors for those that are damaged.

Each checkpoint has a module that gives the values a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from alignup.errors import InputError, errors_in
from alignup.text.json_text import decode_json
from alignup.text.typed import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The version and the checksum of a file."""

    version: int = 0
    """That whose checksum is right, else the one that the entries look like; 0: there is one only."""
    is_data: bool = False
    """Whether a text in the file, and its own checksum, count (from Kubernetes 1.37 on)."""
    checksum: int = 0
    """As it is written; 0: none."""
    expected_checksum: int = 0
    """The one that the kubelet computes of the content."""

    @property
    def is_intact(self) -> bool:
        """Whether the checksum is right, or missing where a kubelet accepts that: in older versions of some files."""
        return self.checksum == self.expected_checksum or (not self.checksum and self.version > 0 and not self.is_data)


class DataWire(msgspec.Struct, rename="camel"):
    """The fields of a file on the wire with which a text counts alone."""

    checksum: int = 0
    data: str = ""
    data_checksum: int = 0


_Wire = TypeVar("_Wire", bound=DataWire)


def decode_with_data(
    content: bytes, kind: type[_Wire], what: str, source: str, versions: Sequence[str], data_version: int
) -> tuple[_Wire, Checkpoint | None]:
    """Return the value of a checkpoint, or that of the text in it, and then the checkpoint's version and checksum.

    Args:
        content: of the file.
        kind: the msgspec Struct that describes it.
        what: what the file should hold, in an error.
        source: the file's name in errors.
        versions: those that the kubelet reads.
        data_version: the one in which the text counts.

    Raises:
        InputError: it is no JSON, or not of this shape.
    """
    wire = decode_checkpoint(content, kind, what, source)
    if not (wire.data or wire.data_checksum) or f"V{data_version}" not in versions:
        return wire, None
    sums = {"checksum": wire.data_checksum, "expected_checksum": checksum_of(f"(string){wire.data}")}
    told = Checkpoint(version=data_version, is_data=True, **sums)
    return decode_checkpoint(wire.data.encode(), kind, what, f"data in {source}"), told


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
    with errors_in(source):
        return decode(value, kind)


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


def matching(texts: Iterable[tuple[int, str]], written: int, likely: int) -> Checkpoint:
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
            return Checkpoint(version=version, checksum=written, expected_checksum=found)
        expected.setdefault(version, found)
    return Checkpoint(version=likely, checksum=written, expected_checksum=expected[likely])


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
