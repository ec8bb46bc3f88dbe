"""Whether a node takes several pods in whatever order its kubelet gets them.

What a container gets depends on what those before it got, so that an order of different pods may be
admitted where another one is not. Equal pods make no difference.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Final

from alignup.cluster.node_totals import demand_key
from alignup.errors import AlignupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

# Orders that are tried: all of four different pods, or of two kinds of three pods each.
MOST_ORDERS: Final = 24


def admits_in_any_order(node: Node, pods: Iterable[Pod]) -> bool:
    """Return whether a node admits pods in each order, and each part of them, too.

    A part of the pods is admitted where all of them are: an order begins with it. Where there are
    more than `MOST_ORDERS` orders that differ, they are not tried, and the answer is no.

    Args:
        node: stays as it is.
        pods: with the names and uids that they have or will have.
    """
    kinds: dict[object, list[Pod]] = {}
    for pod in pods:
        kinds.setdefault(demand_key(pod), []).append(pod)

    lines = list(kinds.values())
    return _count_orders(lines) <= MOST_ORDERS and _admits_all(node, lines)


def _count_orders(lines: Sequence[Sequence[Pod]]) -> int:
    """Return how many orders of pods differ, of which those of a line are equal."""
    count, orders = 0, 1
    for line in lines:
        count += len(line)
        orders *= comb(count, len(line))
    return orders


def _admits_all(node: Node, lines: Sequence[Sequence[Pod]]) -> bool:
    """Return whether a node admits pods of each line, in each order of the lines."""
    for number, line in enumerate(lines):
        if not line:
            continue

        copy = node.copy()
        try:
            if not copy.admit(line[0]).admitted:
                return False
        except AlignupError:  # its own policy does not go with the node
            return False

        if not _admits_all(copy, [*lines[:number], line[1:], *lines[number + 1 :]]):
            return False

    return True
