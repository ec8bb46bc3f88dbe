"""Rules out pairs of pods whose removal cannot make room: without them too little would be free for a container.

Only sums are looked at, of all pairs at once, so a pair that is not ruled out may still not make room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

__all__ = ["NO_NUMA_NODE", "possible_pairs"]

NO_NUMA_NODE: Final = -1
"""Stands for the id of a NUMA node where a device is near to none."""
_LARGEST: Final = 1 << 62
"""More than any machine has of anything, and twice of it still fits into 64 bits unsigned."""


def possible_pairs(
    held: Sequence[Mapping[str, Mapping[int, int]]],
    free: Mapping[str, Mapping[int, int]],
    asked: Iterable[Mapping[str, int]],
    *,
    on_one_node: bool,
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of pods, by their places in `held`, that are not ruled out.

    Args:
        held: for each pod by resource and kernel id of the NUMA node what it holds.
        free: by resource and kernel id, what is free; a device that is near to several NUMA nodes counts for each.
        asked: for each container by resource, what it asks for.
        on_one_node: whether each container must get everything from one NUMA node.
    """
    possible = np.triu(np.ones((len(held), len(held)), np.bool_), 1)
    for container in asked:
        some_node: npt.NDArray[np.bool_] | None = None
        for resource, amount in container.items():
            if resource not in free:
                continue
            nodes = sorted(free[resource])
            there = np.array([free[resource][node] for node in nodes], np.int64)
            rows = [[one.get(resource, {}).get(node, 0) for node in nodes] for one in held]
            given = np.array(rows, np.int64).reshape(len(held), len(nodes))
            wanted = min(amount, _LARGEST)
            totals = given.sum(axis=1)
            possible &= there.sum() + totals[:, None] + totals[None, :] >= wanted
            nowhere = nodes.index(NO_NUMA_NODE)
            if on_one_node and not there[nowhere] and not given[:, nowhere].any():
                enough = np.stack(
                    [
                        there[at] + given[:, None, at] + given[None, :, at] >= wanted
                        for at in range(len(nodes))
                    ]
                )
                some_node = enough if some_node is None else some_node & enough
        if some_node is not None:
            possible &= some_node.any(axis=0)
    first, second = np.nonzero(possible)
    yield from zip(first.tolist(), second.tolist(), strict=True)
