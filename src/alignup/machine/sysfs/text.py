"""Parses what the kernel writes into files of sysfs and procfs: numbers, CPU lists, masks, tables.

Nothing here opens a file. Firmware and old kernels write odd things, so a text that makes no sense is None,
as is a text that is None because its file is missing: not known. Lists and masks may end in a newline, a NUL,
both or neither. Sets of CPUs and of nodes are ints as bit sets.
"""

from __future__ import annotations

import re
from typing import Final

from alignup.errors import InputError
from alignup.machine.cpuset import CPUSet

__all__ = ["first_number", "hex_number", "meminfo_bytes", "number_list", "number_mask", "number_row"]

_INK: Final = " \t\r\n\0"
_MASK_WORD_DIGITS: Final = 8
_MEM_TOTAL: Final = re.compile(r"\bMemTotal:\s*(\d{1,18})\s*kB")
_MASK: Final = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*")
_HEX: Final = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")


def number_list(text: str | None) -> int | None:
    """Return the bit set that a list such as `0-3,8` describes; an empty list is the empty set."""
    if text is None:
        return None
    try:
        return int(CPUSet.parse(text.strip(_INK)))
    except InputError:
        return None


def number_mask(text: str | None) -> int | None:
    """Return the bit set that a mask such as `ff,00000000` describes.

    It is written as 32-bit words in hexadecimal, most significant first; the first may be shorter.
    """
    stripped = text.strip(_INK) if text is not None else ""
    if not _MASK.fullmatch(stripped):
        return None
    return int("".join(word.zfill(_MASK_WORD_DIGITS) for word in stripped.split(",")), 16)


def first_number(text: str | None) -> int | None:
    """Return the number that a text starts with: `-1`, `10240K`, `512`."""
    found = re.match(r"\s*(-?\d{1,18})", text) if text is not None else None
    return int(found[1]) if found else None


def number_row(text: str | None) -> list[int] | None:
    """Return the numbers of a row such as `10 21`, or None if anything else is in it."""
    words = text.strip(_INK).split() if text is not None else []
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        return None
    return [int(word[:18]) for word in words]


def hex_number(text: str | None) -> int | None:
    """Return the number that a text such as `0x030200` is in hexadecimal."""
    found = _HEX.fullmatch(text.strip(_INK)) if text is not None else None
    return int(found[1], 16) if found else None


def meminfo_bytes(text: str | None) -> int:
    """Return `MemTotal` of a `meminfo`, a node's or the machine's, in bytes; 0 if it is not there."""
    found = _MEM_TOTAL.search(text) if text is not None else None
    return int(found[1]) << 10 if found else 0
