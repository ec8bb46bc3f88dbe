"""Writes numbers of things, bytes, and lists of names, for people.

Bytes have the suffixes Ki, Mi, Gi and Ti. Quantities are read by `alignup.kubernetes.quantity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from alignup.records import Record

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Final

# Suffixes, the largest first, and the power of two that each stands for.
BYTE_SUFFIXES: Final = (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))

_MANY: Final = 10_000
_HUNDREDTHS: Final = 100
_LONG: Final = 100_000


def number_in(value: float | None, form: str = ".1%") -> str:
    """Return a number in a cell of a table, a part in percent by default; `-`: there is none."""
    return "-" if value is None else format(value, form)


def counted(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "core"), counted(8, "core")
    ('1 core', '8 cores')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def named(noun: str, ids: Iterable[object], between: str = "+") -> str:
    """Return a noun with the ids of what it stands for.

    >>> named("node", [0]), named("node", [0, 2])
    ('node 0', 'nodes 0+2')
    """
    words = [str(one) for one in ids]
    return f"{noun}{'' if len(words) == 1 else 's'} {between.join(words)}"


def free_in(places: Iterable[tuple[str, int]], there: int | None = None) -> str:
    """Return how many are free of those that are there, and where, without the places that have none.

    >>> free_in([("on node 0", 0), ("on node 1", 2)]), free_in([("on node 0", 0)], 4)
    ('2 free, all on node 1', '0 of 4 free')
    >>> free_in([("on node 0", 1), ("without a node", 2)])
    '3 free: 1 on node 0, 2 without a node'
    >>> free_in([("on node 0", 4)], 4)
    'the machine has 4'
    """
    every = list(places)
    some = [(name, count) for name, count in every if count]
    total = sum(count for _, count in some)
    where = f": {', '.join(f'{count} {name}' for name, count in some)}" if len(some) > 1 else ""
    if len(some) == 1 < len(every):
        where = f", {'all ' if some[0][1] > 1 else ''}{some[0][0]}"

    if total and total == there:
        return f"the machine has {total}{where}"

    return f"{total}{'' if there is None else f' of {there}'} free{where}"


def some_of(names: Sequence[str], most: int = 6) -> str:
    """Return the first of some names, and how many more there are.

    >>> some_of(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def format_bytes(amount: int) -> str:
    """Return an amount exactly, as Kubernetes writes it: with the largest suffix that leaves it whole.

    >>> format_bytes(3 << 29), format_bytes(1000)
    ('1536Mi', '1000')
    """
    for suffix, shift in BYTE_SUFFIXES:
        if amount and not amount & ((1 << shift) - 1):
            return f"{amount >> shift}{suffix}"
    return str(amount)


def short_bytes(amount: int) -> str:
    """Return an amount for people: exactly where that takes up to four digits, or else to one decimal.

    >>> short_bytes(3 << 29), short_bytes(1000), short_bytes((1 << 40) - 1)
    ('1536Mi', '1000', '1024.0Gi')
    """
    for suffix, shift in (*BYTE_SUFFIXES, ("", 0)):
        if amount >> shift and not amount & ((1 << shift) - 1) and amount >> shift < _MANY:
            return f"{amount >> shift}{suffix}"
    for suffix, shift in BYTE_SUFFIXES:
        if amount >> shift:
            return f"{amount / (1 << shift):.1f}{suffix}"
    return str(amount)


class ByteUnit(Record):
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
    small = [unit for unit in _UNITS if all(asked >= unit.size for asked in wanted)]
    good = [
        unit for unit in small if all(_keeps_order(unit, asked, free) for asked, free in compared)
    ]
    # two decimals are enough, in a number that is not too long to be read
    exact = [unit for unit in good if not any(asked * _HUNDREDTHS % unit.size for asked in wanted)]
    short = (unit for unit in exact if all(asked // unit.size < _LONG for asked in wanted))
    return next(short, good[0] if good else BYTES)


def amount_in(unit: ByteUnit, amount: int, *, up: bool = False) -> str:
    """Return bytes in a unit, to two decimals at most: rounded down, or up."""
    whole, rest = divmod(_hundredths(unit, amount, up=up), _HUNDREDTHS)
    decimals = f".{rest:02}".rstrip("0").rstrip(".") if rest else ""
    return f"{whole}{decimals}{unit.suffix if amount else ''}"


def _hundredths(unit: ByteUnit, amount: int, *, up: bool) -> int:
    scaled = amount * _HUNDREDTHS
    return -(-scaled // unit.size) if up else scaled // unit.size


def _keeps_order(unit: ByteUnit, asked: int, free: int) -> bool:
    """Return whether the rounded amounts compare as the exact ones do; what is free is never shown as nothing."""
    shown = _hundredths(unit, free, up=False)
    return (free >= asked) == (shown >= _hundredths(unit, asked, up=True)) and (shown > 0) == (
        free > 0
    )
