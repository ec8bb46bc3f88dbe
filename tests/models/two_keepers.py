"""Two keepers of gated pods that take turns as leader, in the cluster of `models.gated_kubelets`.

Both follow all that happens, and one decides. Now and then the other one leads. The former leader
is a process that was stopped: it learns of nothing, some of its patches are on their way for long,
labels among them, and when it runs again it decides once more by what it knew, before it sees that
it leads no more. What is checked is the same, of whoever leads.
"""

from __future__ import annotations

import heapq
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from alignup.control_plane.gates.decisions import Label
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.scheduler.cluster_state import ClusterState
from models.gated_kubelets import GatedKubelets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alignup.control_plane.gates.decisions import Decision

# Seconds that a former leader is stopped for at most, and that its patches are on their way.
LATE = 40.0


class TwoKeepers(GatedKubelets):
    """One run.

    Args:
        args: as for `WatchedKubelets`.
        is_fenced: whether the API server refuses patches of pods that have changed.
        refuses_labels: whether it refuses those of nodes.
        turns: how often the other one leads, beside what else happens.
        cordons: how often a node is cordoned for a while, and how often one changes.
        options: as for `WatchedKubelets`.
    """

    def __init__(
        self,
        *args: Any,
        is_fenced: bool = True,
        refuses_labels: bool = True,
        turns: float = 0.1,
        cordons: float = 0.0,
        **options: Any,
    ) -> None:
        self._turns = turns
        self._cordons = cordons
        self._refuses_labels = refuses_labels
        self.other: Keeper | None = None
        self._stopped: Keeper | None = None
        # Who has listed since what happens now was sent.
        self._ahead: tuple[Keeper, ...] = ()
        # Of pods that a kubelet holds, those of which the other one was told.
        self._told_other: set[str] = set()
        self._is_fenced = is_fenced
        super().__init__(*args, **options)

    def follow(self) -> None:
        """Let a process that starts anew lead; the one beside it lists all."""
        super().follow()
        if self.other is None:
            self.other = Keeper(ClusterState())
            self._told_other = set()
        self._stopped = None
        self._catch_up(self.other)

    def _actions(self) -> list[Any]:
        actions = [*super()._actions(), (self._turns, self._take_turn)]
        if self._cordons:
            actions += [(self._cordons, self._cordon), (self._cordons, self._change_some_node)]
        return actions

    def _cordon(self) -> None:
        """Cordon a node for a while, one to which a pod is on its way if there is any."""
        places = [place for place in self.keeper.places if place.is_open]
        names = sorted({name for place in places for name in place.nodes} & self.kubelets.keys())
        name = self.random.choice(names or sorted(self.kubelets))
        self.cordoned.add(name)
        self._change_node(name)
        self._later(0.0, 20.0, partial(self._uncordon, name))

    def _uncordon(self, name: str) -> None:
        if name in self.cordoned and name in self.kubelets:
            self.cordoned.discard(name)
            self._change_node(name)

    def _change_some_node(self) -> None:
        """Let a kubelet write into its node."""
        self._change_node(self.random.choice(sorted(self.kubelets)))

    def _take_turn(self) -> None:
        """Let the other keeper lead."""
        if self._stopped is not None or self.other is None:
            return

        late = self.keeper
        if self._cordons:  # the last that it learns, and soon over
            self._cordon()
            self._list_nodes(late)
        self._hold_labels(late)
        self._send(late, late.decide(self.now), LATE)
        if self._cordons:
            for name in sorted(self.cordoned):
                self._uncordon(name)
        self.keeper, self.other, self._stopped = self.other, late, late
        self.state = self.keeper.state
        self.told, self._told_other = self._told_other, self.told
        self.outcomes["turns"] += 1
        self._begin_term()
        self._later(0.0, LATE, partial(self._resume, late))

    def _hold_labels(self, keeper: Keeper) -> None:
        """Let labels of a keeper that are on their way come late."""
        for number, (moment, order, happen) in enumerate(self._events):
            if happen.func == self._write_label and happen.args[0] is keeper:
                late = moment + self.random.uniform(0.0, LATE)
                self._events[number] = late, order, happen
        heapq.heapify(self._events)

    def _takes(self, keeper: Keeper, label: Label) -> bool:
        if super()._takes(keeper, label):
            return True
        if keeper is not self.keeper:
            self.outcomes["late labels"] += 1
            return not self._refuses_labels
        return False

    def _resume(self, late: Keeper) -> None:
        """Let a former leader run again, who learns only then that it leads no more."""
        if late is not self._stopped:
            return

        self._send(late, late.decide(self.now), 1.0)
        late.stand_by(self.now)
        self._stopped = None
        self._catch_up(late)

    def _send(self, keeper: Keeper, decisions: list[Decision], most: float) -> None:
        for decision in decisions:
            if isinstance(decision, Label):
                self._later(0.0, most, partial(self._write_label, keeper, decision))
            else:
                self.outcomes["late"] += 1
                self._later(0.0, most, partial(self._let_go, keeper, decision))

    def _let_go(self, keeper: Keeper, release: Any) -> None:
        newest = self.waiting.get(release.pod.uid)
        is_late = keeper is not self.keeper
        if is_late and newest is not None and newest.version != release.pod.version:
            self.outcomes["fenced"] += 1
            if not self._is_fenced:
                release = type(release)(newest, release.nodes, release.label)
        super()._let_go(keeper, release)

    def _looked_again(self, keeper: Keeper, pod: Any, newest: Any) -> None:
        if keeper is self._stopped:  # the refusal lies in its socket, and it asks afterwards
            self._later(1.0, LATE, partial(self._look_again, keeper, pod))
        else:
            super()._looked_again(keeper, pod, newest)

    def _untell(self, uid: str) -> None:
        super()._untell(uid)
        self._told_other.discard(uid)

    # What both learn.

    @contextmanager
    def _as(self, keeper: Keeper) -> Iterator[None]:
        """Let the other one learn: what the leader was told of stays as it is."""
        leader = self.keeper
        before = dict(self.nowhere), self.full_list, self._learnt
        self.keeper, self.state = keeper, keeper.state
        self.told, self._told_other = self._told_other, self.told
        try:
            yield
        finally:
            self.keeper, self.state = leader, leader.state
            self.told, self._told_other = self._told_other, self.told
            self.nowhere, self.full_list, self._learnt = before

    def _let_both(self, learn: Callable[[], None]) -> None:
        if self.other not in {None, self._stopped, *self._ahead}:
            with self._as(self.other):
                learn()
        if self.keeper not in self._ahead:
            learn()

    def _learn_without(self, keeper: Keeper, happen: Callable[[], None]) -> None:
        """Let what is older than a keeper's list be learnt by the other one only."""
        before = self._ahead
        self._ahead = (*before, keeper)
        happen()
        self._ahead = before

    def _catch_up(self, keeper: Keeper) -> None:
        """Let a keeper list what there is; what is on its way is older than that."""
        self._events = [
            (moment, number, partial(self._learn_without, keeper, happen))
            if happen.func.__name__.startswith("_learn")
            else (moment, number, happen)
            for moment, number, happen in self._events
        ]
        with self._as(keeper):
            self._list_nodes(keeper)
            super()._list(is_cached=False)
            reports = [self._report(name) for name in self.kubelets]
            keeper.state.reports_listed(reports, self.now)
            keeper.reported(self.kubelets)

    def _learn(self, kind: str, pod: Any) -> None:
        self._let_both(partial(super()._learn, kind, pod))

    def _learn_lookup(self, uid: str) -> None:
        self._let_both(partial(super()._learn_lookup, uid))

    def _learn_node(self, name: str, *, is_there: bool) -> None:
        self._let_both(partial(super()._learn_node, name, is_there=is_there))

    def _learn_report(self, report: Any, name: str) -> None:
        self._let_both(partial(super()._learn_report, report, name))

    def _learn_no_report(self, name: str) -> None:
        self._let_both(partial(super()._learn_no_report, name))

    def _list(self, *, is_cached: bool) -> None:
        # each draws a list of its own of those that a server remembers
        self._let_both(partial(super()._list, is_cached=is_cached))

    def _tick(self) -> None:
        if self.other is not None and self.other is not self._stopped:
            self.other.state.tick(self.now)
            self.other.stand_by(self.now)
            self.other.state.has_unreported(self.now)
        super()._tick()

    @property
    def kept(self) -> int:
        """How many things both keep."""
        count = super().kept
        if self.other is not None:
            with self._as(self.other):
                count += super().kept
        return count
