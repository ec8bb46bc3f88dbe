"""Places: nodes that are kept for pods which are let go, or soon will be, until they are bound.

A node takes only equal pods until it has reported those that were given a place there, and those
that were bound to it: in which order its kubelet gets them, and whether one that was there ended
before, is not known, and makes no difference among copies. `Places` knows the former,
`UnadmittedPods` the latter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from alignup.cluster.node_totals import demand_key
from alignup.control_plane.gates.waiting_pods import CANDIDATES
from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from alignup.control_plane.gates.scheduler_nodes import SchedulerNodes
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod
    from alignup.control_plane.scheduler.cluster_state import ClusterState

# Seconds after which a scheduler that refuses a pod on its node may have been late with an event.
LATE_SECONDS: Final = 3.0

# Nodes that are a pod's place at most, when one after another turned out wrong.
MOST_NODES: Final = 6

# Of so many nodes one may be kept by pods of a namespace of which their scheduler knows more, and
# by those of all namespaces; `MOST_NODES` always may.
_NODES_FOR_EACH_OF_NAMESPACE: Final = 8
_NODES_FOR_EACH_OF_ALL: Final = 2


class Place:
    """The nodes that are kept for a pod until it is bound.

    Attributes:
        newest: the pod as it was seen last.
        labelled: those of them that it reaches by its label.
        is_written: whether the pod says that it is to get this place with its group.
        is_open: whether the pod was seen without its gate.
        refused_at: since when its scheduler says that no node takes it; None: it does not.
        is_unsure: whether its scheduler may refuse it everywhere, by what the keeper does not see.
    """

    __slots__ = (
        "is_open",
        "is_unsure",
        "is_written",
        "labelled",
        "newest",
        "nodes",
        "pod",
        "refused_at",
    )

    def __init__(self, pod: WaitingPod) -> None:
        self.pod = pod
        self.newest = pod
        self.nodes: tuple[str, ...] = ()
        self.labelled: set[str] = set()
        self.is_written = False
        self.is_open = False
        self.refused_at: float | None = None
        self.is_unsure = bool(pod.unseen)

    def uid_on(self, name: str) -> str:
        """Return under which uid the pod counts on one of its nodes: its own on the first one."""
        if name == self.nodes[0]:
            return self.pod.uid
        return f"{self.pod.uid}@{name}"

    def opened(self, pod: WaitingPod, now: float) -> None:
        """Take in that its pod was seen without the gate, still unbound."""
        self.pod = pod
        self.is_open = True
        if not pod.is_refused:
            self.refused_at = None
        elif self.refused_at is None:
            self.refused_at = now


class Places:
    """All places, by the uids of their pods.

    A pod counts on each node of its place, in the state and in the sums, from the moment in which
    the node becomes part of it until the place ends. It has one place at most.

    Attributes:
        suspect: the names of nodes of which a place may have turned out wrong.
        misplaced: the uids of pods that need another node than they have.
    """

    def __init__(self, state: ClusterState, nodes: SchedulerNodes) -> None:
        self.suspect: set[str] = set()
        self.misplaced: set[str] = set()
        self._state = state
        self._nodes = nodes
        self._by_uid: dict[str, Place] = {}
        # By node, the kinds of the pods of which it is a place, by uid.
        self._due: dict[str, dict[str, Kind]] = {}
        # By node, how many unsure places it is part of: of each namespace, and of all.
        self._unsure: dict[str, Counter[str]] = {}
        self._all_unsure: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[Place]:
        """Yield all places as of now."""
        return iter(list(self._by_uid.values()))

    def __contains__(self, uid: object) -> bool:
        return uid in self._by_uid

    def __getitem__(self, uid: str) -> Place:
        return self._by_uid[uid]

    def get(self, uid: str) -> Place | None:
        """Return the place of a pod; None: it has none."""
        return self._by_uid.get(uid)

    @property
    def uids(self) -> Iterable[str]:
        """The uids of all pods that have one."""
        return self._by_uid.keys()

    # How a place begins and ends.

    def give(self, pod: WaitingPod, names: Sequence[str], now: float) -> Place | None:
        """Keep nodes for a pod; None: one of them does not take it after all."""
        place = Place(pod)
        self._by_uid[pod.uid] = place
        for name in names:
            self.extend(place, name, now)
            if not self._is_admitted(place, name):
                self.end(pod.uid)
                return None

        return place

    def restore(self, pod: WaitingPod, names: Iterable[str], now: float) -> Place:
        """Keep the nodes of a pod that has no gate any more, whatever they are like."""
        place = Place(pod)
        place.is_open = True
        self._by_uid[pod.uid] = place
        for name in names:
            self.extend(place, name, now)

        self.suspect.update(place.nodes)
        return place

    def extend(self, place: Place, name: str, now: float) -> None:
        """Make a node part of a pod's place."""
        place.nodes = (*place.nodes, name)
        self._due.setdefault(name, {})[place.pod.uid] = place.pod.kind
        if place.is_unsure:
            self._unsure.setdefault(place.pod.watched.pod.namespace, Counter())[name] += 1
            self._all_unsure[name] += 1
        self._assume(place, name, now)

    def end(self, uid: str, bound_to: str = "") -> None:
        """End a place: its pod is bound, or will not be. A pod without one is no error.

        Args:
            uid: that of the pod.
            bound_to: the node on which it stays counted; empty: none.
        """
        place = self._by_uid.get(uid)
        if place is None:
            return

        for name in place.nodes:
            if not (name == bound_to and place.uid_on(name) == uid):
                self._take_back(uid, name)

            due = self._due.get(name, {})
            due.pop(uid, None)
            if not due:
                self._due.pop(name, None)
            if place.is_unsure:
                self._leave_unsure(place.pod.watched.pod.namespace, name)
            self._nodes.changed.add(name)

        del self._by_uid[uid]
        self.misplaced.discard(uid)

    def _leave_unsure(self, namespace: str, name: str) -> None:
        """Count a node for one unsure place less."""
        of_namespace = self._unsure[namespace]
        for counter in (of_namespace, self._all_unsure):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

        if not of_namespace:
            del self._unsure[namespace]

    def may_have_one(self, pod: WaitingPod) -> bool:
        """Return whether a pod that waits may keep any node: see `unsure_room`."""
        return not pod.unseen or self.unsure_room(pod) > 0

    def unsure_room(self, pod: WaitingPod) -> int:
        """Return how many more nodes pods such as this one may keep in its namespace.

        Such are those of which their schedulers know more.

        Nobody can tell whether one will ever be bound, and no place can be taken back from a
        pod without its gate: so they keep a part of the nodes at most, and the pods of a namespace
        a part of that. Some nodes each namespace may have, whatever others keep.
        """
        namespace = pod.watched.pod.namespace
        nodes = len(self._nodes.objects)
        count = len(self._unsure.get(namespace, ()))
        own = max(MOST_NODES, nodes // _NODES_FOR_EACH_OF_NAMESPACE)
        of_all = max(MOST_NODES, nodes // _NODES_FOR_EACH_OF_ALL)
        left = max(of_all - len(self._all_unsure), CANDIDATES - count)
        return max(0, min(own - count, left))

    # What happens to nodes meanwhile.

    def assume_all(self, now: float) -> None:
        """Count all pods on their nodes, as of now: a list of what is bound does not have them."""
        for place in self._by_uid.values():
            for name in place.nodes:
                self._assume(place, name, now)

    def vanish(self, uid: str, now: float) -> None:
        """Take in that a pod is missing that was let go: it may have been bound meanwhile."""
        place = self._by_uid.get(uid)
        if place is None:
            return

        for name in place.nodes:
            uid_there = place.uid_on(name)
            if uid_there in self._state.assumed:
                self._nodes.load(name).remove(self._state.pods[uid_there].pod)
                self._state.pod_vanished(uid_there, now)

    def take_back_all(self, name: str) -> list[str]:
        """Count the pods of which a node is a place no more there; return their uids."""
        uids = list(self._due.get(name, ()))
        for uid in uids:
            self._take_back(uid, name)
        return uids

    def assume_again(self, uids: Sequence[str], name: str, now: float) -> None:
        """Count those pods there again, after what was bound to the node meanwhile."""
        for uid in uids:
            self._assume(self._by_uid[uid], name, now)
        if uids:
            self.suspect.add(name)

    def look(self, now: float) -> None:
        """Suspect what no event tells of: of any place, and of one that a scheduler refuses."""
        self.suspect_all()
        for uid, place in self._by_uid.items():
            if place.refused_at is not None and now >= place.refused_at + LATE_SECONDS:
                place.refused_at = now
                self.misplaced.add(uid)

    def suspect_all(self) -> None:
        """Take any place to be wrong perhaps."""
        self.suspect.update(self._due)

    def find_misplaced(self) -> set[str]:
        """Look at the suspect nodes; return the uids of pods that are misplaced only now."""
        suspect = self.suspect
        self.suspect = set()
        fresh = {
            uid
            for name in suspect & self._due.keys()
            for uid in self._due[name]
            if uid not in self.misplaced and self._is_all_wrong(self._by_uid[uid])
        }
        self.misplaced |= fresh
        return fresh

    def _is_all_wrong(self, place: Place) -> bool:
        return all(self.is_wrong(place, name) for name in place.nodes)

    def is_wrong(self, place: Place, name: str) -> bool:
        """Return whether a pod can no longer go to a node that is its place."""
        if name not in self._nodes.objects:
            return True
        if name not in self._state.members:
            return False

        if not self._is_admitted(place, name):
            return True
        return bool(self._nodes.refusal_beside_others(place.pod, name))

    # What may come to a node.

    def is_expecting(self, name: str) -> bool:
        """Return whether a node is a place of some pod."""
        return name in self._due

    def are_copies(self, kind: Kind, name: str) -> bool:
        """Return whether all pods of which a node is a place are equal to those of a kind."""
        return bool(self.copies_among([kind], name))

    def copies_among(self, kinds: list[Kind], name: str) -> list[Kind]:
        """Return of some kinds those of which `are_copies` is so."""
        for due in self._due.get(name, {}).values():
            kinds = [kind for kind in kinds if kind is due or kind.demand == due.demand]
        return kinds

    def _is_admitted(self, place: Place, name: str) -> bool:
        """Return whether a node, as far as it is known exactly, has the pod."""
        member = self._state.members[name]
        return not isinstance(member, ExactMember) or member.node.manager.has_pod(
            place.uid_on(name)
        )

    def _assume(self, place: Place, name: str, now: float) -> None:
        watched = place.pod.watched
        pod = watched.pod
        uid = place.uid_on(name)
        if uid != pod.uid:
            pod = pod.renamed(uid=uid)
        if uid not in self._state.pods:
            self._nodes.load(name).add(pod)

        self._state.assume(replace(watched, pod=pod, node=name), now)

    def _take_back(self, uid: str, name: str) -> None:
        """Count a pod no more on a node that is a part of its place."""
        uid_there = self._by_uid[uid].uid_on(name)
        counted = self._state.pods.get(uid_there)
        if counted is not None and uid_there in self._state.assumed:
            self._state.assumed_wrongly(uid_there)
            if uid_there not in self._state.pods:
                self._nodes.load(name).remove(counted.pod)


class UnadmittedPods:
    """The pods that were bound and may not be admitted by their kubelets yet.

    A pod is taken to be admitted once its node has reported it, or after `SLOWEST_REPORT`.
    """

    def __init__(self, state: ClusterState, nodes: SchedulerNodes) -> None:
        self._state = state
        self._nodes = nodes
        # By node, the uids of these pods, and when each was bound.
        self._bound_at: dict[str, dict[str, float]] = {}
        # Nodes that were passed over until they report their last pods.
        self._passed_over: set[str] = set()

    def bound(self, uid: str, name: str, now: float) -> None:
        """Take in that a pod was bound to a node, or seen there for the first time."""
        self._bound_at.setdefault(name, {})[uid] = now

    def reported(self, names: Iterable[str]) -> None:
        """Take in that nodes have reported; the state knows what."""
        self._nodes.changed |= self._passed_over.intersection(names)
        self._passed_over.difference_update(names)

    def forget_old(self, now: float) -> None:
        """Take pods that were bound long ago to be admitted."""
        moment = now - SLOWEST_REPORT
        for name, bound_at in list(self._bound_at.items()):
            later = {uid: at for uid, at in bound_at.items() if at >= moment}
            if len(later) == len(bound_at):
                continue

            self._bound_at[name] = later
            if not later:
                del self._bound_at[name]
            if name in self._passed_over:
                self._passed_over.discard(name)
                self._nodes.changed.add(name)

        # of these all pods have ended, and a node that is gone reports no more
        settled = self._passed_over - self._bound_at.keys()
        self._nodes.changed |= settled
        self._passed_over -= settled

    def are_copies(self, kind: Kind, name: str) -> bool:
        """Return whether all those of a node are equal to pods of a kind.

        A node of which they are not is asked anew when it reports.
        """
        bound_at = self._bound_at.get(name)
        if not bound_at:
            return True

        member = self._state.members[name]
        unreported = member.unsettled
        for uid in bound_at.keys() & set(unreported):
            if demand_key(member.pods[uid].pod) != kind.demand:
                self._passed_over.add(name)
                return False

        if not unreported:
            del self._bound_at[name]
        return True
