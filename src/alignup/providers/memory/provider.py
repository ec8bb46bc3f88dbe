"""The memory manager's Static policy as a hint provider: which NUMA nodes a container's memory comes from.

It decides as the kubelet (1.36) does, for memory and hugepages of every size together. What may be given away
at all is worked out in `alignup.providers.memory.capacity`; what is left is kept in
`alignup.providers.memory.nodes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from alignup.errors import AllocationError
from alignup.providers.memory.account import accounts_of_memory, shortage, ties_of
from alignup.providers.memory.capacity import allocatable_memory
from alignup.providers.memory.nodes import Holding, MemoryNodes, positions_of
from alignup.topology_manager.account import in_words
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints, smallest_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.kubernetes.kubelet_config import ReservedMemory
    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.machine import Machine
    from alignup.topology_manager.account import Accounts, MemoryAccount, Ties
    from alignup.topology_manager.provider import ResourceHints

__all__ = ["MemoryBlock", "MemoryProvider"]

_SIZES_KEPT = 512
"""Smallest sizes remembered, one for each different request; forgotten together when there are more."""


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory of one type that a container holds on a set of NUMA nodes."""

    numa_nodes: tuple[int, ...]
    """Kernel node ids, ascending."""
    type: str
    """`memory` or `hugepages-<size>`."""
    size: int
    """Bytes."""


