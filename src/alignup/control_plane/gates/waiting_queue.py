"""The order of pods that wait for a place.

**Order.** The pod of the highest priority comes first; among equal ones, that of the namespace
whose turn it is; within a namespace the oldest, and of equally old ones that with the first name. A
pod that fits nowhere does not stop those behind it.

**Turns of namespaces.** Each place that a pod is given is charged to its namespace, as the part of
the cluster that it takes; the namespace that was charged least is next (start-time fair queueing:
Goyal, Vin and Cheng, 1996). A namespace that begins to wait is charged as much as the one that was
served last, so that nobody saves up turns while nothing of it waits, and nobody who comes later
stands behind all that was given before.

**Large pods.** Pods that are small enough for what is free would go past a large one for ever. So a
pod that has waited for `patience` seconds may have a node kept for it (`overdue`): on that node
only the pod itself, and pods of a higher priority, are given places from then on, until the others
there have ended. The first ones in the order get that, as many as the caller allows.

Pure: no clock is read here. `KindTable` finds the kinds of pods that a node's sums have room for,
all at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod

# Priority, namespace and kind: pods with the same ones come in the order of their age.
_Line = tuple[int, str, "Kind"]

# No node has so much of anything; larger amounts are cut to it.
_MOST: Final = 1 << 62
_FIRST_ROWS: Final = 64
_FIRST_COLUMNS: Final = 8
_MOST_COLUMNS: Final = 64


class WaitingQueue:
    """Pods, by uid, and their order."""

    def __init__(self) -> None:
        # With the moment since when each waits, by the caller's clock.
        self._pods: dict[str, tuple[WaitingPod, float]] = {}
        # Age, name and uid of the pods of a line, in their order.
        self._lines: dict[_Line, list[tuple[str, str, str]]] = {}
        self._lines_of_kind: dict[Kind, set[_Line]] = {}

        # By namespace, how many pods wait, and what it was charged; the latter also of namespaces
        # of which none waits, as long as that is more than others were.
        self._counts: dict[str, int] = {}
        self._charged: dict[str, float] = {}
        # What the namespace that was served last had been charged before.
        self._turn = 0.0

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[WaitingPod]:
        """Yield the pods in the order in which they were added."""
        return (pod for pod, _ in self._pods.values())

    @property
    def kinds(self) -> Iterable[Kind]:
        """The kinds of which pods wait."""
        return self._lines_of_kind.keys()

    def since(self, uid: str) -> float:
        """Return since when a pod waits, by the clock of those who added it."""
        return self._pods[uid][1]

    def add(self, pod: WaitingPod, since: float) -> WaitingPod | None:
        """Add a pod, or put it in the place of the one of its uid, which is returned.

        It has waited for as long as that one.
        """
        before = self._remove(pod.uid)
        if before is not None:
            since = before[1]

        namespace = pod.watched.pod.namespace
        if namespace not in self._counts:
            self._charged[namespace] = max(self._charged.get(namespace, 0.0), self._turn)
            self._counts[namespace] = 0

        self._counts[namespace] += 1
        self._pods[pod.uid] = pod, since
        line = _line_of(pod)
        insort(self._lines.setdefault(line, []), _place_in_line(pod))
        self._lines_of_kind.setdefault(pod.kind, set()).add(line)
        return None if before is None else before[0]

    def remove(self, uid: str) -> WaitingPod | None:
        """Remove and return a pod; None: it does not wait."""
        entry = self._remove(uid)
        if entry is None:
            return None

        pod, _ = entry
        namespace = pod.watched.pod.namespace
        if not self._counts[namespace]:
            del self._counts[namespace]

        return pod

    def _remove(self, uid: str) -> tuple[WaitingPod, float] | None:
        entry = self._pods.pop(uid, None)
        if entry is None:
            return None

        pod, _ = entry
        line = _line_of(pod)
        members = self._lines[line]
        del members[bisect_left(members, _place_in_line(pod))]
        if not members:
            del self._lines[line]
            self._lines_of_kind[pod.kind].discard(line)
            if not self._lines_of_kind[pod.kind]:
                del self._lines_of_kind[pod.kind]

        self._counts[pod.watched.pod.namespace] -= 1
        return entry

    def firsts(self, kinds: Iterable[Kind]) -> list[WaitingPod]:
        """Return the pods of some kinds that may be next, in the order.

        Those are the first ones of each priority, namespace and kind.
        """
        lines = [line for kind in kinds for line in self._lines_of_kind.get(kind, ())]
        lines.sort(key=self._key_of)
        return [self._pods[self._lines[line][0][2]][0] for line in lines]

    def _key_of(self, line: _Line) -> tuple[int, float, tuple[str, str, str]]:
        """Return by what lines are ordered, of which each has its first pod here."""
        priority, namespace, _ = line
        return -priority, self._charged[namespace], self._lines[line][0]

    def charge(self, namespace: str, part: float) -> None:
        """Charge a place to a namespace.

        Args:
            namespace: that of the pod.
            part: of the whole cluster that the pod takes, by the resource of which it takes most.
        """
        before = self._charged.get(namespace, self._turn)
        self._turn = max(self._turn, before)
        self._charged[namespace] = before + part
        # who was charged less than that begins anew when it waits again
        self._charged = {
            name: charged
            for name, charged in self._charged.items()
            if charged > self._turn or name in self._counts or name == namespace
        }

    def charged(self, namespace: str) -> float:
        """Return what a namespace was charged: the one of which that is least is next."""
        charged = self._charged.get(namespace, 0.0)
        return charged if namespace in self._counts else max(charged, self._turn)

    def in_order(self) -> list[WaitingPod]:
        """Return all pods in the order that holds now."""
        pods = [pod for pod, _ in self._pods.values()]
        return sorted(
            pods,
            key=lambda pod: (
                -pod.watched.priority,
                self._charged[pod.watched.pod.namespace],
                _place_in_line(pod),
            ),
        )

    def overdue(self, now: float, patience: float) -> list[WaitingPod]:
        """Return the pods that have waited for `patience` seconds, in the order."""
        if all(since > now - patience for _, since in self._pods.values()):
            return []
        return [pod for pod in self.in_order() if self._pods[pod.uid][1] <= now - patience]


class KindTable:
    """Kinds of pods, and what each requests: a row for each, a column for each resource.

    Whoever makes pods may name resources without end. So a column that no kind needs goes to
    another resource, there are few of them, and the resources that find none stand beside the row.
    """

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        # By resource, how many rows need its column; and the columns of none.
        self._uses: Counter[str] = Counter()
        self._unused_columns = list(range(_FIRST_COLUMNS - 1, -1, -1))
        # By row, what has no column.
        self._further: dict[int, dict[str, int]] = {}
        self._rows: dict[Kind, int] = {}
        self._kinds: list[Kind | None] = [None] * _FIRST_ROWS
        self._unused = list(range(_FIRST_ROWS))
        # of an unused row, more than any node has
        self._amounts = np.full((_FIRST_ROWS, _FIRST_COLUMNS), _MOST, np.int64)

    def __contains__(self, kind: object) -> bool:
        return kind in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._rows)

    def add(self, kind: Kind) -> None:
        """Add a kind; one that is in the table stays."""
        if kind in self._rows:
            return

        if not self._unused:
            self._grow(more_rows=len(self._kinds))

        row = self._unused.pop()
        self._rows[kind] = row
        self._kinds[row] = kind
        self._amounts[row] = 0
        for resource, amount in kind.requests.items():
            column = self._column(resource)
            if column is None:
                self._further.setdefault(row, {})[resource] = amount
            else:
                self._uses[resource] += 1
                self._amounts[row, column] = min(amount, _MOST)

    def _column(self, resource: str) -> int | None:
        """Return the column of a resource; None: there are as many as there may be."""
        column = self._columns.get(resource)
        if column is not None:
            return column

        if not self._unused_columns and self._amounts.shape[1] < _MOST_COLUMNS:
            self._grow(more_columns=self._amounts.shape[1])
        if not self._unused_columns:
            return None

        column = self._columns[resource] = self._unused_columns.pop()
        return column

    def discard(self, kind: Kind) -> None:
        """Remove a kind; one that is not in the table is no error."""
        row = self._rows.pop(kind, None)
        if row is not None:
            self._kinds[row] = None
            self._amounts[row] = _MOST
            self._unused.append(row)
            self._give_columns_back(kind, self._further.pop(row, {}))

    def _give_columns_back(self, kind: Kind, further: Mapping[str, int]) -> None:
        for resource in kind.requests:
            if resource in further:
                continue

            self._uses[resource] -= 1
            if not self._uses[resource]:
                del self._uses[resource]
                self._unused_columns.append(self._columns.pop(resource))

    def fitting(self, free: Mapping[str, int]) -> list[Kind]:
        """Return the kinds of which a pod finds what it requests in these amounts.

        Args:
            free: amounts by resource, in the units of `Kind.requests`; one that is missing is 0.
        """
        amounts = np.zeros(self._amounts.shape[1], np.int64)
        for resource, column in self._columns.items():
            amounts[column] = max(0, min(free.get(resource, 0), _MOST - 1))

        rows = np.flatnonzero((self._amounts <= amounts).all(axis=1))
        kinds = []
        for row in rows.tolist():
            kind = self._kinds[row]
            further = self._further.get(row, {})
            is_enough = all(free.get(name, 0) >= amount for name, amount in further.items())
            if kind is not None and is_enough:
                kinds.append(kind)

        return kinds

    def _grow(self, more_rows: int = 0, more_columns: int = 0) -> None:
        rows, columns = self._amounts.shape
        grown = np.full((rows + more_rows, columns + more_columns), _MOST, np.int64)
        grown[:rows, :columns] = self._amounts
        used = list(self._rows.values())
        grown[used, columns:] = 0

        self._amounts = grown
        self._kinds += [None] * more_rows
        self._unused += range(rows, rows + more_rows)
        self._unused_columns += range(columns + more_columns - 1, columns - 1, -1)


def _line_of(pod: WaitingPod) -> _Line:
    return pod.watched.priority, pod.watched.pod.namespace, pod.kind


def _place_in_line(pod: WaitingPod) -> tuple[str, str, str]:
    return pod.created, pod.watched.pod.name, pod.uid
