"""Parts of whole cores, by trying everything: small machines only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

Part = tuple[int, frozenset[int]]
"""How many CPUs a part still needs, and the places of the cores that it has."""


def best_cut(
    places: Sequence[Sequence[int]], parts: int, cpus: int, *, is_exact: bool = False
) -> tuple[int, int] | None:
    """Return how many parts are within a place at best, and then in how many places parts are.

    The second number is the sum over all parts, and the least. None: some core would be in two
    parts. `places` are the sizes of the cores of each; with `is_exact` a part has all CPUs of its
    cores. Each core is given to each part, or to none.
    """
    cores = [(place, size) for place, sizes in enumerate(places) for size in sizes]

    @cache
    def best(index: int, state: tuple[Part, ...]) -> tuple[int, int] | None:
        if index == len(cores):
            if any(missing > 0 for missing, _ in state):
                return None
            within = sum(len(owned) == 1 for _, owned in state)
            return within, -sum(len(owned) for _, owned in state)

        place, size = cores[index]
        outcomes = [best(index + 1, state)]
        for number, (missing, owned) in enumerate(state):
            if missing > 0 and (size <= missing or not is_exact):
                part = (max(missing - size, 0), owned | {place})
                longer = (*state[:number], part, *state[number + 1 :])
                outcomes.append(best(index + 1, ordered(longer)))

        return max((outcome for outcome in outcomes if outcome), default=None)

    best_outcome = best(0, ((cpus, frozenset()),) * parts)
    if best_outcome is None:
        return None
    return best_outcome[0], -best_outcome[1]


def ordered(state: Sequence[Part]) -> tuple[Part, ...]:
    """Return parts in an order in which equal states are equal."""
    return tuple(sorted(state, key=lambda part: (part[0], sorted(part[1]))))
