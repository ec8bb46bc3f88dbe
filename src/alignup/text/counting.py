"""Writes numbers of things, and lists of names, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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


def free_in(places: Iterable[tuple[str, int]], of: str = "") -> str:
    """Return how many are free in some places, and where, without the places that have none.

    >>> free_in([("on node 0", 0), ("on node 1", 2)]), free_in([("on node 0", 0)], " of 4")
    ('2 free, all on node 1', '0 of 4 free')
    >>> free_in([("on node 0", 1), ("without a node", 2)])
    '3 free: 1 on node 0, 2 without a node'
    """
    every = list(places)
    some = [(name, count) for name, count in every if count]
    where = f": {', '.join(f'{count} {name}' for name, count in some)}" if len(some) > 1 else ""
    if len(some) == 1 < len(every):
        where = f", {'all ' if some[0][1] > 1 else ''}{some[0][0]}"
    return f"{sum(count for _, count in some)}{of} free{where}"


def some_of(names: Sequence[str], most: int = 6) -> str:
    """Return the first of some names, and how many more there are.

    >>> some_of(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
