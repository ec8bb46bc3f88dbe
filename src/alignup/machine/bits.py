"""Ints as bit sets: bit i stands for the CPU, NUMA node or position of number i."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Final, TypeVar

    _Key = TypeVar("_Key")

_SHORT: Final = 512
_WORD_BYTES: Final = 8


def bit_set(numbers: Iterable[int]) -> int:
    """Return the int whose one bits are at the positions `numbers`.

    Examples:
        >>> bit_set([0, 3])
        9
    """
    bits = 0
    for number in numbers:
        bits |= 1 << number

    return bits


def bit_numbers(bits: int) -> Iterator[int]:
    """Yield the positions of the one bits of `bits`, ascending."""
    if bits.bit_length() > _SHORT:
        # to change a long int takes time that grows with its length, so word by word
        yield from _bit_numbers_of_words(bits.to_bytes((bits.bit_length() + 7) // 8, "little"))
        return

    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _bit_numbers_of_words(data: bytes) -> Iterator[int]:
    for start in range(0, len(data), _WORD_BYTES):
        word = int.from_bytes(data[start : start + _WORD_BYTES], "little")
        while word:
            lowest = word & -word
            yield 8 * start + lowest.bit_length() - 1
            word ^= lowest


def ids_of(bits: int, ids: Iterable[int]) -> tuple[int, ...]:
    """Return those ids of which the positions are in a bit set."""
    return tuple([identity for bit, identity in enumerate(ids) if bits >> bit & 1])


def overlapping(sets: Iterable[int], bits: int) -> int:
    """Return as a bit set the positions of the bit sets that have something in common with `bits`.

    Examples:
        >>> overlapping([0b0011, 0b1100, 0b0110], 0b0010)
        5
    """
    return bit_set(position for position, members in enumerate(sets) if members & bits)


def unions(sets: Iterable[tuple[_Key, int]]) -> dict[_Key, int]:
    """Return by key the union of the bit sets that have it; keys stay in their order."""
    by_key: dict[_Key, int] = {}
    for key, bits in sets:
        by_key[key] = by_key.get(key, 0) | bits

    return by_key


def union(sets: Iterable[int]) -> int:
    """Return the bit set of what is in any of some bit sets."""
    return reduce(or_, sets, 0)
