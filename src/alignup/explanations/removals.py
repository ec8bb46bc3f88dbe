"""Finds pods whose removal makes room: the smallest set up to two, by number and then by CPUs; greedily beyond.

A pair is ruled out without a trial only where sums, over all pairs at once, show that too little
would be free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from alignup.explanations.explanation import Suggestion
from alignup.explanations.manifests import asked_by
from alignup.kubernetes.node_fit import requests_of
from alignup.kubernetes.pod import Pod, is_pinned_memory
from alignup.records import Record, field
from alignup.text.counting import counted, short_bytes, some_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from alignup.explanations.attempts import Attempts
    from alignup.node.holdings import Holdings

MOST_PAIRS_TRIED: Final = 150
# On a node of more pods no pairs are looked for.
MOST_PAIRED: Final = 256
MOST_ORDERS: Final = 5
# At most this many pods of a large set are tested for being unnecessary: removing a hundred pods is
# no help.
MOST_SPARED: Final = 24
NAMES_SHOWN: Final = 6
# Stands for the id of a NUMA node where a device is near to none.
NO_NUMA_NODE: Final = -1
# More than any machine has of anything, and twice of it still fits into 64 bits unsigned.
_LARGEST: Final = 1 << 62


class _Holder(Record, frozen=False):
    """A pod on the node, with what it holds by resource and position of the NUMA node.

    Attributes:
        totals: by resource, what it holds on all NUMA nodes, or requests of the node as a whole
            (CPU in thousandths).
    """

    uid: str
    name: str
    amounts: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    totals: Counter[str] = field(default_factory=Counter)


def removal(
    attempts: Attempts,
    holdings: Holdings,
    blamed: Sequence[str],
    *,
    as_whole: bool = False,
    tying: Collection[str] = (),
) -> Suggestion | None:
    """Return the pods to remove; None if the pod would not even fit if it were alone.

    Args:
        attempts: the node and the pod.
        holdings: who holds what on the node.
        blamed: the resources to blame for the refusal; empty: unknown.
        as_whole: what pods request of the node as a whole counts, not what they hold.
        tying: names of the pods whose memory rules NUMA nodes out; they are the first candidates.
    """
    found = _requesters(attempts.node.pods) if as_whole else _holders(attempts.node.pods, holdings)
    holders = sorted(
        found,
        key=lambda one: (one.totals[blamed[0]] if as_whole and blamed else 0, one.totals["cpu"]),
    )
    if not holders or not attempts.without([one.uid for one in holders]):
        return None

    for one in sorted(holders, key=lambda one: one.name not in tying):
        if attempts.without([one.uid]):
            return _suggestion([one], blamed, as_whole=as_whole, minimal=True)

    if not as_whole:
        for pair in _pairs(attempts, holders, holdings):
            if attempts.without([one.uid for one in pair]):
                return _suggestion(pair, blamed, minimal=True)

    orders = [holders[::-1]] if as_whole else list(_orders(holders, holdings, blamed))
    return _suggestion(_greedy(attempts, orders), blamed, as_whole=as_whole, minimal=False)


def _pairs(
    attempts: Attempts, holders: Sequence[_Holder], holdings: Holdings
) -> Iterable[tuple[_Holder, _Holder]]:
    """Return the pairs of pods that may make room, those that hold the fewest CPUs first."""
    if len(holders) > MOST_PAIRED:
        return ()

    free = {
        amounts.resource: {
            numa_id: sum(
                place.free
                for place in amounts.places
                if numa_id in (place.numa_nodes or (NO_NUMA_NODE,))
            )
            for numa_id in (*holdings.numa_node_ids, NO_NUMA_NODE)
        }
        for amounts in holdings.resources
    }
    single = attempts.node.config.topology_manager_policy == "single-numa-node"
    asked = [asked_by(one) for one in attempts.pod.containers]
    found = possible_pairs(
        # an annotation may bring a policy that spreads
        [one.amounts for one in holders], free, asked, on_one_node=single and not attempts.pod.annotations
    )  # fmt: skip
    pairs = ((holders[one], holders[other]) for one, other in found)
    return sorted(pairs, key=lambda pair: pair[0].totals["cpu"] + pair[1].totals["cpu"])[
        :MOST_PAIRS_TRIED
    ]


def _requesters(pods: Iterable[Pod]) -> Iterator[_Holder]:
    """Yield the pods on the node with what they request of it as a whole."""
    for pod in pods:
        yield _Holder(pod.uid, pod.namespaced_name, totals=Counter({**requests_of(pod), "pods": 1}))


def _holders(pods: Iterable[Pod], holdings: Holdings) -> Iterator[_Holder]:
    """Yield the pods on the node with what they hold."""
    by_uid = {pod.uid: _Holder(pod.uid, pod.namespaced_name) for pod in pods}
    cpus = dict.fromkeys(by_uid, 0)  # later containers may have those of an init container too
    devices: dict[tuple[str, str], set[str]] = {}
    for one in holdings.containers:
        holder = by_uid[one.pod_uid]
        cpus[one.pod_uid] |= int(one.cpus or 0)
        for kind, taken in one.memory.items():
            for numa_node, size in taken.items():
                holder.amounts[kind][numa_node] += size
                holder.totals[kind] += size

        for resource, ids in one.devices.items():
            amounts = holdings.amounts(resource)
            devices.setdefault((one.pod_uid, resource), set()).update(ids)
            for identity in ids:
                for numa_node in (amounts.devices.get(identity, ()) if amounts else ()) or (
                    NO_NUMA_NODE,
                ):
                    holder.amounts[resource][numa_node] += 1

    for (uid, resource), held in devices.items():
        by_uid[uid].totals[resource] = len(held)

    for uid, holder in by_uid.items():
        holder.totals["cpu"] = cpus[uid].bit_count()
        for numa_node, bits in holdings.node_cpus.items():
            holder.amounts["cpu"][numa_node] += (bits & cpus[uid]).bit_count()
        yield holder


def _orders(
    holders: Sequence[_Holder], holdings: Holdings, blamed: Sequence[str]
) -> Iterator[list[_Holder]]:
    """Yield orders in which pods may be removed: the largest holders first, on the whole node and on each NUMA node."""
    resources = list(blamed) or [one.resource for one in holdings.resources]
    totals = {
        name: max(1, amounts.capacity) for name in resources if (amounts := holdings.amounts(name))
    }

    def share(one: _Holder, numa_node: int | None) -> float:
        return sum(
            sum(
                count
                for node, count in one.amounts.get(name, {}).items()
                if numa_node in (None, node)
            )
            / total
            for name, total in totals.items()
        )

    def free(numa_node: int) -> float:
        return sum(
            place.free / totals[amounts.resource]
            for amounts in holdings.resources
            if amounts.resource in totals
            for place in amounts.places
            if numa_node in place.numa_nodes
        )

    for numa_node in (
        None,
        *sorted(holdings.numa_node_ids, key=free, reverse=True)[: MOST_ORDERS - 1],
    ):
        # used at once
        yield sorted(holders, key=lambda one: (-share(one, numa_node), one.totals["cpu"]))


def _greedy(attempts: Attempts, orders: Iterable[list[_Holder]]) -> list[_Holder]:
    """Return the first pods of the best order that make room, less those that turn out not to be needed."""
    prefixes = [_first(attempts, order) for order in orders]
    chosen = min(prefixes, key=lambda some: (len(some), sum(one.totals["cpu"] for one in some)))
    for one in chosen[-2 : -2 - MOST_SPARED : -1]:
        fewer = [other for other in chosen if other is not one]
        if attempts.without([other.uid for other in fewer]):
            chosen = fewer
    return chosen


def _first(attempts: Attempts, order: list[_Holder]) -> list[_Holder]:
    """Return the first pods of an order that make room; all of them together do."""
    uids = [one.uid for one in order]
    fewest = 1 + bisect_left(
        range(1, len(order)), True, key=lambda count: bool(attempts.without(uids[:count]))
    )
    return order[:fewest]


def _suggestion(
    holders: Sequence[_Holder], blamed: Sequence[str], *, minimal: bool, as_whole: bool = False
) -> Suggestion:
    """Return the suggestion to remove these pods, which names what they give back of the resources to blame."""
    names = some_of([one.name for one in holders], NAMES_SHOWN)
    totals = {name: sum(one.totals[name] for one in holders) for name in blamed or ("cpu",)}
    parts = [
        _words(name, amount, as_whole=as_whole)
        for name, amount in totals.items()
        if amount and name != "pods"
    ]
    verb = f"{'request' if as_whole else 'hold'}{'s' if len(holders) == 1 else ''}"
    held = f", which {verb} {' and '.join(parts)}" if parts else ""
    text = f"remove {'pod' if len(holders) == 1 else 'pods'} {names}{held}"
    return Suggestion("remove", text, {"remove": [one.uid for one in holders]}, minimal)


def _words(resource: str, amount: int, *, as_whole: bool) -> str:
    """Return an amount of a resource in words."""
    if resource == "cpu":
        return f"{amount / 1000:g} cpu" if as_whole else counted(amount, "CPU")
    return f"{short_bytes(amount) if is_pinned_memory(resource) else amount} {resource}"


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
        free: by resource and kernel id, what is free; a device that is near to several NUMA nodes
            counts for each.
        asked: for each container by resource, what it asks for.
        on_one_node: whether each container must get everything from one NUMA node.
    """
    import numpy as np  # noqa: PLC0415  # most explanations need none, and it takes as long as all else

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
