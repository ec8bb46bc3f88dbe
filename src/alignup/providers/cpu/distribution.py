"""Spreads CPUs evenly over as few NUMA nodes as can hold them.

This is the option distribute-cpus-across-numa of KEP-2902. The sets of nodes are judged here; which
CPUs of a node are taken is decided by `CpuTopology.pack`.

A set of k nodes will do when each of its nodes can give an equal share and some of them the
remainder. The best of such sets leaves the free CPUs most evenly over the nodes: the standard
deviation of what is free on each node, in thousandths, decides; the first set in order wins a tie.
Two sets whose nodes have the same numbers of free CPUs in the same order are worth the same, so
only the first of them is looked at.

With align-by-socket, kubelets from 1.37 on prefer a set within one socket to any other, and a node
that cannot give an equal share is no obstacle: the share becomes what it can give, and the
remainder larger. From 1.38 on a set has at least as many nodes as the affinity, where so many can
share.
"""

from __future__ import annotations

from itertools import chain, combinations
from math import ceil, isqrt
from typing import TYPE_CHECKING

from alignup.errors import AllocationError
from alignup.records import Record, replace

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from alignup.kubernetes.policy_options import CpuOptions
    from alignup.kubernetes.versions import VersionProfile
    from alignup.providers.cpu.topology import CpuGroup, CpuTopology


class Plan(Record):
    """The number of CPUs that each NUMA node gives.

    Nodes are meant by their index in the list that the plan was made for.

    Attributes:
        nodes: the nodes that give CPUs.
        share: the number of CPUs that each of them gives.
        remainder_nodes: they give the rest, one group of CPUs at a time, in turns.
        balance: the standard deviation, in thousandths of a CPU, that the plan was chosen for.
    """

    nodes: tuple[int, ...]
    share: int
    remainder_nodes: tuple[int, ...]
    balance: int


def distribute(
    topology: CpuTopology,
    free: int,
    count: int,
    held_cpus: int,
    options: CpuOptions,
    profile: VersionProfile,
    hinted_nodes: int = 0,
) -> int:
    """Return `count` of the free CPUs, spread over NUMA nodes; 0 when there are not so many.

    Falls back to packing when `count` is no multiple of the group size, or no set of nodes will do.

    Args:
        topology: the machine.
        free: the CPUs to choose from.
        count: how many.
        held_cpus: the CPUs that must not be taken, as for `CpuTopology.pack`.
        options: whether whole cores are taken together, and whether NUMA nodes of one socket are
            preferred.
        profile: whether the release prefers these, and asks no node for more than it has, whatever
            the plan says; whether it takes the affinity's number of nodes for the least; and
            whether it forgets some of the nodes that it chose.
        hinted_nodes: how many NUMA nodes the affinity has; 0: there is none.

    Raises:
        AllocationError: the nodes chosen cannot give what the plan says, see `_as_remembered`.
    """
    group_size = topology.cpus_per_core if options.full_pcpus_only else 1
    if profile.distribution_as_written:
        return distribute_as_written(topology, free, count, held_cpus, group_size)
    if count % group_size or not 0 < count <= free.bit_count():
        return topology.pack(free, count, held_cpus)

    nodes = topology.node_order(free)
    free_counts = [(free & node.cpus).bit_count() for node in nodes]
    sockets = None
    if options.align_by_socket and profile.distribution_prefers_one_socket:
        sockets = _sockets_of(topology, nodes)

    least = hinted_nodes if profile.distribution_spans_affinity else 0
    for size in _set_sizes(topology, nodes, count, group_size, least):
        plan = plan_distribution(
            free_counts,
            size,
            count,
            group_size,
            sockets,
            forgets=not profile.distribution_remembers_choice,
        )
        if plan is None:
            continue

        if profile.distribution_prefers_one_socket:
            share = _possible_share(count, free_counts, plan.nodes, group_size)
            plan = replace(plan, share=share)

        return _hand_out(topology, free, count, held_cpus, nodes, plan, group_size)

    return topology.pack(free, count, held_cpus)


