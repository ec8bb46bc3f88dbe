"""Keeps the queue of those who wait for a lease: in order of arrival, and who may pass them.

The queue is one for each kind of thing (CPUs, memory, a resource of devices). Two rules let others
pass. A request that cannot be met while its own process has what it has, or its user is at a limit,
holds up nobody. And a later request is met if none of those before it is delayed by that, whichever
of the present leases end first (backfill).
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeVar

from alignup.errors import AlignupError
from alignup.host.leases.lease_node import LeaseNode
from alignup.host.leases.request import LeaseRequest, request_of, without_devices
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.host.leases.local_machine import Site
    from alignup.host.leases.record import LeaseRecord, Waiter
    from alignup.host.leases.users import Users
    from alignup.kubernetes.versions import KubeletVersion

# With more leases of the kinds that the first in line asks for, nobody passes it.
_MOST_LEASES: Final = 64
# Sets of leases whose end is tried to see when the first in line can start.
_MOST_TRIALS: Final = 128
_T = TypeVar("_T")


class Snapshot(Record, eq=False):
    """The ledger as it is now, as far as it decides who may pass whom.

    It holds until a lease or a device changes.

    Attributes:
        site: with the devices of now.
        leases: by id.
        reports: counts changes of devices.
        awaited: resources whose plugins may yet register; who waits for them keeps their place.
    """

    site: Site
    version: KubeletVersion
    leases: Mapping[str, LeaseRecord]
    users: Users
    reports: int
    awaited: frozenset[str] = frozenset()

    def node(self, leases: Iterable[LeaseRecord]) -> LeaseNode:
        """Return a node that has these leases only."""
        node = LeaseNode(self.site, self.version)
        for lease in leases:
            node.adopt(lease)
        return node

    def request_of(self, waiter: Waiter) -> LeaseRequest | None:
        """Return the request of a waiter as far as its devices are known; None: it is not known."""
        request = request_of(waiter)
        return None if request is None else without_devices(request, self.awaited)

    def holdings(self, waiter: Waiter) -> object:
        """Return what the answers about a waiter depend on beside the leases."""
        return dict(self.users.of(self.users.owner_of(waiter)).amounts), self.reports

    def leases_above(self, waiter: Waiter) -> list[LeaseRecord]:
        """Return the leases that do not end while a process waits.

        They are its own, and those of the processes above it.
        """
        above = set(waiter.ancestors)
        if not above:
            return []

        leases = []
        for lease in self.leases.values():
            processes = {(process.pid, process.start_time) for process in lease.processes}
            if processes & above:
                leases.append(lease)

        return leases


class Queue:
    """Those who wait, in order of arrival.

    There is one queue for each kind of thing; who asks for several kinds is in several.
    """

    __slots__ = ("_answers", "_by_id")

    def __init__(self) -> None:
        self._by_id: dict[str, Waiter] = {}
        # Answers by question and waiter, each with all that it depends on.
        self._answers: dict[tuple[str, str], tuple[object, object]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._by_id.values())

    def __contains__(self, waiter_id: object) -> bool:
        return waiter_id in self._by_id

    def join(self, waiter: Waiter) -> None:
        """Append a waiter unless it is queued."""
        self._by_id.setdefault(waiter.id, waiter)

    def leave(self, waiter_id: str) -> bool:
        """Remove a waiter; return whether it was queued."""
        for question in ("blocks", "ways"):
            self._answers.pop((question, waiter_id), None)
        return self._by_id.pop(waiter_id, None) is not None

    def ahead_of(self, waiter: Waiter, now: Snapshot) -> list[Waiter]:
        """Return for each kind that a waiter asks for the first one before it that blocks others.

        The waiter need not be queued: then it is behind all.
        """
        first: dict[str, Waiter] = {}
        for kind in waiter.kinds:
            for earlier in self._by_id.values():
                if earlier.id == waiter.id:
                    break
                if kind in earlier.kinds and self.blocks(earlier, now):
                    first[earlier.id] = earlier
                    break

        return list(first.values())

    def blocks(self, waiter: Waiter, now: Snapshot) -> bool:
        """Return whether others wait for a queued request.

        They do not if only its own leases or limits are in its way.
        """
        request = now.request_of(waiter)
        own_leases = now.leases_above(waiter)

        def could_start() -> bool:
            if request is None:
                return True
            node = now.node(own_leases)
            if not node.resources.issuperset(request.demand.devices):
                return False
            draft = _placed(node, request)
            return draft is not None and not now.users.excess(now.users.owner_of(waiter), draft)

        state = ([lease.id for lease in own_leases], now.holdings(waiter))
        return self._once("blocks", waiter, state, could_start)

    def delays(self, passing: LeaseRecord, first: Waiter, now: Snapshot) -> bool:
        """Return whether the first in line may have to wait longer.

        That is because of a lease that was set aside, and passes it.
        """
        request = now.request_of(first)
        if request is None:
            return True

        others = [lease for lease in now.leases.values() if lease.id != passing.id]
        lasting_ids = {lease.id for lease in now.leases_above(first)}
        may_end = [
            lease
            for lease in others
            if lease.id not in lasting_ids and lease.kinds & set(first.kinds)
        ]
        if len(may_end) > _MOST_LEASES:
            return True

        state = ({lease.id for lease in others}, now.holdings(first))
        ways = self._once(
            "ways", first, state, lambda: _ways_to_start(now.node(others), request, may_end)
        )
        if ways is None:
            return True

        node = now.node(now.leases.values())
        return not all(_starts_after(node, request, ended) for ended in ways)

    def _once(self, question: str, waiter: Waiter, state: object, answer: Callable[[], _T]) -> _T:
        """Return the answer to a question.

        It is worked out again only if the state that it depends on has changed.
        """
        last_state, last_answer = self._answers.get((question, waiter.id), (None, None))
        if last_state == state:
            return last_answer  # type: ignore[return-value]  # of this question

        new_answer = answer()
        self._answers[question, waiter.id] = state, new_answer
        return new_answer


def _ways_to_start(
    node: LeaseNode, request: LeaseRequest, may_end: Sequence[LeaseRecord]
) -> list[tuple[LeaseRecord, ...]] | None:
    """Return the smallest sets of leases whose end lets a request in, by trial.

    None: there are too many to tell.
    """
    ways: list[tuple[LeaseRecord, ...]] = []
    ids_of_ways: list[set[str]] = []
    trials = 0
    for size in range(len(may_end) + 1):
        for leases in combinations(may_end, size):
            ids = {lease.id for lease in leases}
            if any(way_ids <= ids for way_ids in ids_of_ways):
                continue

            trials += 1
            if trials > _MOST_TRIALS:
                return None
            if _starts_after(node, request, leases):
                ways.append(leases)
                ids_of_ways.append(ids)

    return ways


def _starts_after(node: LeaseNode, request: LeaseRequest, ended: Iterable[LeaseRecord]) -> bool:
    """Return whether a request fits a node once some leases have ended.

    The node is as before afterwards.
    """
    for lease in ended:
        node.release(lease.id)

    draft = _placed(node, request)
    if draft is not None:
        node.release(draft.id)

    for lease in ended:
        node.adopt(lease)

    return draft is not None


def _placed(node: LeaseNode, request: LeaseRequest) -> LeaseRecord | None:
    """Return what a queued request gets of a node; None if nothing."""
    try:
        return node.place(request)
    except AlignupError:
        return None
