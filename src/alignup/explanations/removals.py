"""Finds pods whose removal makes room.

Up to two pods, it is the smallest set by number and then by CPUs; beyond, one found greedily. A
pair is ruled out without a trial only where sums, over all pairs at once, show that too little
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
from alignup.records import Record, field, replace
from alignup.text.counting import counted, short_bytes, some_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from alignup.explanations.attempts import Attempts
    from alignup.node.holdings import ContainerHolding, Holdings

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
    as_whole: bool,
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
    pods = attempts.node.pods
    if as_whole:
        holders = sorted(
            _requesters(pods),
            key=lambda holder: (holder.totals[blamed[0]] if blamed else 0, holder.totals["cpu"]),
        )
    else:
        holders = sorted(_holders(pods, holdings), key=lambda holder: holder.totals["cpu"])

    if not holders or not attempts.without([holder.uid for holder in holders]):
        return None

    for holder in sorted(holders, key=lambda holder: holder.name not in tying):
        if attempts.without([holder.uid]):
            suggestion = _suggestion([holder], blamed, as_whole=as_whole, minimal=True)
            if as_whole:
                return suggestion

            pod = next(pod for pod in pods if pod.uid == holder.uid)
            shares = _shares(pod, holdings, blamed or ("cpu",))
            return replace(suggestion, text=suggestion.text + shares)

    orders: Iterable[list[_Holder]] = [holders[::-1]]
    if not as_whole:
        for pair in _pairs(attempts, holders, holdings):
            if attempts.without([holder.uid for holder in pair]):
                return _suggestion(pair, blamed, minimal=True)

        orders = _orders(holders, holdings, blamed)

    return _suggestion(_greedy(attempts, orders), blamed, as_whole=as_whole, minimal=False)


def _pairs(
    attempts: Attempts, holders: Sequence[_Holder], holdings: Holdings
) -> Iterable[tuple[_Holder, _Holder]]:
    """Return the pairs of pods that may make room, those that hold the fewest CPUs first."""
    if len(holders) > MOST_PAIRED:
        return ()

    free: dict[str, dict[int, int]] = {}
    for amounts in holdings.resources:
        free_by_node = dict.fromkeys((*holdings.numa_node_ids, NO_NUMA_NODE), 0)
        for place in amounts.places:
            for numa_id in place.numa_nodes or (NO_NUMA_NODE,):
                free_by_node[numa_id] += place.free
        free[amounts.resource] = free_by_node

    # an annotation may bring a policy that spreads
    policy = attempts.node.config.topology_manager_policy
    on_one_node = policy == "single-numa-node" and not attempts.pod.annotations
    index_pairs = possible_pairs(
        [holder.amounts for holder in holders],
        free,
        [asked_by(container) for container in attempts.pod.containers],
        on_one_node=on_one_node,
    )
    pairs = ((holders[first], holders[second]) for first, second in index_pairs)
    by_cpus = sorted(pairs, key=lambda pair: pair[0].totals["cpu"] + pair[1].totals["cpu"])
    return by_cpus[:MOST_PAIRS_TRIED]


def _requesters(pods: Iterable[Pod]) -> Iterator[_Holder]:
    """Yield the pods on the node with what they request of it as a whole."""
    for pod in pods:
        yield _Holder(pod.uid, pod.namespaced_name, totals=Counter({**requests_of(pod), "pods": 1}))


def _holders(pods: Iterable[Pod], holdings: Holdings) -> Iterator[_Holder]:
    """Yield the pods on the node with what they hold."""
    by_uid = {pod.uid: _Holder(pod.uid, pod.namespaced_name) for pod in pods}
    cpus = dict.fromkeys(by_uid, 0)  # later containers may have those of an init container too
    devices: dict[tuple[str, str], set[str]] = {}
    for holding in holdings.containers:
        holder = by_uid[holding.pod_uid]
        cpus[holding.pod_uid] |= int(holding.cpus or 0)
        for kind, sizes in holding.memory.items():
            for numa_node, size in sizes.items():
                holder.amounts[kind][numa_node] += size
                holder.totals[kind] += size

        for resource, ids in holding.devices.items():
            devices.setdefault((holding.pod_uid, resource), set()).update(ids)
            amounts = holdings.amounts(resource)
            nodes_of = {} if amounts is None else amounts.devices
            for identity in ids:
                for numa_node in nodes_of.get(identity) or (NO_NUMA_NODE,):
                    holder.amounts[resource][numa_node] += 1

    for (uid, resource), pod_devices in devices.items():
        by_uid[uid].totals[resource] = len(pod_devices)

    for uid, holder in by_uid.items():
        holder.totals["cpu"] = cpus[uid].bit_count()
        for numa_node, bits in holdings.node_cpus.items():
            holder.amounts["cpu"][numa_node] += (bits & cpus[uid]).bit_count()
        yield holder


def _orders(
    holders: Sequence[_Holder], holdings: Holdings, blamed: Sequence[str]
) -> Iterator[list[_Holder]]:
    """Yield orders in which pods may be removed.

    The largest holders come first, on the whole node and then on each NUMA node.
    """
    resources = list(blamed) or [amounts.resource for amounts in holdings.resources]
    totals = {}
    for name in resources:
        if amounts := holdings.amounts(name):
            totals[name] = max(1, amounts.capacity)

    def share(holder: _Holder, numa_node: int | None) -> float:
        return sum(
            _amount_on(holder.amounts.get(name, Counter()), numa_node) / total
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

    freest = sorted(holdings.numa_node_ids, key=free, reverse=True)[: MOST_ORDERS - 1]
    for numa_node in (None, *freest):
        shares = {holder.uid: share(holder, numa_node) for holder in holders}
        yield sorted(holders, key=lambda holder: (-shares[holder.uid], holder.totals["cpu"]))


def _amount_on(amounts: Counter[int], numa_node: int | None) -> int:
    """Return the amount on one NUMA node; None: on all of them."""
    if numa_node is None:
        return amounts.total()
    return amounts[numa_node]


def _greedy(attempts: Attempts, orders: Iterable[list[_Holder]]) -> list[_Holder]:
    """Return the first pods of the best order that make room, less those that are not needed."""
    prefixes = [_first(attempts, order) for order in orders]
    chosen = min(
        prefixes,
        key=lambda prefix: (len(prefix), sum(holder.totals["cpu"] for holder in prefix)),
    )
    for candidate in chosen[-2 : -2 - MOST_SPARED : -1]:
        fewer = [holder for holder in chosen if holder is not candidate]
        if attempts.without([holder.uid for holder in fewer]):
            chosen = fewer

    return chosen


def _first(attempts: Attempts, order: list[_Holder]) -> list[_Holder]:
    """Return the first pods of an order that make room; all of them together do."""
    uids = [holder.uid for holder in order]
    fewest = 1 + bisect_left(
        range(1, len(order)), True, key=lambda count: bool(attempts.without(uids[:count]))
    )
    return order[:fewest]


def _suggestion(
    holders: Sequence[_Holder], blamed: Sequence[str], *, minimal: bool, as_whole: bool = False
) -> Suggestion:
    """Return the suggestion to remove these pods, which names what they give back.

    That is said of the resources to blame.
    """
    is_one = len(holders) == 1
    names = some_of([holder.name for holder in holders], NAMES_SHOWN)
    parts = []
    for resource in blamed or ("cpu",):
        amount = sum(holder.totals[resource] for holder in holders)
        if amount and resource != "pods":
            parts.append(_amount_text(resource, amount, as_whole=as_whole))

    text = f"remove {'pod' if is_one else 'pods'} {names}"
    if parts:
        verb = "request" if as_whole else "hold"
        text += f", which {verb}{'s' if is_one else ''} {' and '.join(parts)}"

    return Suggestion("remove", text, {"remove": [holder.uid for holder in holders]}, minimal)


def _shares(pod: Pod, holdings: Holdings, resources: Sequence[str]) -> str:
    """Return in brackets which containers of a pod hold some resources; empty: it has only one."""
    if len(pod.all_containers) == 1:
        return ""

    held = {
        holding.container: holding for holding in holdings.containers if holding.pod_uid == pod.uid
    }
    parts = []
    for resource in resources:
        counted_units: set[int | str] = set()
        for container in pod.all_containers:
            holding = held.get(container.name)
            if holding is None:
                continue

            units = _units(holding, resource)
            amount = len(units) or sum(holding.memory.get(resource, {}).values())
            if not amount:
                continue

            label = f"{'init ' if container.ends else ''}container {container.name}"
            share = f"{label} {_amount_text(resource, amount, as_whole=False)}"
            if units and units <= counted_units:
                share += " of these"

            parts.append(share)
            counted_units |= units

    return f" ({', '.join(parts)})" if parts else ""


def kept_after_init(pods: Iterable[Pod], holdings: Holdings, resources: Sequence[str]) -> str:
    """Return which init containers keep CPUs or devices for themselves, as a clause; empty: none.

    A kubelet gives what they have to the containers after them, and what these do not take back
    only once the pod is gone.
    """
    ending = {
        (pod.uid, container.name)
        for pod in pods
        for container in pod.init_containers
        if container.ends
    }
    if not ending:
        return ""

    totals: Counter[str] = Counter()
    names: dict[str, None] = {}
    for resource in resources:
        kept: defaultdict[str, dict[int | str, str]] = defaultdict(dict)
        others: defaultdict[str, set[int | str]] = defaultdict(set)
        for holding in holdings.containers:
            units = _units(holding, resource)
            if (holding.pod_uid, holding.container) in ending:
                label = f"{holding.container} of {holding.pod}"
                kept[holding.pod_uid].update(dict.fromkeys(units, label))
            else:
                others[holding.pod_uid] |= units

        for uid, labels in kept.items():
            alone = labels.keys() - others[uid]
            totals[resource] += len(alone)
            names |= dict.fromkeys(sorted({labels[unit] for unit in alone}))

    amounts = [
        _amount_text(resource, amount, as_whole=False)
        for resource, amount in totals.items()
        if amount
    ]
    if not amounts:
        return ""

    return (
        f"init containers keep {' and '.join(amounts)}, also once they have ended, as long as "
        f"their pods are there: {some_of(list(names), NAMES_SHOWN)}"
    )


def _units(holding: ContainerHolding, resource: str) -> set[int | str]:
    """Return the CPUs or devices of a resource that a container holds."""
    if resource == "cpu":
        return set(holding.cpus or ())
    return set(holding.devices.get(resource, ()))


def _amount_text(resource: str, amount: int, *, as_whole: bool) -> str:
    """Return an amount of a resource in words."""
    if resource == "cpu":
        return f"{amount / 1000:g} cpu" if as_whole else counted(amount, "CPU")
    if is_pinned_memory(resource):
        return f"{short_bytes(amount)} {resource}"
    return f"{amount} {resource}"


def possible_pairs(
    holdings: Sequence[Mapping[str, Mapping[int, int]]],
    free: Mapping[str, Mapping[int, int]],
    requests: Iterable[Mapping[str, int]],
    *,
    on_one_node: bool,
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of pods, by their places in `holdings`, that are not ruled out.

    Args:
        holdings: for each pod by resource and kernel id of the NUMA node what it holds.
        free: by resource and kernel id, what is free; a device that is near to several NUMA nodes
            counts for each.
        requests: for each container by resource, what it asks for.
        on_one_node: whether each container must get everything from one NUMA node.
    """
    # most explanations need none, and it takes as long as all else
    import numpy as np  # noqa: PLC0415

    count = len(holdings)
    possible = np.triu(np.ones((count, count), np.bool_), 1)
    for request in requests:
        on_some_node: npt.NDArray[np.bool_] | None = None
        for resource, requested_amount in request.items():
            if resource not in free:
                continue

            amount = min(requested_amount, _LARGEST)
            nodes = sorted(free[resource])
            free_amounts = np.array([free[resource][node] for node in nodes], np.int64)
            rows = [
                [holding.get(resource, {}).get(node, 0) for node in nodes] for holding in holdings
            ]
            held_amounts = np.array(rows, np.int64).reshape(count, len(nodes))
            totals = held_amounts.sum(axis=1)
            possible &= free_amounts.sum() + totals[:, None] + totals[None, :] >= amount

            nowhere = nodes.index(NO_NUMA_NODE)
            if on_one_node and not free_amounts[nowhere] and not held_amounts[:, nowhere].any():
                enough = np.stack(
                    [
                        node_amounts[:, None] + node_amounts[None, :] + node_free >= amount
                        for node_amounts, node_free in zip(
                            held_amounts.T, free_amounts, strict=True
                        )
                    ]
                )
                on_some_node = enough if on_some_node is None else on_some_node & enough

        if on_some_node is not None:
            possible &= on_some_node.any(axis=0)

    first, second = np.nonzero(possible)
    yield from zip(first.tolist(), second.tolist(), strict=True)