def distribute_as_written(
    topology: CpuTopology, free: int, count: int, held_cpus: int, group_size: int
) -> int:
    """Return what `distribute` would if kubelets did as KEP-2902 says.

    The first NUMA nodes in order that can give equal shares, and of which some can give one group
    of the remainder more, give them: one node if it has all, or else two, and so on.
    """
    groups, remainder = divmod(count, group_size)
    if remainder:
        return topology.pack(free, count, held_cpus)

    nodes = sorted(topology.node_order(free), key=lambda node: node.id)
    free_groups = [(free & node.cpus).bit_count() // group_size for node in nodes]
    for size in range(1, min(groups, len(nodes)) + 1):
        share, extra = divmod(groups, size)
        for chosen in combinations(range(len(nodes)), size):
            if any(free_groups[i] < share for i in chosen):
                continue

            remainder_nodes = tuple(i for i in chosen if free_groups[i] > share)[:extra]
            if len(remainder_nodes) == extra:
                plan = Plan(chosen, share * group_size, remainder_nodes, 0)
                return _hand_out(topology, free, count, held_cpus, nodes, plan, group_size)

    return topology.pack(free, count, held_cpus)


def _sockets_of(topology: CpuTopology, nodes: Sequence[CpuGroup]) -> list[frozenset[int]]:
    """Return for each node the sockets, by position, that have CPUs of it."""
    return [
        frozenset(i for i, cpus in enumerate(topology.socket_cpus) if cpus & node.cpus)
        for node in nodes
    ]


def _set_sizes(
    topology: CpuTopology, nodes: Sequence[CpuGroup], count: int, group_size: int, least: int = 0
) -> range:
    """Return how many NUMA nodes may share the CPUs, in the order in which this is tried.

    They are `least` or more, unless that is more than can share them
    (`rangeNUMANodesNeededToSatisfy` in `cpumanager/cpu_assignment.go`).
    """
    groups = count // group_size
    groups_per_node = ceil(ceil(topology.cpus.bit_count() / group_size) / topology.numa_nodes)
    fewest, most = ceil(groups / groups_per_node), min(groups, len(nodes))
    if fewest < least <= most:
        fewest = least

    return range(fewest, most + 1)


def _possible_share(
    count: int, free_counts: Sequence[int], chosen: Sequence[int], group_size: int
) -> int:
    """Return an equal share of the CPUs, or what every chosen node can give if that is less."""
    share = count // len(chosen) // group_size * group_size
    return min(share, *(free_counts[i] // group_size * group_size for i in chosen))


def _is_in_one_socket(sockets: Sequence[frozenset[int]], chosen: Sequence[int]) -> bool:
    """Return whether the chosen nodes are all of one socket."""
    return len(frozenset().union(*(sockets[i] for i in chosen))) <= 1


def plan_distribution(
    free_counts: Sequence[int],
    size: int,
    count: int,
    group_size: int,
    sockets: Sequence[frozenset[int]] | None = None,
    *,
    forgets: bool = True,
) -> Plan | None:
    """Return the best plan that takes `count` CPUs from `size` of the nodes, or None.

    Args:
        free_counts: how many CPUs are free on each node, in the order in which nodes are tried.
        size: how many nodes share the CPUs.
        count: how many CPUs, a multiple of `group_size`.
        group_size: how many CPUs are taken together.
        sockets: of each node, where nodes of one socket are preferred; None: sockets do not matter.
        forgets: whether the plan has the nodes that kubelets before 1.38 remember, in place of
            those that they chose, see `_as_remembered`.
    """
    even = count // size // group_size * group_size
    able: Sequence[int]
    values: Sequence[Hashable]
    if sockets:
        able = range(len(free_counts))
        values = list(zip(free_counts, sockets, strict=True))
    else:
        able = [i for i, cpus in enumerate(free_counts) if cpus >= even]
        values = free_counts

    best: Plan | None = None
    is_best_together = False
    is_final = False
    for chosen in _distinct_choices(able, values, size):
        if sum(free_counts[i] // group_size for i in chosen) * group_size < count:
            continue

        is_together = sockets is not None and _is_in_one_socket(sockets, chosen)
        if is_best_together and not is_together:
            continue

        share = _possible_share(count, free_counts, chosen, group_size)
        after = list(free_counts)
        for i in chosen:
            after[i] -= share

        beat = None
        if best is not None and is_together == is_best_together:
            beat = best.balance

        remainder = count - share * size
        plan = _with_remainder(
            chosen, share, after, remainder, group_size, beat=beat, forgets=forgets
        )
        if plan is not None and (beat is None or plan.balance < beat):
            best = plan
            is_best_together = is_together
            is_final = not plan.balance and (sockets is None or is_together)
            if is_final:
                break

    if best is None or not forgets:
        return best

    nodes = _as_remembered(best.nodes, range(len(free_counts)), stopped=is_final)
    return Plan(nodes, best.share, best.remainder_nodes, best.balance)


def _with_remainder(
    chosen: tuple[int, ...],
    share: int,
    after: list[int],
    remainder: int,
    group_size: int,
    *,
    beat: int | None,
    forgets: bool,
) -> Plan | None:
    """Return the plan for these nodes with the best choice of who gives the remainder.

    Choices of more nodes are tried first. None if they cannot give it, or no choice is better than
    `beat`.
    """
    if not remainder:
        return Plan(chosen, share, (), _balance(after))

    able = [i for i in chosen if after[i] >= group_size]
    lower_bound = _balance_bound(after, able, remainder, group_size)
    if beat is not None and lower_bound >= beat:
        return None

    best: Plan | None = None
    sizes = range(len(able), 0, -1)
    for subset in chain.from_iterable(_distinct_choices(able, after, size) for size in sizes):
        final = _in_turns(after, subset, remainder, group_size)
        if final is None:
            continue

        balance = _balance(final)
        if best is None or balance < best.balance:
            givers = _as_remembered(subset, able, stopped=False) if forgets else subset
            best = Plan(chosen, share, givers, balance)
            if balance == lower_bound:
                break

    return best


def _balance_bound(after: list[int], able: Sequence[int], remainder: int, group_size: int) -> int:
    """Return a balance that no choice can better.

    It is that of taking the remainder always where most is free.
    """
    final = list(after)
    for _ in range(remainder // group_size):
        final[max(able, key=final.__getitem__)] -= group_size

    return _balance(final)


def _in_turns(
    after: list[int], nodes: Sequence[int], remainder: int, group_size: int
) -> list[int] | None:
    """Return what is free after the nodes gave the remainder in turns; None if they cannot."""
    final = list(after)
    while remainder:
        before = remainder
        for i in nodes:
            if remainder and final[i] >= group_size:
                final[i] -= group_size
                remainder -= group_size

        if remainder == before:
            return None

    return final


def _balance(free: Sequence[int]) -> int:
    """Return the standard deviation of the numbers, in thousandths.

    Both it and the mean, which is in thousandths too, are rounded half up, as the kubelet does. The
    rounding makes ties, and ties decide.
    """
    count = len(free)
    mean = (2000 * sum(free) + count) // (2 * count)
    squares = sum((1000 * cpus - mean) ** 2 for cpus in free)
    return (isqrt(4 * squares // count) + 1) // 2


def _distinct_choices(
    pool: Sequence[int], values: Sequence[Hashable], size: int
) -> Iterator[tuple[int, ...]]:
    """Yield the choices of `size` of the pool, in order; of those with equal values the first."""
    if not size:
        yield ()
        return

    first_values: set[Hashable] = set()
    for place in range(len(pool) - size + 1):
        first = pool[place]
        if values[first] in first_values:
            continue

        first_values.add(values[first])
        for following in _distinct_choices(pool[place + 1 :], values, size - 1):
            yield (first, *following)


def _as_remembered(
    chosen: tuple[int, ...], pool: Sequence[int], *, stopped: bool
) -> tuple[int, ...]:
    """Return what the kubelet remembers of a choice when it has tried the others.

    It keeps its best choice in an array that it goes on trying choices in. Up to three nodes that
    is an array of its own; of more, the first 3, 5, 9, 17, ... (the largest of these within the
    size) are safe, and what comes after them is overwritten by the last choice tried that begins
    alike. It stops after one choice more when it found perfect balance (`stopped`), otherwise it
    tries them all.
    """
    size = len(chosen)
    safe = 1 + ((1 << (size - 1).bit_length()) >> 1)
    if safe == size:
        return chosen
    if not stopped:
        return (*chosen[:safe], *pool[len(pool) - (size - safe) :])

    for place in range(size - 1, safe - 1, -1):
        following = pool.index(chosen[place]) + 1
        if following + size - place <= len(pool):
            return (*chosen[:place], *pool[following : following + size - place])

    return chosen


def _hand_out(
    topology: CpuTopology,
    free: int,
    count: int,
    held_cpus: int,
    nodes: Sequence[CpuGroup],
    plan: Plan,
    group_size: int,
) -> int:
    """Take what the plan says from each node; what is taken is held from then on."""
    cpus, _ = _dealt(topology, free, count, held_cpus, nodes, plan, group_size)
    if cpus.bit_count() != count:
        names = ", ".join(str(nodes[i].id) for i in plan.nodes)
        raise AllocationError(
            f"expected {count} CPUs, {plan.share} from each of NUMA nodes {names}, got "
            f"{cpus.bit_count()}",
            resources=("cpu",),
        )

    return cpus


def _dealt(
    topology: CpuTopology,
    free: int,
    count: int,
    held_cpus: int,
    nodes: Sequence[CpuGroup],
    plan: Plan,
    group_size: int,
) -> tuple[int, int]:
    """Return the CPUs that nodes give by the plan, and how many are missing.

    For those that are missing a kubelet goes on forever.
    """
    dealt = 0
    for i in plan.nodes:
        dealt |= topology.pack(free & ~dealt & nodes[i].cpus, plan.share, held_cpus | dealt)

    remainder = count - plan.share * len(plan.nodes)
    while remainder:
        before = remainder
        for i in plan.remainder_nodes:
            free_on_node = free & ~dealt & nodes[i].cpus
            if remainder and free_on_node.bit_count() >= group_size:
                dealt |= topology.pack(free_on_node, group_size, held_cpus | dealt)
                remainder -= group_size

        if remainder == before:
            break

    return dealt, remainder


def never_ends(
    topology: CpuTopology, free: int, count: int, group_size: int, *, in_one_socket: bool = False
) -> bool:
    """Return whether a kubelet that distributes `count` of the free CPUs goes round forever.

    It takes the remainder from NUMA nodes that have enough CPUs together, and waits for a node that
    has a whole group left (`for remainder > 0` in `takeByTopologyNUMADistributed` of
    `cpumanager/cpu_assignment.go`). Unlike `distribute` this looks at all that the kubelet looks
    at. The arguments are those of `distribute`.
    """
    nodes = topology.node_order(free)
    free_counts = [(free & node.cpus).bit_count() for node in nodes]
    has_parts_of_groups = any(cpus % group_size for cpus in free_counts)
    if count % group_size or not 0 < count <= sum(free_counts) or not has_parts_of_groups:
        return False

    sockets = _sockets_of(topology, nodes)
    values = list(zip(free_counts, sockets, strict=True))
    for size in _set_sizes(topology, nodes, count, group_size):
        best: tuple[bool, int] | None = None
        even = count // size // group_size * group_size
        for chosen in _distinct_choices(range(len(free_counts)), values, size):
            if best is not None and not best[1] and (best[0] or not in_one_socket):
                break
            if sum(free_counts[i] // group_size for i in chosen) * group_size < count:
                continue
            if not in_one_socket and any(free_counts[i] < even for i in chosen):
                continue

            share = _possible_share(count, free_counts, chosen, group_size)
            after = [cpus - share * (i in chosen) for i, cpus in enumerate(free_counts)]
            balance = _best_balance(after, chosen, count - share * size, group_size)
            if balance is None:
                return True

            is_together = in_one_socket and _is_in_one_socket(sockets, chosen)
            if balance >= 0 and (
                best is None or (not is_together, balance) < (not best[0], best[1])
            ):
                best = (is_together, balance)

        if best is not None:
            preferred_sockets = sockets if in_one_socket else None
            plan = plan_distribution(free_counts, size, count, group_size, preferred_sockets)
            return (
                plan is not None
                and _dealt(topology, free, count, 0, nodes, plan, group_size)[1] > 0
            )

    return False


def _best_balance(
    after: list[int], chosen: Sequence[int], remainder: int, group_size: int
) -> int | None:
    """Return the best balance of all choices of who gives the remainder.

    -1: nobody can give it. None: a choice has no end.
    """
    if not remainder:
        return _balance(after)

    able = [i for i in chosen if after[i] >= group_size]
    balances = []
    sizes = range(len(able), 0, -1)
    for subset in chain.from_iterable(_distinct_choices(able, after, size) for size in sizes):
        if sum(after[i] for i in subset) < remainder:
            continue

        final = _in_turns(after, subset, remainder, group_size)
        if final is None:
            return None
        balances.append(_balance(final))

    return min(balances, default=-1)
