"""A machine's memory as plain Python keeps it: every mask is looked at, nothing is remembered.

Written after the memory manager's static policy (the group rule is that of KEP-1769). A holding is
a mask and, by type, what was taken from each of its nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models import topology_manager as model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Requests = tuple[tuple[str, int], ...]


def nodes_of(mask: int) -> list[int]:
    """Return the positions of a mask, ascending."""
    return [position for position in range(mask.bit_length()) if mask >> position & 1]


@dataclass(eq=False)
class Held:
    """What one container holds."""

    mask: int
    taken: dict[str, list[int]] = field(default_factory=dict)

    def size(self, kind: str) -> int:
        return sum(self.taken.get(kind, ()))

    def hand_over(self, kind: str, amount: int, heir: Held) -> int:
        """Move up to so many bytes to a holding on the same nodes, lowest first.

        Return what is missing.
        """
        for index, size in enumerate(self.taken.get(kind, ())):
            moved = min(size, amount)
            self.taken[kind][index] -= moved
            heir.taken[kind][index] += moved
            amount -= moved
        return amount


class Memory:
    """The memory of one machine.

    Without `checks_groups` as kubelets up to 1.31 keep it: groups may mix, the last container that
    came decides what a node is bound to, and what is released goes to the lowest nodes on which
    anything is taken.
    """

    def __init__(
        self, allocatable: Mapping[str, Sequence[int]], *, checks_groups: bool = True
    ) -> None:
        self.checks_groups = checks_groups
        self.allocatable = {kind: list(amounts) for kind, amounts in allocatable.items()}
        self.free = {kind: list(amounts) for kind, amounts in allocatable.items()}
        self.nodes = len(next(iter(allocatable.values())))
        self.users: list[list[Held]] = [[] for _ in range(self.nodes)]
        self.bound = [1 << node for node in range(self.nodes)]
        self.last_group = [0] * self.nodes

    @property
    def unused(self) -> int:
        return sum(1 << node for node in range(self.nodes) if not self.users[node])

    @property
    def alone(self) -> int:
        return sum(1 << node for node in range(self.nodes) if self.bound[node] == 1 << node)

    @property
    def groups(self) -> list[int]:
        """The sets that are used as a whole: each of their nodes is bound to the set, or free."""
        return [
            mask
            for mask in dict.fromkeys(self.bound)
            if mask.bit_count() > 1
            and all(not self.users[node] or self.bound[node] == mask for node in nodes_of(mask))
        ]

    def allows(self, mask: int) -> bool:
        """Return whether the group rule lets a container have these nodes."""
        if not mask & ~self.unused:
            return True
        if mask.bit_count() == 1:
            return bool(mask & self.alone)
        return mask in self.groups

    def suffices(
        self, mask: int, requests: Iterable[tuple[str, int]], donors: Sequence[Held] = ()
    ) -> bool:
        """Return whether the nodes have so much free.

        What init containers hold on exactly these nodes counts as free.
        """
        for kind, amount in requests:
            if kind not in self.free:
                return False
            free_bytes = sum(self.free[kind][node] for node in nodes_of(mask))
            if (
                free_bytes + sum(donor.size(kind) for donor in donors if donor.mask == mask)
                < amount
            ):
                return False
        return True

    def hints(self, requests: Requests, donors: Sequence[Held] = ()) -> dict[int, bool]:
        """Return every mask that holds the requests.

        And whether it is as small as an empty machine needs.
        """
        if any(kind not in self.free for kind, _ in requests):
            return {}
        demands = [(None, self.allocatable[kind], amount) for kind, amount in requests]
        size = model.smallest(self.nodes, demands, (1 << self.nodes) - 1)
        masks = {donor.mask for donor in donors}
        return {
            mask: mask.bit_count() == size
            for mask in range(1, 1 << self.nodes)
            if self.allows(mask) and self.suffices(mask, requests, donors if mask in masks else ())
        }

    def best(self, hints: Mapping[int, bool], inner: int) -> tuple[int, bool] | None:
        """Return the best hint that includes some nodes.

        Preferred, then few nodes, then low ones.
        """
        candidates = [
            (not preferred, mask.bit_count(), mask)
            for mask, preferred in hints.items()
            if mask & inner == inner
        ]
        if not candidates:
            return None
        not_preferred, _, mask = min(candidates)
        return mask, not not_preferred

    def choose(
        self, requests: Requests, donors: Sequence[Held], mask: int | None, *, preferred: bool
    ) -> int | str:
        """Return the nodes to take from, or why there are none.

        Without an affinity they are the best hint. Where the nodes have too little, the best hint
        that includes them.
        """
        chosen = mask or 0
        for _ in range(2):
            if chosen and self.suffices(chosen, requests):
                break
            best = self.best(self.hints(requests, donors), chosen)
            if best is None:
                return "too little"
            if preferred and not best[1]:
                return "not preferred"
            if mask is not None or chosen:
                return best[0]
            chosen, preferred = best

        return chosen

    def allocate(
        self, requests: Requests, donors: Sequence[Held], mask: int | None, *, preferred: bool
    ) -> Held | str:
        """Take the requests on the nodes, or on more; return why not where they cannot be had."""
        chosen = self.choose(requests, donors, mask, preferred=preferred)
        if isinstance(chosen, str):
            return chosen
        if self.checks_groups and chosen.bit_count() > 1 and not self.allows(chosen):
            return "bound otherwise"

        holding = Held(chosen)
        for kind, amount in requests:
            holding.taken[kind] = [0] * chosen.bit_count()
            missing = amount
            for donor in donors:
                if donor.mask == chosen:
                    missing = donor.hand_over(kind, missing, holding)

            for index, node in enumerate(nodes_of(chosen)):
                part = min(self.free[kind][node], missing)
                self.free[kind][node] -= part
                holding.taken[kind][index] += part
                missing -= part

        self.bind(holding)
        return holding

    def bind(self, holding: Held) -> None:
        for node in nodes_of(holding.mask):
            self.users[node].append(holding)
            self.bound[node] = holding.mask
            if holding.mask.bit_count() > 1:
                self.last_group[node] = holding.mask

    def release(self, holding: Held) -> None:
        """Give back what is held, and unbind nodes that nobody uses.

        A node left alone may stay alone.
        """
        for kind, amounts in holding.taken.items():
            left = sum(amounts)
            for node, amount in zip(nodes_of(holding.mask), amounts, strict=True):
                room = self.allocatable[kind][node] - self.free[kind][node]
                part = amount if self.checks_groups else min(left, room)
                self.free[kind][node] += part
                left -= part

        for node in nodes_of(holding.mask):
            self.users[node].remove(holding)
            sits_alone = any(user.mask == 1 << node for user in self.users[node])
            if not self.users[node] or (
                self.checks_groups and (sits_alone or self.bound[node] == 1 << node)
            ):
                self.bound[node] = 1 << node
            elif self.checks_groups:
                self.bound[node] = self.last_group[node]
