"""Ints as bit sets: bit i stands for the CPU, NUMA node or position of number i."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["bit_numbers", "bit_set", "union"]


def bit_set(numbers: Iterable[int]) -> int:
    """Return the int whose one bits are at the positions `numbers`.

    >>> bit_set([0, 3])
    9
    """
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits


def bit_numbers(bits: int) -> Iterator[int]:
    """Yield the positions of the one bits of `bits`, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def union(sets: Iterable[int]) -> int:
    """Return the bit set of what is in any of some bit sets."""
    bits = 0
    for members in sets:
        bits |= members
    return bits