class MemoryProvider:
    """Gives Guaranteed containers the memory of as few NUMA nodes as can hold it.

    A pod that is not Guaranteed has no memory requests in its record, and gets nothing here.

    One difference from the kubelet is meant: a release gives every byte back to the node it came from.
    The kubelet takes it off the lowest nodes of the mask, which can be another container's memory once one
    sat alone on a node of a group; it then counts that as free, and loses as much elsewhere.

    Args:
        machine: The machine whose memory is given away.
        reserved: What is kept back for the system.
        bindings_stay: Follow the kubelet where a container sat alone on a node of a group: the node stays out
            of the group until nobody uses it, even if that container was refused later on. False: a refusal
            or removal leaves no such trace.

    Raises:
        ConfigError: A kubelet would not start with these reservations, or they do not fit the machine.
    """

    name = "memory"

    def __init__(
        self, machine: Machine, reserved: Iterable[ReservedMemory], *, bindings_stay: bool = True
    ) -> None:
        self._ids = tuple(node.id for node in machine.numa_nodes)
        self._everywhere = (1 << len(self._ids)) - 1
        self._allocatable = allocatable_memory(machine, reserved)
        self._nodes = MemoryNodes(self._allocatable, bindings_stay=bindings_stay)
        self._smallest: dict[tuple[tuple[str, int], ...], int] = {}
        self._holdings: dict[tuple[str, str], Holding] = {}
        self._pods: dict[tuple[str, str], str] = {}
        self._init_holdings: dict[str, list[Holding]] = {}

    @property
    def allocatable(self) -> dict[str, tuple[int, ...]]:
        """Bytes of each type that there are to give, by position of the NUMA node."""
        return dict(self._allocatable)

    @property
    def free(self) -> dict[str, tuple[int, ...]]:
        """Bytes of each type that nobody holds, by position of the NUMA node."""
        return {kind: tuple(amounts) for kind, amounts in self._nodes.free.items()}

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return the masks that can hold all the container asks for; each type has the same ones.

        The mapping is empty when no mask can: the kubelet's answer, which a merge takes for no preference at
        all, so that the refusal comes from `allocate`.
        """
        requests = container.memory
        if not requests:
            return None
        held = self._holdings.get((pod.uid, container.name))
        if held is not None:
            return _hints_as_held(held, requests)
        hints = self._hints(pod.uid, requests)
        return {kind: hints for kind, _ in requests} if hints else {}

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for all containers of the pod together."""
        requests = pod.memory
        if not requests:
            return None
        for container in pod.all_containers:
            held = self._holdings.get((pod.uid, container.name))
            if held is not None:
                return _hints_as_held(held, requests)
        hints = self._hints(pod.uid, requests)
        return {kind: hints for kind, _ in requests} if hints else {}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container its memory on the nodes of `affinity`, or on more if those do not suffice.

        What earlier init containers of the pod hold on the same nodes is handed over first.

        Raises:
            AllocationError: No nodes have enough free, or only nodes that the affinity or the group rule
                exclude; nothing was given to this container.
        """
        requests = container.memory
        key = (pod.uid, container.name)
        if not requests or key in self._holdings:
            return
        holding = Holding(self._nodes_for(pod.uid, requests, affinity))
        donors = self._init_holdings.get(pod.uid, ())
        nodes = self._nodes
        for kind, amount in requests:
            holding.taken[kind] = [0] * len(holding.positions)
            missing = amount
            for donor in donors:
                if missing and donor.mask == holding.mask:
                    missing = donor.hand_over(kind, missing, holding)
            nodes.take(holding, kind, missing)
        nodes.bind(holding)
        self._holdings[key] = holding
        self._pods[key] = f"{pod.namespace}/{pod.name}"
        if container.is_init and not container.is_sidecar:
            self._init_holdings.setdefault(pod.uid, []).append(holding)

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back what the container holds, if anything."""
        holding = self._holdings.pop((pod_uid, container_name), None)
        if holding is None:
            return
        del self._pods[pod_uid, container_name]
        self._nodes.give_back(holding)
        donors = self._init_holdings.get(pod_uid)
        if donors is not None and holding in donors:
            donors.remove(holding)
            if not donors:
                del self._init_holdings[pod_uid]

    def blocks(self, pod_uid: str, container_name: str) -> tuple[MemoryBlock, ...]:
        """Return what the container holds, by type; an init container no longer holds what it handed on."""
        holding = self._holdings.get((pod_uid, container_name))
        if holding is None:
            return ()
        ids = tuple([self._ids[position] for position in holding.positions])
        taken = holding.taken
        return tuple([MemoryBlock(ids, kind, sum(taken[kind])) for kind in sorted(taken)])

    def shares(self, pod_uid: str, container_name: str) -> dict[str, dict[int, int]]:
        """Return by type the bytes that the container holds on each node of its set, by kernel node id."""
        holding = self._holdings.get((pod_uid, container_name))
        if holding is None:
            return {}
        ids = [self._ids[position] for position in holding.positions]
        return {kind: dict(zip(ids, taken, strict=True)) for kind, taken in sorted(holding.taken.items())}

    def adopt(self, pod_uid: str, container_name: str, shares: Mapping[str, Mapping[int, int]]) -> None:
        """Note memory, as `shares` tells it, that the container was given before this provider was made.

        Where a node has less left than that (hugepages can be set aside at any time), it counts as full.
        Nodes and types that the machine does not have are passed over.

        Raises:
            AllocationError: The container has memory already.
        """
        if (pod_uid, container_name) in self._holdings:
            raise AllocationError(f"expected no memory of container {container_name!r} yet, got it twice")
        known = {kind: taken for kind, taken in shares.items() if kind in self._allocatable}
        present = {node for taken in known.values() for node in taken}
        holding = Holding(sum(1 << position for position, node in enumerate(self._ids) if node in present))
        if not holding.mask:
            return
        for kind, taken in known.items():
            free = self._nodes.free[kind]
            amounts = [min(free[i], taken.get(self._ids[i], 0)) for i in holding.positions]
            for position, amount in zip(holding.positions, amounts, strict=True):
                free[position] -= amount
            holding.taken[kind] = amounts
        self._nodes.bind(holding)
        self._holdings[pod_uid, container_name] = holding
        self._pods[pod_uid, container_name] = pod_uid

    def _hints(self, pod_uid: str, requests: tuple[tuple[str, int], ...]) -> HintList:
        """Return every mask that holds the requests and that the group rule allows."""
        nodes = self._nodes
        free = nodes.free
        try:
            demands = [(None, free[kind], amount) for kind, amount in requests]
        except KeyError:  # hugepages of a size that the machine lacks
            return HintList.empty()
        smallest = self._smallest.get(requests)
        if smallest is None:
            smallest = self._smallest_size(requests)
        donors = self._init_holdings.get(pod_uid)
        return feasible_hints(
            len(self._ids),
            demands,
            universe=nodes.unbound,
            preferred_size=smallest,
            alone=nodes.alone,
            groups=nodes.groups,
            extra=self._masks_with_reuse(donors, requests) if donors else (),
        )

    def _smallest_size(self, requests: tuple[tuple[str, int], ...]) -> int:
        """Return how many nodes would be needed if nobody held anything."""
        if len(self._smallest) >= _SIZES_KEPT:
            self._smallest.clear()
        demands = [(None, self._allocatable[kind], amount) for kind, amount in requests]
        size: int = smallest_size(len(self._ids), demands, self._everywhere)
        self._smallest[requests] = size
        return size

    def _masks_with_reuse(
        self, donors: Sequence[Holding], requests: tuple[tuple[str, int], ...]
    ) -> list[int]:
        """Return the masks of init containers that suffice together with what those hold there."""
        found = []
        for mask in dict.fromkeys(donor.mask for donor in donors):
            missing = [
                (kind, amount - sum(donor.size(kind) for donor in donors if donor.mask == mask))
                for kind, amount in requests
            ]
            if self._nodes.allows(mask) and self._nodes.holds(mask, missing):
                found.append(mask)
        return found

    def _nodes_for(self, pod_uid: str, requests: tuple[tuple[str, int], ...], affinity: TopologyHint) -> int:
        """Return the mask to allocate from.

        1. No affinity: the best of all hints, which must be preferred if the affinity is.
        2. The nodes have too little: the best hint that includes them, with the same condition.
        3. The group rule then has the last word.
        """
        hints = None
        mask: int
        wanted, preferred = affinity.affinity, affinity.preferred
        if wanted is None:
            hints = self._hints(pod_uid, requests)
            mask, preferred = self._checked(hints.best(), preferred, pod_uid, requests, None)
        else:
            mask = int(wanted)
        if not self._nodes.holds(mask, requests):
            hints = hints or self._hints(pod_uid, requests)
            mask, _ = self._checked(hints.best_containing(mask), preferred, pod_uid, requests, mask)
        if self._nodes.violates(mask):
            told = in_words(self._accounts(pod_uid, requests, mask))
            account = "; ".join(f"{kind} {words}" for kind, words in told.items())
            raise AllocationError(
                f"{self._names(mask)} cannot be used together: memory of some of them is already in use on "
                f"another set of nodes; {account}"
            )
        return mask

    def _checked(
        self,
        best: tuple[int, bool] | None,
        preferred: bool,
        pod_uid: str,
        requests: tuple[tuple[str, int], ...],
        inner: int | None,
    ) -> tuple[int, bool]:
        """Return the best hint, or raise if there is none or it is not as good as the affinity was."""
        if best is not None and (best[1] or not preferred):
            return best
        within = "" if inner is None else f" that includes {self._names(inner)}"
        smallest = "" if best is None else "smallest possible "
        raise AllocationError(shortage(self._accounts(pod_uid, requests), within, smallest))

    def _names(self, mask: int) -> str:
        """Return the nodes of a mask by their kernel ids, for a message."""
        ids = ", ".join(str(self._ids[position]) for position in positions_of(mask))
        return f"NUMA node{'s' if mask & (mask - 1) else ''} {ids}"

    def account(self, pod: Pod, container: Container | None) -> Accounts:
        """Return by type the bytes asked for, and those free on each NUMA node; see `HintProvider`."""
        return self._accounts(pod.uid, pod.memory if container is None else container.memory)

    def _accounts(
        self, pod_uid: str, requests: tuple[tuple[str, int], ...], mask: int = 0
    ) -> dict[str, MemoryAccount]:
        """Return the account of each type now; `mask` are nodes that would do if nobody held memory there."""
        ties: Callable[[], Ties] = tuple
        if self._holdings:
            holders = [(held.mask, self._pods[key]) for key, held in self._holdings.items()]
            wanted = partial(int, mask) if mask else self._wanted_mask(requests)
            ties = partial(_ties_around, holders, wanted, self._ids)
        return accounts_of_memory(requests, self._free_of, self._ids, partial(self._hints, pod_uid), ties)

    def _wanted_mask(self, requests: tuple[tuple[str, int], ...]) -> Callable[[], int]:
        """Return what will tell the nodes that would be taken now if there were no group rule; 0: the same ones."""
        nodes = self._nodes
        if any(kind not in nodes.free for kind, _ in requests):
            return int
        demands = [(None, tuple(nodes.free[kind]), amount) for kind, amount in requests]
        smallest = self._smallest.get(requests) or self._smallest_size(requests)
        find = partial(feasible_hints, len(self._ids), demands, preferred_size=smallest)
        ruled = partial(find, universe=nodes.unbound, alone=nodes.alone, groups=nodes.groups)
        return partial(_better_mask, partial(find, universe=self._everywhere), ruled)

    def _free_of(self, kind: str) -> tuple[int, ...] | None:
        """Return what is free of a type on each node now; None where the machine has none."""
        free = self._nodes.free.get(kind)
        return None if free is None else tuple(free)


def _ties_around(holders: list[tuple[int, str]], wanted: Callable[[], int], ids: tuple[int, ...]) -> Ties:
    """Return the ties that touch the wanted nodes."""
    return ties_of(holders, wanted(), ids)


def _better_mask(free: Callable[[], HintList], ruled: Callable[[], HintList]) -> int:
    """Return the best mask of the first hints if it is not that of the second ones; else 0."""
    best = free().best()
    return 0 if best is None or best == ruled().best() else best[0]


def _hints_as_held(held: Holding, requests: tuple[tuple[str, int], ...]) -> ResourceHints:
    """Return the hint that repeats what is held; no preference if that is not what is asked for now."""
    if len(held.taken) != len(requests) or any(held.size(kind) != amount for kind, amount in requests):
        return None
    hints = HintList([TopologyHint(BitMask.from_int(held.mask), True)])
    return {kind: hints for kind, _ in requests}
