"""What every NUMA node has left, and which nodes may be used together: the memory manager's ledger.

It keeps the single- and cross-NUMA group rule, and knows of masks and types only; pods and containers are the
business of `alignup.providers.memory.provider`. All masks are ints, and bit i is position i.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Holding", "MemoryNodes", "positions_of"]


def positions_of(mask: int) -> tuple[int, ...]:
    """Return the positions of the one bits of `mask`, ascending."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)


class Holding:
    """What one container holds: by type, the bytes taken from each node of its mask, in order of position."""

    __slots__ = ("mask", "positions", "taken")

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.positions = positions_of(mask)
        self.taken: dict[str, list[int]] = {}

    def size(self, kind: str) -> int:
        """Return the bytes of one type that are held, on all nodes together."""
        return sum(self.taken.get(kind, ()))

    def hand_over(self, kind: str, amount: int, heir: Holding) -> int:
        """Move up to `amount` bytes to a holding on the same nodes, lowest first; return what is missing."""
        mine = self.taken.get(kind)
        if mine is None:
            return amount
        theirs = heir.taken[kind]
        for index, held in enumerate(mine):
            moved = min(held, amount)
            mine[index] -= moved
            theirs[index] += moved
            amount -= moved
        return amount


class MemoryNodes:
    """The bytes free on each node, by type, and how nodes are bound.

    A node is bound while a container holds memory on it: to itself if some container sits on that node alone,
    else to all the nodes of the container's mask. A node bound to itself takes no part in a larger mask, a
    group of bound nodes is only used whole, and nodes that nobody uses combine freely (the memory manager's
    rule since KEP-1769).

    Where a merged affinity is narrower than a group, a container can come to sit alone on one of its nodes.
    The kubelet then leaves the node bound to itself until nobody uses it, even when that container is gone.

    Args:
        allocatable: Bytes by type and position.
        bindings_stay: Bind as the kubelet does; else a node returns to its group together with the memory.
    """

    __slots__ = (
        "_bindings_stay",
        "_bound",
        "_group",
        "_singles",
        "_users",
        "alone",
        "free",
        "groups",
        "unbound",
    )

    def __init__(self, allocatable: Mapping[str, tuple[int, ...]], *, bindings_stay: bool = True) -> None:
        self._bindings_stay = bindings_stay
        self.free = {kind: list(amounts) for kind, amounts in allocatable.items()}
        nodes = len(next(iter(allocatable.values())))
        self._users = [0] * nodes
        self._singles = [0] * nodes
        self._group = [0] * nodes
        self._bound = [1 << position for position in range(nodes)]
        self._refresh()

    def _refresh(self) -> None:
        """Work out again which masks the rule allows."""
        unbound = alone = 0
        groups = []
        for position, mask in enumerate(self._bound):
            bit = 1 << position
            if not self._users[position]:
                unbound |= bit
            if mask == bit:
                alone |= bit
            elif mask not in groups:
                groups.append(mask)
        self.unbound = unbound
        self.alone = alone
        self.groups = tuple(mask for mask in groups if self._is_whole(mask))

    def _is_whole(self, mask: int) -> bool:
        """Tell whether every node of the mask is either bound to exactly this mask or not at all."""
        return all(not self._users[i] or self._bound[i] == mask for i in positions_of(mask))

    def allows(self, mask: int) -> bool:
        """Tell whether the group rule lets a container have these nodes."""
        if not mask & ~self.unbound:
            return True
        return mask & self.alone != 0 if mask == mask & -mask else mask in self.groups

    def violates(self, mask: int) -> bool:
        """Tell whether the kubelet refuses these nodes at the last moment: a single node it never does."""
        return mask != mask & -mask and not self.allows(mask)

    def holds(self, mask: int, requests: Iterable[tuple[str, int]]) -> bool:
        """Tell whether the nodes have as much free as is asked for, of every type."""
        for kind, amount in requests:
            free = self.free.get(kind)
            if free is None:
                return False
            left, missing = mask, amount
            while left and missing > 0:
                lowest = left & -left
                missing -= free[lowest.bit_length() - 1]
                left ^= lowest
            if missing > 0:
                return False
        return True

    def take(self, holding: Holding, kind: str, amount: int) -> None:
        """Take bytes from the nodes of the holding, lowest first, on top of what it has."""
        free = self.free[kind]
        taken = holding.taken[kind]
        for index, position in enumerate(holding.positions):
            if not amount:
                return
            part = min(free[position], amount)
            free[position] -= part
            taken[index] += part
            amount -= part

    def bind(self, holding: Holding) -> None:
        """Bind the nodes of a container that now holds memory on them."""
        mask = holding.mask
        is_single = len(holding.positions) == 1
        changed = False
        for position in holding.positions:
            changed = changed or not self._users[position] or self._bound[position] != mask
            self._users[position] += 1
            self._bound[position] = mask
            if is_single:
                self._singles[position] += 1
            else:
                self._group[position] = mask
        if changed:
            self._refresh()

    def give_back(self, holding: Holding) -> None:
        """Return what a holding took to the nodes it came from, and unbind those that nobody uses now."""
        for kind, amounts in holding.taken.items():
            free = self.free[kind]
            for position, amount in zip(holding.positions, amounts, strict=True):
                free[position] += amount
        is_single = len(holding.positions) == 1
        changed = False
        for position in holding.positions:
            self._users[position] -= 1
            if is_single:
                self._singles[position] -= 1
            bound = self._still_bound(position)
            changed = changed or not self._users[position] or bound != self._bound[position]
            self._bound[position] = bound
        if changed:
            self._refresh()

    def _still_bound(self, position: int) -> int:
        """Return the mask that a node is bound to after a container has left it."""
        alone = 1 << position
        if not self._users[position] or self._singles[position]:
            return alone
        if self._bindings_stay and self._bound[position] == alone:
            return alone
        return self._group[position]
