"""Writes several amounts of bytes in one unit, so that a reader can compare them at a glance.

`alignup.text.byte_sizes` writes a single amount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from alignup.text.byte_sizes import BYTE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["BYTES", "ByteUnit", "amount_in", "shared_unit"]

_HUNDREDTHS: Final = 100
_LONG: Final = 100_000


class ByteUnit(NamedTuple):
    """A unit of bytes as Kubernetes writes it."""

    suffix: str
    size: int


BYTES: Final = ByteUnit("", 1)
_UNITS: Final = (*(ByteUnit(suffix, 1 << shift) for suffix, shift in BYTE_SUFFIXES), BYTES)


def shared_unit(comparisons: Iterable[tuple[int, Sequence[int]]]) -> ByteUnit:
    """Return the largest unit in which two decimals tell which requests fit, and if it can be the requests exactly.

    Args:
        comparisons: requested bytes, each with the free bytes that it is compared with.
    """
    pairs = list(comparisons)
    wanted = {asked for asked, _ in pairs if asked}
    # NUMA nodes often have equal amounts
    compared = {(asked, free) for asked, amounts in pairs for free in amounts}
    good = [
        unit
        for unit in _UNITS
        if all(asked >= unit.size for asked in wanted)
        and all(_keeps_order(unit, asked, free) for asked, free in compared)
    ]
    exact = (unit for unit in good if all(_is_exact(unit, asked) for asked in wanted))
    return next(exact, good[0] if good else BYTES)


def amount_in(unit: ByteUnit, amount: int, *, up: bool = False) -> str:
    """Return bytes in a unit, to two decimals at most: rounded down, or up."""
    whole, rest = divmod(_hundredths(unit, amount, up=up), _HUNDREDTHS)
    decimals = f".{rest:02}".rstrip("0").rstrip(".") if rest else ""
    return f"{whole}{decimals}{unit.suffix if amount else ''}"


def _hundredths(unit: ByteUnit, amount: int, *, up: bool) -> int:
    scaled = amount * _HUNDREDTHS
    return -(-scaled // unit.size) if up else scaled // unit.size


def _is_exact(unit: ByteUnit, amount: int) -> bool:
    """Return whether two decimals are enough, in a number that is not too long to be read."""
    return amount * _HUNDREDTHS % unit.size == 0 and amount // unit.size < _LONG


def _keeps_order(unit: ByteUnit, asked: int, free: int) -> bool:
    """Return whether the rounded amounts compare as the exact ones do; what is free is never shown as nothing."""
    shown = _hundredths(unit, free, up=False)
    return (free >= asked) == (shown >= _hundredths(unit, asked, up=True)) and (shown > 0) == (free > 0)
