"""Counts what members of a PodGroup were offered, until they are bound or the group is given up.

kube-scheduler (gate GenericWorkload, 1.37) asks for the members of a PodGroup one after another,
and binds them once enough have passed. What it means to bind nobody is told of: without more, each
member would be offered what the one before was offered. So each is offered one node, which counts
as taken for the next ones. A node that a member holds is offered to equal members only: in which
order they will be bound, and so admitted, is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.cluster.node_totals import demand_key
from alignup.kubernetes.groups import POD_GROUP
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.scheduler.cluster_state import ClusterState

TAKEN: Final = "NUMA: another node was chosen for this member of its group"
MIXED: Final = "NUMA: the node was chosen for members of its group that ask for something else"

# Seconds after which a group, of which no member was asked for, was given up.
_GIVEN_UP: Final = 3.0

_Key = tuple[str, str, str]


class GroupHolds:
    """What members of groups hold that are not bound yet.

    The argument is the state, in which a hold counts as a pod that is bound.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        # By group, the members that hold something, by uid, and when one was asked for last.
        self._holds: dict[_Key, dict[str, WatchedPod]] = {}
        self._asked_at: dict[_Key, float] = {}

    def begin(self, pod: WatchedPod, now: float) -> None:
        """Take in that a pod is asked for: one that holds something begins a new round."""
        self.end_old(now)
        key = _key_of(pod)
        if key is None:
            return

        if pod.pod.uid in self._holds.get(key, ()):
            self._end([key])
        self._asked_at[key] = now

    def offer(
        self,
        pod: WatchedPod,
        names: Sequence[str],
        scores: Callable[[WatchedPod, Sequence[str]], Sequence[int]],
        now: float,
    ) -> dict[str, str] | None:
        """Hold one of the nodes that would take a member; return why it is none of the others.

        None: the pod is a member of no such group, and may have each of them. Where no node takes
        the member, its group is given up.
        """
        key = _key_of(pod)
        if key is None:
            return None

        holds = self._holds.setdefault(key, {})
        demand = demand_key(pod.pod)
        mixed = {held.node for held in holds.values() if demand_key(held.pod) != demand}
        refused = {name: MIXED if name in mixed else TAKEN for name in names}
        open_names = [name for name in names if name not in mixed]
        if not open_names:
            self._end([key])
            return refused

        ranks = scores(pod, open_names)
        name = open_names[max(range(len(ranks)), key=ranks.__getitem__)]
        held_pod = replace(pod, node=name)
        self._state.assume(held_pod, now)
        holds[pod.pod.uid] = held_pod
        del refused[name]
        return refused

    def end(self, uid: str) -> None:
        """Let go what one member holds: it is bound now, and judged anew, or is gone."""
        for key, holds in list(self._holds.items()):
            if uid in holds:
                self._let_go([holds.pop(uid)])
                if not holds:
                    del self._holds[key]

    def end_old(self, now: float) -> None:
        """Let go what groups hold of which no member was asked for lately."""
        self._end([key for key, moment in self._asked_at.items() if moment < now - _GIVEN_UP])

    def _end(self, keys: Iterable[_Key]) -> None:
        for key in keys:
            self._asked_at.pop(key, None)
            self._let_go(self._holds.pop(key, {}).values())

    def _let_go(self, pods: Iterable[WatchedPod]) -> None:
        """Count pods no more that were not bound meanwhile; that makes no room for others.

        A scheduler that was told of room would try the group again, in vain, for ever.
        """
        changed = set(self._state.changed)
        for pod in reversed(list(pods)):
            self._state.assumed_wrongly(pod.pod.uid)
        self._state.changed.intersection_update(changed)


def _key_of(pod: WatchedPod) -> _Key | None:
    membership = pod.membership
    return membership.key if membership is not None and membership.kind == POD_GROUP else None
