"""Splits a request evenly over NUMA nodes, and offers scored hints for the sets over which it splits.

Amounts are whole numbers in any unit (here thousandths of a CPU, and bytes). Masks are by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

from alignup.errors import InputError
from alignup.koordinator.scored_merge import ScoredHint

__all__ = ["MAX_NODES", "Demand", "Split", "masks_by_size", "offered_hints", "split", "utilisations"]

MAX_NODES: Final = 16
"""Every set of NUMA nodes is looked at, in the order of the definition. More would take too long."""

Utilisations: TypeAlias = Sequence[tuple[int, int]]
"""(requested including the new pod, capacity) of each resource on one set of nodes."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One resource on one machine: per NUMA node how much there is and how much is free, and the request."""

    resource: str
    capacity: tuple[int, ...]
    free: tuple[int, ...]
    request: int


@dataclass(frozen=True, slots=True)
class Split:
    """The amounts that each NUMA node gives, by position and resource, and the resources that left a rest (sorted)."""

    amounts: Mapping[int, Mapping[str, int]]
    insufficient: tuple[str, ...]


def masks_by_size(nodes: int) -> Iterator[int]:
    """Yield all sets of `nodes` positions, as masks: smallest first, then in lexicographic order.

    Raises:
        InputError: there are more than `MAX_NODES`.
    """
    if nodes > MAX_NODES:
        raise InputError.at("numa", f"at most {MAX_NODES} NUMA nodes", nodes)
    for size in range(1, nodes + 1):
        for positions in combinations(range(nodes), size):
            yield sum(1 << position for position in positions)


def split(demands: Sequence[Demand], mask: int) -> Split:
    """Return how requests are spread over the nodes of `mask`.

    Each resource goes to its nodes from the least free to the most, ties by position; each node takes an even
    share of what remains (rounded down), or all that it has. A resource of which a rest remains is insufficient.
    """
    nodes = [position for position in range(mask.bit_length()) if mask >> position & 1]
    amounts: dict[int, dict[str, int]] = {}
    insufficient = []
    for demand in demands:
        remaining = demand.request
        for taken, node in enumerate(sorted(nodes, key=demand.free.__getitem__)):
            share = min(demand.free[node], remaining // (len(nodes) - taken))
            if share:
                amounts.setdefault(node, {})[demand.resource] = share
                remaining -= share
        if remaining:
            insufficient.append(demand.resource)
    return Split(dict(sorted(amounts.items())), tuple(sorted(insufficient)))


def utilisations(demands: Sequence[Demand], mask: int) -> Utilisations:
    """Return how full the nodes of `mask` would be, for each resource that they have."""
    nodes = [position for position in range(mask.bit_length()) if mask >> position & 1]
    found = []
    for demand in demands:
        capacity = sum(demand.capacity[node] for node in nodes)
        if capacity:
            free = sum(demand.free[node] for node in nodes)
            found.append((capacity - free + demand.request, capacity))
    return found


def offered_hints(
    demands: Sequence[Demand],
    nodes: int,
    *,
    score: Callable[[int, Utilisations], float],
    skips: Callable[[int], bool],
    all_preferred: bool,
) -> dict[str, list[ScoredHint]]:
    """Return the hints of each requested resource, by name of the resource.

    A set of nodes is offered if all requests split over it and none of its nodes is without the resource. Its
    hint is preferred if it has the smallest size of those that the resource offers.

    Args:
        demands: all resources; those without a request take part in the score, and in nothing else.
        nodes: how many NUMA nodes there are.
        score: the weight of a set of nodes, given how full it would be.
        skips: whether a set of nodes is not to be offered.
        all_preferred: prefer every hint, regardless of its size.

    Raises:
        InputError: there are more than `MAX_NODES` NUMA nodes.
    """
    requested = [demand for demand in demands if demand.request]
    without = {demand.resource: _empty_nodes(demand.free) for demand in requested}
    offered: dict[str, list[tuple[int, float]]] = {demand.resource: [] for demand in requested}
    for mask in masks_by_size(nodes):
        if skips(mask) or split(requested, mask).insufficient:
            continue
        weight = score(mask, utilisations(demands, mask))
        for resource, masks in offered.items():
            if not mask & without[resource]:
                masks.append((mask, weight))
    return {resource: _hints(masks, all_preferred=all_preferred) for resource, masks in offered.items()}


def _empty_nodes(free: Sequence[int]) -> int:
    return sum(1 << position for position, amount in enumerate(free) if not amount)


def _hints(masks: Sequence[tuple[int, float]], *, all_preferred: bool) -> list[ScoredHint]:
    """Return the hints for masks in ascending size."""
    smallest = masks[0][0].bit_count() if masks else 0
    return [
        ScoredHint(mask, all_preferred or mask.bit_count() == smallest, unsatisfied=False, score=weight)
        for mask, weight in masks
    ]
