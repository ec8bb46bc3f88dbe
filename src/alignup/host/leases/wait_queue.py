"""Keeps the queue of those who wait for a lease: in order of arrival, and with the rules by which others may pass.

The queue is one for each kind of thing (CPUs, memory, a resource of devices). Two rules let others pass. A request that
cannot be met while its own process has what it has, or its user is at a limit, holds up nobody. And a later request is
met if none of those before it is delayed by that, whichever of the present leases end first (backfill).
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeVar

from alignup.errors import AlignupError
from alignup.host.leases.lease_node import LeaseNode, Tenant
from alignup.host.leases.request import request_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from alignup.host.leases.record import LeaseRecord, Waiter

_MOST_LEASES: Final = 64
"""With more leases of the kinds that the first in line asks for, nobody passes it."""
_MOST_TRIALS: Final = 128
"""Sets of leases whose end is tried to see when the first in line can start."""
_T = TypeVar("_T")


class Queue:
    """Those who wait, in order of arrival; one queue for each kind of thing, and several for who asks for several."""

    __slots__ = ("_by_id", "_by_kind")

    def __init__(self) -> None:
        self._by_id: dict[str, Waiter] = {}
        self._by_kind: dict[str, dict[str, Waiter]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._by_id.values())

    def __contains__(self, waiter_id: object) -> bool:
        return waiter_id in self._by_id

    def join(self, waiter: Waiter) -> bool:
        """Append a waiter unless it is queued; return whether it was appended."""
        if waiter.id in self._by_id:
            return False
        self._by_id[waiter.id] = waiter
        for kind in waiter.kinds:
            self._by_kind.setdefault(kind, {})[waiter.id] = waiter
        return True

    def leave(self, waiter_id: str) -> Waiter | None:
        """Remove and return a waiter; None if it is not queued."""
        waiter = self._by_id.pop(waiter_id, None)
        for kind in waiter.kinds if waiter else ():
            line = self._by_kind[kind]
            del line[waiter_id]
            if not line:
                del self._by_kind[kind]
        return waiter

    def ahead_of(self, waiter: Waiter, blocks: Callable[[Waiter], bool] = lambda _: True) -> list[Waiter]:
        """Return for each kind that a waiter asks for the first one before it that blocks others.

        The waiter need not be queued: then it is behind all.
        """
        first: dict[str, Waiter] = {}
        for kind in waiter.kinds:
            for one in self._by_kind.get(kind, {}).values():
                if one.id == waiter.id:
                    break
                if blocks(one):
                    first[one.id] = one
                    break
        return list(first.values())


class PassingRules:
    """Says who in the queue holds up others, and who may pass.

    Args:
        leases: those that there are, by id.
        empty_node: returns a node on which nobody holds anything.
        limits: returns what the answers depend on beside the leases, and whether a lease is within the limits of the
            waiter's user.
    """

    __slots__ = ("_empty_node", "_known", "_leases", "_limits")

    def __init__(
        self,
        leases: Mapping[str, LeaseRecord],
        empty_node: Callable[[], LeaseNode],
        limits: Callable[[Waiter], tuple[object, Callable[[LeaseRecord], bool]]],
    ) -> None:
        self._leases = leases
        self._empty_node = empty_node
        self._limits = limits
        self._known: dict[tuple[str, str], tuple[object, object]] = {}
        """Answers by question and waiter, each with all that it depends on."""

    def forget(self, waiter_id: str) -> None:
        """Forget what is known of somebody who waits no longer."""
        for question in ("blocks", "ways"):
            self._known.pop((question, waiter_id), None)

    def blocks(self, waiter: Waiter) -> bool:
        """Return whether others wait for a queued request: not if only its own leases or limits are in its way."""
        own = self._own_leases(waiter)
        state, fits = self._limits(waiter)

        def could_start() -> bool:
            if request_of(waiter) is None:
                return True
            draft = _placed(self._node_with(own), waiter)
            return draft is not None and fits(draft)

        return self._once("blocks", waiter, ([lease.id for lease in own], state), could_start)

    def delays(self, passing: LeaseRecord, first: Waiter) -> bool:
        """Return whether the first in line may have to wait longer because of a lease that was set aside."""
        own = {lease.id for lease in self._own_leases(first)} | {passing.id}
        ids = [one.id for one in self._leases.values() if one.id not in own and _kinds(one) & set(first.kinds)]
        if request_of(first) is None or len(ids) > _MOST_LEASES:
            return True
        others = [lease for lease in self._leases.values() if lease.id != passing.id]
        state = ({lease.id for lease in others}, self._limits(first)[0])
        ways = self._once("ways", first, state, lambda: self._ways_to_start(self._node_with(others), first, ids))
        if ways is None:
            return True
        node = self._node_with(self._leases.values())
        return not all(self._starts_after(node, first, ended) for ended in ways)

    def _once(self, question: str, waiter: Waiter, state: object, answer: Callable[[], _T]) -> _T:
        """Return the answer to a question, worked out again only if what it depends on has changed."""
        known, found = self._known.get((question, waiter.id), (None, None))
        if known != state:
            found = answer()
            self._known[question, waiter.id] = state, found
        return found  # type: ignore[return-value]  # of this question

    def _node_with(self, leases: Iterable[LeaseRecord]) -> LeaseNode:
        node = self._empty_node()
        for lease in leases:
            node.adopt(lease)
        return node

    def _own_leases(self, waiter: Waiter) -> list[LeaseRecord]:
        """Return the leases that do not end while a process waits: its own, and those of the processes above it."""
        above = set(waiter.ancestors)
        leases = self._leases.values() if above else ()
        return [lease for lease in leases if any((one.pid, one.start_time) in above for one in lease.processes)]

    def _ways_to_start(self, node: LeaseNode, first: Waiter, ids: list[str]) -> list[frozenset[str]] | None:
        """Return the smallest sets of leases whose end lets a request in, by trial; None: too many to tell."""
        ways: list[frozenset[str]] = []
        trials = 0
        for size in range(len(ids) + 1):
            for chosen in map(frozenset, combinations(ids, size)):
                if any(way <= chosen for way in ways):
                    continue
                trials += 1
                if trials > _MOST_TRIALS:
                    return None
                if self._starts_after(node, first, chosen):
                    ways.append(chosen)
        return ways

    def _starts_after(self, node: LeaseNode, first: Waiter, ended: Iterable[str]) -> bool:
        """Return whether a request fits a node once some leases have ended; the node is as before afterwards."""
        for one in ended:
            node.release(one)
        draft = _placed(node, first)
        if draft is not None:
            node.release(draft.id)
        for one in ended:
            node.adopt(self._leases[one])
        return draft is not None


def _kinds(lease: LeaseRecord) -> set[str]:
    """Return the kinds of things that a lease has; see `Waiter.kinds`."""
    return {kind for kind, held in (("cpu", lease.cpus), ("memory", lease.memory)) if held} | set(lease.devices)


def _placed(node: LeaseNode, waiter: Waiter) -> LeaseRecord | None:
    """Return what a queued request gets of a node; None if nothing."""
    request = request_of(waiter)
    assert request is not None  # noqa: S101  # the callers have looked
    try:
        return node.place(request, Tenant(f"trial {waiter.id}", waiter.name, waiter.process, ""))
    except AlignupError:
        return None
