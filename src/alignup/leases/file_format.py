"""Turns a table of leases into the text of the file and back, with a checksum, so that damage is noticed.

The checksum is over the very bytes of the table, so that no two ways to write JSON can disagree.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from alignup.errors import InputError
from alignup.leases.record import LeaseTable, encode_leases, lease_decoder
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DamagedError", "checksum", "decode_table", "encode_table", "is_lease_text"]

VERSION: Final = 1
AGENT_VERSION: Final = 2
"""Of a file whose leases an agent keeps: releases that know no agents refuse it, and give nothing beside the agent."""
_BEGINNING: Final = re.compile(rb'\{"version":[0-9]+,"checksum":"')
_T = TypeVar("_T")


class DamagedError(InputError):
    """Raised when a text is not what was once written."""


class _Envelope(msgspec.Struct):
    """The text of the file."""

    version: int
    checksum: str
    """CRC-32 of the bytes of `table`, in hex: the enemy is a torn or half-written file, not a forger."""
    table: msgspec.Raw


_DECODE_ENVELOPE: Final = msgspec.json.Decoder(_Envelope).decode
_DECODE_TABLE: Final = lease_decoder(LeaseTable).decode


def encode_table(table: LeaseTable) -> bytes:
    """Return the text of a file with these leases."""
    inner = encode_leases(table)
    version = AGENT_VERSION if table.agent else VERSION
    return msgspec.json.encode(_Envelope(version, checksum(inner), msgspec.Raw(inner))) + b"\n"


def is_lease_text(text: bytes) -> bool:
    """Return whether a text is one of this module's, perhaps damaged: it begins so, or the disk lost all of it."""
    return bool(_BEGINNING.match(text)) or not text.strip(b"\0")


def decode_table(text: bytes, where: str) -> LeaseTable:
    """Return the leases in the text of a file.

    Args:
        text: what the file holds.
        where: what an error calls the file.

    Raises:
        DamagedError: the text is not as it was written.
        InputError: it was written by a later release of alignup.
    """
    envelope = _decoded(text, where, _DECODE_ENVELOPE)
    if envelope.version > AGENT_VERSION:
        raise InputError.at(where, f"leases in the form of version {AGENT_VERSION}", envelope.version)
    inner = bytes(envelope.table)
    if checksum(inner) != envelope.checksum:
        raise DamagedError.at(where, f"leases with the checksum {envelope.checksum}", checksum(inner))
    return _decoded(inner, where, _DECODE_TABLE)


def _decoded(text: bytes, where: str, decode: Callable[[str | bytes], _T]) -> _T:
    """Return the value in a JSON text; one that cannot be read is damage."""
    try:
        return decode_json(text, "leases", where, decode)
    except InputError as error:
        raise DamagedError(str(error)) from None


def checksum(data: bytes) -> str:
    """Return the CRC-32 of some bytes, in hex."""
    return f"{zlib.crc32(data):08x}"
