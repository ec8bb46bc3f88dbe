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
    if value is None:
        return "-"

    return format(value, form)


def counted(number: int, noun: str) -> str:
    """Return a number of things in words.

    Examples:
        >>> counted(1, "core"), counted(8, "core")
        ('1 core', '8 cores')
    """
    plural = "" if number == 1 else "s"
    return f"{number} {noun}{plural}"


def named(noun: str, ids: Iterable[object], between: str = "+") -> str:
    """Return a noun with the ids of what it stands for.

    Examples:
        >>> named("node", [0]), named("node", [0, 2])
        ('node 0', 'nodes 0+2')
    """
    names = [str(name) for name in ids]
    plural = "" if len(names) == 1 else "s"
    return f"{noun}{plural} {between.join(names)}"


def free_in(places: Iterable[tuple[str, int]], machine_total: int | None = None) -> str:
    """Return how many are free, and in which places; those that have none are not named.

    Args:
        places: each with how many are free in it.
        machine_total: how many the machine has; None: that is not said.

    Examples:
        >>> free_in([("on node 0", 0), ("on node 1", 2)]), free_in([("on node 0", 0)], 4)
        ('2 free, all on node 1', '0 of 4 free')
        >>> free_in([("on node 0", 1), ("without a node", 2)])
        '3 free: 1 on node 0, 2 without a node'
        >>> free_in([("on node 0", 4)], 4)
        'the machine has 4'
    """
    all_places = list(places)
    free_places = [(name, count) for name, count in all_places if count]
    total = sum(count for _, count in free_places)

    where = ""
    if len(free_places) > 1:
        where = ": " + ", ".join(f"{count} {name}" for name, count in free_places)
    elif len(free_places) == 1 < len(all_places):
        name, count = free_places[0]
        where = f", all {name}" if count > 1 else f", {name}"

    if total and total == machine_total:
        return f"the machine has {total}{where}"
    if machine_total is None:
        return f"{total} free{where}"

    return f"{total} of {machine_total} free{where}"


def some_of(names: Sequence[str], limit: int = 6) -> str:
    """Return the first of some names, and how many more there are.

    Examples:
        >>> some_of(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    listed = ", ".join(names[:limit])
    if len(names) <= limit:
        return listed

    return f"{listed} and {len(names) - limit} more"


def format_bytes(amount: int) -> str:
    """Return an amount exactly, with the largest suffix that leaves it whole, as Kubernetes does.

    Examples:
        >>> format_bytes(3 << 29), format_bytes(1000)
        ('1536Mi', '1000')
    """
    for suffix, shift in BYTE_SUFFIXES:
        if amount and not amount & ((1 << shift) - 1):
            return f"{amount >> shift}{suffix}"

    return str(amount)


def short_bytes(amount: int) -> str:
    """Return an amount for people: exactly where four digits can do that, else to one decimal.

    Examples:
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


def short_difference(before: int, now: int) -> tuple[str, str]:
    """Return two different amounts for people: in bytes where the short ones look alike.

    Examples:
        >>> short_difference(1 << 30, 2 << 30), short_difference((1 << 40) - 1, (1 << 40) - 2)
        (('1Gi', '2Gi'), ('1099511627775 bytes', '1099511627774 bytes'))
    """
    old, new = short_bytes(before), short_bytes(now)
    if old == new:
        return f"{before} bytes", f"{now} bytes"

    return old, new


class ByteUnit(Record):
    """A unit of bytes as Kubernetes writes it."""

    suffix: str
    size: int


BYTES: Final = ByteUnit("", 1)
_UNITS: Final = (*(ByteUnit(suffix, 1 << shift) for suffix, shift in BYTE_SUFFIXES), BYTES)


def shared_unit(comparisons: Iterable[tuple[int, Sequence[int]]]) -> ByteUnit:
    """Return the largest unit in which two decimals tell which requests fit.

    Of such units it is one that shows the requests exactly, if there is one.

    Args:
        comparisons: requested bytes, each with the free bytes that it is compared with.
    """
    comparisons = list(comparisons)
    requests = {request for request, _ in comparisons if request}
    # NUMA nodes often have equal amounts
    pairs = {(request, free) for request, amounts in comparisons for free in amounts}

    small = [unit for unit in _UNITS if all(request >= unit.size for request in requests)]
    good = [
        unit for unit in small if all(_keeps_order(unit, request, free) for request, free in pairs)
    ]

    # two decimals are enough, in a number that is not too long to be read
    for unit in good:
        is_exact = not any(request * _HUNDREDTHS % unit.size for request in requests)
        if is_exact and all(request // unit.size < _LONG for request in requests):
            return unit

    return good[0] if good else BYTES


def amount_in(unit: ByteUnit, amount: int, *, up: bool = False) -> str:
    """Return bytes in a unit, to two decimals at most: rounded down, or up."""
    if not amount:
        return "0"

    whole, hundredths = divmod(_hundredths(unit, amount, up=up), _HUNDREDTHS)
    number = str(whole)
    if hundredths:
        number += f".{hundredths:02}".rstrip("0")

    return f"{number}{unit.suffix}"


def _hundredths(unit: ByteUnit, amount: int, *, up: bool) -> int:
    scaled = amount * _HUNDREDTHS
    return -(-scaled // unit.size) if up else scaled // unit.size


def _keeps_order(unit: ByteUnit, request: int, free: int) -> bool:
    """Return whether the rounded amounts compare as the exact ones do.

    What is free is never shown as nothing.
    """
    rounded_free = _hundredths(unit, free, up=False)
    rounded_request = _hundredths(unit, request, up=True)
    if (rounded_free > 0) != (free > 0):
        return False

    return (rounded_free >= rounded_request) == (free >= request)
