"""How CPUs are chosen, written down as plainly as it can be.

Sets, sorted lists, every combination tried.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from alignup.machine.machine import Machine


class Layout:
    """Which node, socket and core each CPU is in."""

    def __init__(self, machine: Machine) -> None:
        self.node: dict[int, int] = {}
        self.socket: dict[int, int] = {}
        self.core: dict[int, int] = {}
        for node in machine.numa_nodes:
            for core in node.cores:
                for cpu in core.cpus:
                    self.node[cpu], self.socket[cpu], self.core[cpu] = (
                        node.id,
                        core.socket,
                        min(core.cpus),
                    )

        sockets_larger = len(set(self.node.values())) > len(set(self.socket.values()))
        self.outer, self.inner = (
            (self.socket, self.node) if sockets_larger else (self.node, self.socket)
        )

    def order(self, free: set[int]) -> list[int]:
        """Return the free CPUs in the order in which single ones are taken."""

        def key(cpu: int) -> list[int]:
            parts: list[int] = []
            for kind in (self.outer, self.inner, self.core):
                parts += [sum(kind[free_cpu] == kind[cpu] for free_cpu in free), kind[cpu]]
            return [*parts, cpu]

        return sorted(free, key=key)


def pack(machine: Machine, free: set[int], count: int) -> set[int]:
    """Return the CPUs that packing takes, on a machine of equal sockets and equal cores."""
    layout = Layout(machine)
    taken: set[int] = set()
    for kind in (layout.outer, layout.inner, layout.core):
        left = free - taken
        groups: dict[int, None] = dict.fromkeys(kind[cpu] for cpu in layout.order(left))
        for group in groups:
            members = {cpu for cpu, number in kind.items() if number == group}
            if members <= left and len(members) <= count - len(taken):
                taken |= members
    return taken | set(layout.order(free - taken)[: count - len(taken)])


def deviation(values: Sequence[int]) -> float:
    """Return the standard deviation, mean and result rounded to three places."""
    mean = math.floor(sum(values) / len(values) * 1000 + 0.5) / 1000
    return (
        math.floor(math.sqrt(sum((x - mean) ** 2 for x in values) / len(values)) * 1000 + 0.5)
        / 1000
    )


def best_of(
    pool: Sequence[int],
    sizes: Iterable[int],
    score: Callable[[tuple[int, ...]], float | None],
    *,
    stop: bool,
):
    """Return the lowest score and, as the kubelet remembers it, the first choice that has it.

    What it remembers is the last choice tried that begins with the same 1, 2, 3, 5 or 9 members.
    """
    lowest: float | None = None
    best: tuple[int, ...] = ()
    remembered: tuple[int, ...] = ()
    for size in sizes:
        safe = max(k for k in (1, 2, 3, 5, 9) if k <= size)
        done = False
        for choice in itertools.combinations(pool, size):
            if len(best) == size and best[:safe] == choice[:safe]:
                remembered = choice
            if done:
                break
            value = score(choice)
            if value is not None and (lowest is None or value < lowest):
                lowest, best, remembered = value, choice, choice
                done = stop and value == 0

    return lowest, best, remembered


def plan(left: Sequence[int], size: int, count: int, group_size: int, *, forgets: bool = True):
    """Return (nodes, share, remainder nodes) of the best plan with `size` nodes, or None.

    With `forgets` the nodes are those that kubelets before 1.38 remember.
    """
    share = count // size // group_size * group_size
    remainders: dict[tuple[int, ...], tuple[int, ...]] = {}

    def score(chosen: tuple[int, ...]) -> float | None:
        groups = sum(left[i] // group_size for i in chosen)
        if groups * group_size < count or any(left[i] < share for i in chosen):
            return None

        after = [cpus - share * (i in chosen) for i, cpus in enumerate(left)]
        remainder = count - share * size
        if not remainder:
            remainders[chosen] = ()
            return deviation(after)

        def score_remainder(subset: tuple[int, ...]) -> float | None:
            final, rest = list(after), remainder
            for i in itertools.islice(itertools.cycle(subset), len(subset) * count):
                if rest and final[i] >= group_size:
                    final[i] -= group_size
                    rest -= group_size

            if rest:
                return None
            return deviation(final)

        able = [i for i in chosen if after[i] >= group_size]
        lowest, best, remembered = best_of(
            able, range(len(able), 0, -1), score_remainder, stop=False
        )
        remainders[chosen] = remembered if forgets else best
        return lowest

    lowest, best, remembered = best_of(range(len(left)), [size], score, stop=True)
    if lowest is None:
        return None
    return (remembered if forgets else best, share, remainders[best])
