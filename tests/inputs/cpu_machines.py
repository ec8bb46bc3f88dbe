"""Small machines for the tests of the CPU manager, and a strategy that draws odd ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from alignup.machine.machine import Core, Machine, NumaNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MEMORY = 1 << 33


def machine_of(nodes: Iterable[Sequence[Core]], ids: Sequence[int] | None = None) -> Machine:
    """Return the machine whose NUMA nodes have these cores."""
    made = [list(cores) for cores in nodes]
    numbers = list(ids) if ids is not None else list(range(len(made)))
    return Machine(
        tuple(NumaNode(i, MEMORY, tuple(cores)) for i, cores in zip(numbers, made, strict=True))
    )


def grid(
    nodes: int,
    cores: int,
    *,
    smt: int = 1,
    sockets: int = 1,
    split: bool = False,
    l3_groups: int = 0,
    ids: Sequence[int] | None = None,
) -> Machine:
    """Return a machine of equal NUMA nodes with `cores` cores of `smt` CPUs each.

    `split` numbers all first siblings, then all second ones; otherwise siblings are neighbours.
    Sockets hold neighbouring nodes, or, when there are more of them, neighbouring cores.
    """
    total = nodes * cores

    def core(number: int) -> Core:
        cpus = tuple(number + k * total if split else number * smt + k for k in range(smt))
        l3 = None
        if l3_groups:
            l3 = number * l3_groups * nodes // total

        return Core(cpus, number * sockets // total, l3)

    return machine_of(([core(i * cores + k) for k in range(cores)] for i in range(nodes)), ids)


@st.composite
def machines(draw: st.DrawFn, *, even: bool = False) -> Machine:
    """Draw a machine.

    Its sockets are above or below NUMA nodes, nodes are smaller or empty, and CPU numbers are in
    any order.

    `even`: all cores and all sockets have the same number of CPUs.
    """
    nodes = draw(st.sampled_from([1, 2, 3, 4, 6]))
    smt = draw(st.sampled_from([1, 2, 4]))
    cores = draw(st.integers(1, 4))
    per_node = [cores] * nodes
    if not even:
        per_node = draw(st.lists(st.integers(0, 4), min_size=nodes, max_size=nodes).filter(any))

    below = draw(st.booleans())
    cuts = 1
    if not even or cores % 2 == 0:
        cuts = draw(st.sampled_from([1, 2]))

    joined = draw(st.sampled_from([k for k in (1, 2, 3, nodes) if nodes % k == 0]))
    numbers = iter(draw(st.permutations(range(sum(per_node) * smt))))
    l3 = draw(st.sampled_from([0, 1, 2]))
    made = []
    for node, count in enumerate(per_node):
        row = []
        for k in range(count):
            cpus = tuple(sorted(next(numbers) for _ in range(smt)))
            socket = node * cuts + k * cuts // count if below else node // joined
            row.append(Core(cpus, socket, node * l3 + k * l3 // count if l3 else None))

        made.append(row)

    return machine_of(made)


@st.composite
def odd_machines(draw: st.DrawFn) -> Machine:
    """Draw a machine on which nothing is regular.

    Cores of one to four CPUs; sockets and L3 groups across nodes, or several in a node; nodes
    without CPUs; CPUs numbered from 0, or far apart, up to 65535.
    """
    nodes = draw(st.integers(1, 6))
    sizes = draw(
        st.lists(st.lists(st.integers(1, 4), max_size=6), min_size=nodes, max_size=nodes).filter(
            any
        )
    )
    count = sum(map(sum, sizes))
    highest = draw(st.sampled_from([count - 1, 4 * count, 65535]))
    numbers = iter(
        draw(st.lists(st.integers(0, highest), min_size=count, max_size=count, unique=True))
    )
    sockets, l3_groups = draw(st.integers(1, 8)), draw(st.integers(0, 8))
    crossed = draw(st.booleans())
    made = []
    for node, row in enumerate(sizes):
        cores = []
        for size in row:
            cpus = tuple(sorted(next(numbers) for _ in range(size)))
            socket = draw(st.integers(0, sockets - 1)) if crossed else node * sockets // nodes
            l3 = None
            if l3_groups:
                l3 = draw(st.integers(0, l3_groups - 1))

            cores.append(Core(cpus, socket, l3))

        made.append(cores)

    return machine_of(made)
