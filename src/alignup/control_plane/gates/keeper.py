"""Decides which of the pods that wait behind the gate get which node.

Pure and synchronous: events come as calls, time as an argument, and what is to be done comes back
as records. Nothing here reads a clock or a socket.

What holds:

- A place counts as bound from the moment in which it is given, until the pod is bound or gone.
- A node takes only equal pods until it has reported those that were given a place there, and those
  that were bound to it: in which order its kubelet gets them, and whether one that was there ended
  before, is not known, and makes no difference among copies.
- The sums of **all** bound pods count, also of those that hold nothing exclusive, and whatever else
  a scheduler's filters say of the node (`scheduler_rules`).
- A pod gets no place on a node that would refuse it if it were empty: pods that are there now may
  end before its kubelet gets the new one.
- No place is given on a node whose report lacks a pod that the API server lists: the scheduler has
  not heard of that pod's end.
- Only nodes that changed are asked for the pods that wait: all others have refused them.
- A place that turns out wrong stays with its pod, which cannot be unpinned, and the pod gets
  another node beside it by a label of its own.
- Members of a group get places together, which are written into all of them before the first gate
  goes (`waiting_groups`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.node_totals import demand_key
from alignup.cluster.pod_groups import GroupPlan, place_group
from alignup.control_plane.gates.node_affinity import required_terms
from alignup.control_plane.gates.scheduler_rules import NodeLoad, refusal
from alignup.control_plane.gates.waiting_groups import GroupRoom, WaitingGroups
from alignup.control_plane.gates.waiting_pods import PLACE_LABEL, WaitingPod, asks_exclusively
from alignup.control_plane.gates.waiting_queue import KindTable, WaitingQueue
from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.errors import AlignupError
from alignup.records import Record, replace

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.waiting_groups import WaitingGroup
    from alignup.control_plane.gates.waiting_pods import Kind
    from alignup.control_plane.scheduler.cluster_state import ClusterState
    from alignup.kubernetes.node_fit import NodeObject

# Seconds that a pod waits before a node may be kept for it.
PATIENCE: Final = 30.0

# Of a node whose last pods are not known to be admitted.
UNREPORTED: Final = "node(s) have not reported all their pods"

# Nodes that a pod is let go to of which its scheduler knows more than the keeper does.
_CANDIDATES: Final = 3

# Nodes that are a pod's place at most, when one after another turned out wrong.
_MOST_NODES: Final = 6

# Of so many nodes one may be kept for a pod that has waited long; one always may.
_NODES_FOR_EACH_KEPT: Final = 50

# Seconds after which a scheduler that refuses a pod on its node may have been late with an event.
_LATE_SECONDS: Final = 3.0

# Seconds between two looks at what no event tells of.
_LOOK_SECONDS: Final = 1.0

# Seconds after which a pod whose patch was refused for what it says is tried as it is.
_REFUSED_SECONDS: Final = 30.0


class Release(Record):
    """Take the gate off a pod, and require its nodes in the same patch.

    Attributes:
        nodes: where it has a place, one or several to choose from; empty: it needs none.
        label: the key of the label that gives it another node later; empty: there will be none.
    """

    pod: WaitingPod
    nodes: tuple[str, ...] = ()
    label: str = ""


class Label(Record):
    """Set, or take away, the label by which a node is a place of one pod."""

    node: str
    key: str
    is_set: bool


class Plan(Record):
    """Write into a pod that keeps its gate which node it is to get with its group.

    Attributes:
        node: its name; empty: the group waits, and what was written is taken away.
    """

    pod: WaitingPod
    node: str


Decision = Release | Label | Plan


class Place:
    """The nodes that are kept for a pod until it is bound.

    Attributes:
        newest: the pod as it was seen last.
        labelled: those of them that it reaches by its label.
        is_written: whether the pod says that it is to get this place with its group.
        is_open: whether the pod was seen without its gate.
        refused_at: since when its scheduler says that no node takes it; None: it does not.
    """

    __slots__ = ("is_open", "is_written", "labelled", "newest", "nodes", "pod", "refused_at")

    def __init__(self, pod: WaitingPod, nodes: tuple[str, ...]) -> None:
        self.pod = pod
        self.newest = pod
        self.nodes = nodes
        self.labelled: set[str] = set()
        self.is_written = False
        self.is_open = False
        self.refused_at: float | None = None


class Counts:
    """How often something was done, for metrics."""

    __slots__ = ("judged", "mended", "placed", "refused", "released")

    def __init__(self) -> None:
        self.placed = 0
        self.released = 0
        self.mended = 0
        self.refused = 0
        self.judged = 0


class Keeper:
    """Everything but the API server.

    Args:
        state: the cluster; all that it learns of pods and nodes comes through here.
        patience: seconds after which a node may be kept for a pod.
        relabels: let a pod get another node, by its label, where its place turns out wrong.
    """

    def __init__(
        self, state: ClusterState, *, patience: float = PATIENCE, relabels: bool = True
    ) -> None:
        self.state = state
        self.queue = WaitingQueue()
        self.groups = WaitingGroups()
        # By uid, what was given and is not bound yet.
        self.places: dict[str, Place] = {}
        self.counts = Counts()
        self._patience = patience
        self._relabels = relabels

        self._nodes: dict[str, NodeObject] = {}
        self._loads: dict[str, NodeLoad] = {}
        self._totals: Counter[str] = Counter()

        # By uid, gated pods that need no place, and whether their release is under way.
        self._placeless: dict[str, tuple[WaitingPod, bool]] = {}
        # By uid, the version of a pod whose patch was refused, and when it is tried again as it is.
        self._parked: dict[str, tuple[WaitingPod, float]] = {}
        # By uid, the version of a member from which a plan is being taken away.
        self._unplanned: dict[str, str] = {}

        # By node, the kinds of the pods of which it is a place, by uid.
        self._due: dict[str, dict[str, Kind]] = {}
        # By node, the pods that its kubelet may not have admitted yet, and when they were bound.
        self._last_pods: dict[str, dict[str, float]] = {}
        # Nodes that were passed over until they report their last pods.
        self._unreported: set[str] = set()
        # Nodes on which more may fit than before.
        self._changed: set[str] = set()
        # Nodes of which a place may have turned out wrong.
        self._suspect: set[str] = set()
        # The kinds for which not all nodes were asked, and those that all of them have refused, but
        # for those that changed.
        self._unasked: set[Kind] = set()
        self._refused_kinds = KindTable()
        # Pods that need another node than they have.
        self._misplaced: set[str] = set()
        # By node, the pod that it is kept for.
        self._kept: dict[str, WaitingPod] = {}
        # Those of them where room was made for it.
        self._reserved: dict[str, WaitingPod] = {}
        self._looked = float("-inf")
        # Whether places come from here, and not from a keeper that leads or has led.
        self._decides = False

        # By the key of a label of places, the nodes that have it.
        self._labels: dict[str, set[str]] = {}
        # What was asked of labels and is not seen yet, and what of that was refused.
        self._labelling: dict[tuple[str, str], bool] = {}
        self._refused_labels: set[tuple[str, str]] = set()

    # Nodes.

    @property
    def nodes(self) -> Mapping[str, NodeObject]:
        """The nodes that are there, by name."""
        return self._nodes

    def nodes_listed(self, nodes: Sequence[NodeObject], now: float) -> None:
        """Take in all Node objects at one moment."""
        names = {node.name for node in nodes}
        for name in [name for name in self._nodes if name not in names]:
            self.node_gone(name, now)
        for node in nodes:
            self.node_seen(node, now)

    def node_seen(self, node: NodeObject, now: float) -> None:
        """Take in a Node object that is new or changed."""
        name = node.name
        before = self._nodes.get(name)
        self._nodes[name] = node
        self.state.node_seen(name, node.labels)
        self._note_labels(name, node.labels, now)
        if before == node:
            return

        self._totals.update(node.allocatable)
        if before is not None:
            self._totals.subtract(before.allocatable)

        self._changed.add(name)
        self._suspect.add(name)

    def node_gone(self, name: str, now: float) -> None:
        """Take in that a Node object was deleted."""
        before = self._nodes.pop(name, None)
        if before is not None:
            self._totals.subtract(before.allocatable)

        self.state.node_gone(name)
        self._note_labels(name, {}, now)
        self._suspect.add(name)

    def _note_labels(self, name: str, labels: Mapping[str, str], now: float) -> None:
        """Take in which pods' labels a node has.

        Until this keeper decides itself, another one has given the places that it sees.
        """
        keys = {key for key in labels if key.startswith(PLACE_LABEL)}
        for key, names in list(self._labels.items()):
            if key not in keys and name in names:
                names.discard(name)
                self._labelling.pop((name, key), None)
                if not names:
                    del self._labels[key]

        for key in keys:
            self._labels.setdefault(key, set()).add(name)
            if self._labelling.get((name, key)):
                del self._labelling[name, key]

            place = self.places.get(key.removeprefix(PLACE_LABEL))
            if place is not None and not self._decides:
                place.labelled.add(name)
                if name not in place.nodes:
                    self._keep(place, name, now)

    def reported(self, names: Iterable[str]) -> None:
        """Take in that nodes have reported; the state knows what."""
        self._changed |= self._unreported.intersection(names)
        self._unreported.difference_update(names)

    # Pods.

    def pods_listed(
        self,
        pods: Iterable[WatchedPod | WaitingPod],
        now: float,
        began: float | None = None,
        *,
        is_cached: bool = False,
    ) -> None:
        """Take in all pods that have not ended at one moment; arguments as for `ClusterState`."""
        bound = []
        waiting = []
        for pod in pods:
            if isinstance(pod, WaitingPod):
                waiting.append(pod)
            elif pod.node:
                bound.append(pod)

        self._forget_all_but({pod.pod.uid for pod in bound}, {pod.uid for pod in waiting}, now)
        for place in self.places.values():
            self._assume(place, now)

        before = dict(self.state.pods)
        self.state.pods_listed(bound, now, began, is_cached=is_cached)
        after = self.state.pods
        for uid, watched in before.items():
            if after.get(uid) is not watched:
                self._load_of(watched.node).remove(watched.pod)
                self._changed.add(watched.node)
        for uid, watched in after.items():
            if before.get(uid) is not watched:
                self._load_of(watched.node).add(watched.pod)
                self._last_pods.setdefault(watched.node, {})[uid] = now

        for waiting_pod in waiting:
            self._waiting_seen(waiting_pod, now)
        self._members_begin(bound)
        self._suspect.update(self._due)

    def _forget_all_but(self, bound: set[str], waiting: set[str], now: float) -> None:
        """Forget what is neither bound nor waits any more, and end places of what is bound."""
        own_uids = [*self.places, *self._placeless, *self._parked]
        own_uids += [*(pod.uid for pod in self.queue), *self.groups.uids]
        for uid in own_uids:
            if uid not in bound and uid not in waiting:
                self.pod_vanished(uid, now)

        for uid in bound.intersection(self.places):
            self._settle(uid)

    def pod_seen(self, pod: WatchedPod | WaitingPod, now: float) -> None:
        """Take in a pod that is new or changed."""
        if isinstance(pod, WaitingPod):
            self._waiting_seen(pod, now)
        elif pod.node:
            self._bound_seen(pod, now)
        else:
            self.pod_gone(pod.pod.uid, now)

    def pod_gone(self, uid: str, now: float) -> None:
        """Take in that a pod has ended, or was never bound; an unknown one is no error."""
        self._forget_pod(uid)
        self.state.pod_gone(uid, now)

    def pod_vanished(self, uid: str, now: float) -> None:
        """Take in that a pod was deleted, or is not selected any more.

        Its kubelet may be at it still: see `ClusterState.pod_vanished`. One that was let go and is
        missing may have been bound meanwhile.
        """
        place = self.places.get(uid)
        if place is not None:
            for name in place.nodes:
                uid_there = _uid_on(place, name)
                if uid_there in self.state.assumed:
                    self._load_of(name).remove(self.state.pods[uid_there].pod)
                    self.state.pod_vanished(uid_there, now)

        self._forget_pod(uid)
        self.state.pod_vanished(uid, now)

    def _forget_pod(self, uid: str) -> None:
        """Let a pod wait no longer, and count for no scheduler."""
        self._forget_waiting(uid)
        self._give_up(uid)
        self.groups.gone(uid)

        watched = self.state.pods.get(uid)
        if watched is not None:
            self._load_of(watched.node).remove(watched.pod)
            self._changed.add(watched.node)

    def _bound_seen(self, pod: WatchedPod, now: float) -> None:
        uid = pod.pod.uid
        self._forget_waiting(uid)
        self._members_begin([pod])

        place = self.places.get(uid)
        if place is not None:
            self._settle(uid, pod.node)
            self._last_pods.setdefault(pod.node, {})[uid] = now

        before = self.state.pods.get(uid)
        if before is not None and before.node == pod.node and _are_copies(before, pod):
            self.state.pod_seen(pod, now)
            return

        if before is not None:
            self._load_of(before.node).remove(before.pod)

        # its kubelet gets it before those that are still to be bound
        due = list(self._due.get(pod.node, ())) if before is None else []
        for due_uid in due:
            self._take_back(due_uid, pod.node)

        self.state.pod_seen(pod, now)
        self._load_of(pod.node).add(pod.pod)
        self._last_pods.setdefault(pod.node, {})[uid] = now
        for due_uid in due:
            self._assume_on(self.places[due_uid], pod.node, now)
        if due:
            self._suspect.add(pod.node)

    def _waiting_seen(self, pod: WaitingPod, now: float) -> None:
        uid = pod.uid
        place = self.places.get(uid)
        if place is not None:
            self._placed_seen(place, pod, now)
            return

        if uid in self.state.pods:  # as it was before its binding: no server takes one back
            return

        if not pod.waits:
            self._forget_waiting(uid)
            self._member_waits_no_more(pod)
            if pod.place and not pod.is_gated and not pod.watched.is_leaving:
                self._restore(pod, now)
            return

        parked = self._parked.get(uid)
        if parked is not None and parked[0].version == pod.version:
            return
        self._parked.pop(uid, None)

        membership = pod.watched.membership
        if membership is not None and uid not in self.queue and uid not in self._placeless:
            self.groups.add(membership, pod, now)
            return

        if not pod.needs_place:
            self._placeless[uid] = pod, self._placeless.get(uid, (pod, False))[1]
            return

        self._enqueue(pod, now)

    def _enqueue(self, pod: WaitingPod, since: float) -> None:
        before = self.queue.add(pod, since)
        if pod.kind not in self._refused_kinds:
            self._unasked.add(pod.kind)

        # where less important ones of its kind were refused for another one's sake
        priority = pod.watched.priority
        self._changed.update(
            name for name, kept_for in self._kept.items() if kept_for.watched.priority < priority
        )
        if before is not None:
            self._forget_kind(before.kind)

    def _placed_seen(self, place: Place, pod: WaitingPod, now: float) -> None:
        """Take in a pod that has a place: how far it is."""
        if pod.place and not place.is_open and set(pod.place) != set(place.nodes):
            # another keeper was faster
            self._give_up(pod.uid)
            self._restore(pod, now)
            return

        if pod.watched.is_leaving or (not pod.is_gated and not pod.place):
            # it will not come, or a user has taken the gate off
            self._give_up(pod.uid)
            self._member_waits_no_more(pod)
            return

        place.newest = pod
        if pod.is_gated:  # the patch is under way
            place.is_written = bool(pod.planned) and pod.planned == place.nodes[0]
            return

        place.pod = pod
        place.is_open = True
        self._member_waits_no_more(pod)
        if not pod.is_refused:
            place.refused_at = None
        elif place.refused_at is None:
            place.refused_at = now

    def _restore(self, pod: WaitingPod, now: float) -> None:
        """Keep the place that a pod has by what stands in it."""
        place = Place(pod, ())
        place.is_open = True
        self.places[pod.uid] = place
        labelled = self._labels.get(pod.label, set())
        for name in (*pod.place, *sorted(labelled.difference(pod.place))):
            self._keep(place, name, now)

        place.labelled = set(labelled)
        self._suspect.update(place.nodes)

    def _forget_waiting(self, uid: str) -> None:
        self._placeless.pop(uid, None)
        self._parked.pop(uid, None)
        pod = self.queue.remove(uid)
        if pod is None:
            return

        self._forget_kind(pod.kind)
        for name in [name for name, kept_for in self._kept.items() if kept_for.uid == uid]:
            del self._kept[name]
            self._changed.add(name)

    def _forget_kind(self, kind: Kind) -> None:
        """Let all nodes be asked again for a kind of which no pod waits now."""
        if kind not in self.queue.kinds:
            self._refused_kinds.discard(kind)
            self._unasked.discard(kind)

    # Places.

    def _keep(self, place: Place, name: str, now: float) -> None:
        """Make a node part of a pod's place."""
        place.nodes = (*place.nodes, name)
        self._due.setdefault(name, {})[place.pod.uid] = place.pod.kind
        self._assume_on(place, name, now)

    def _assume(self, place: Place, now: float) -> None:
        for name in place.nodes:
            self._assume_on(place, name, now)

    def _assume_on(self, place: Place, name: str, now: float) -> None:
        watched = place.pod.watched
        pod = watched.pod
        uid = _uid_on(place, name)
        if uid != pod.uid:
            pod = pod.renamed(uid=uid)
        if uid not in self.state.pods:
            self._load_of(name).add(pod)

        self.state.assume(replace(watched, pod=pod, node=name), now)

    def _take_back(self, uid: str, name: str) -> None:
        """Count a pod no more on a node that is a part of its place."""
        held_uid = _uid_on(self.places[uid], name)
        held = self.state.pods.get(held_uid)
        if held is not None and held_uid in self.state.assumed:
            self.state.assumed_wrongly(held_uid)
            if held_uid not in self.state.pods:
                self._load_of(name).remove(held.pod)

    def _settle(self, uid: str, bound_to: str = "") -> None:
        """End a place: the pod is bound, or will not be; what it was bound to stays counted."""
        place = self.places[uid]
        for name in place.nodes:
            if not (name == bound_to and _uid_on(place, name) == uid):
                self._take_back(uid, name)

            due = self._due.get(name, {})
            due.pop(uid, None)
            if not due:
                self._due.pop(name, None)
            self._changed.add(name)

        del self.places[uid]
        self._misplaced.discard(uid)

    def _give_up(self, uid: str) -> None:
        if uid in self.places:
            self._settle(uid)

    # What came of decisions.

    def refused(self, pod: WaitingPod, now: float, *, for_good: bool = False) -> None:
        """Take in that the API server did not let a pod go.

        Args:
            pod: as it was decided about.
            now: seconds.
            for_good: it is not that the pod has changed meanwhile: it is tried again later.
        """
        self.counts.refused += 1
        group = self.groups.of(pod.uid)
        if group is not None and self._is_tried_again(group, pod, now, for_good=for_good):
            return

        place = self.places.get(pod.uid)
        newest, _ = self._placeless.pop(pod.uid, (pod, True))
        if place is not None:
            newest = place.newest
            self._give_up(pod.uid)

        if newest.version != pod.version:
            self._waiting_seen(newest, now)
        else:
            seconds = _REFUSED_SECONDS if for_good else _LATE_SECONDS
            self._parked[pod.uid] = pod, now + seconds

    def label_refused(self, label: Label) -> None:
        """Take in that the API server did not change a label: it is asked again soon."""
        self._refused_labels.add((label.node, label.key))

    def stand_by(self) -> None:
        """Take in that another keeper decides, or may do so."""
        self._decides = False

    def begin_term(self, now: float) -> None:
        """Forget what this process asked for when it led before: it may have come to nothing."""
        self.stand_by()
        for group in self.groups:
            self._take_group_back(group, now)
            group.releasing.clear()

        self._unplanned.clear()
        self._labelling.clear()
        self._placeless = {uid: (pod, False) for uid, (pod, _) in self._placeless.items()}
        for place in [place for place in self.places.values() if not place.is_open]:
            self._give_up(place.pod.uid)
            self._waiting_seen(place.newest, now)

    @property
    def gated(self) -> list[WaitingPod]:
        """The pods that somebody may be about to let go."""
        pods = [*self.queue, *self.groups.waiting]
        pods += [pod for pod, _ in (*self._placeless.values(), *self._parked.values())]
        pods += [place.newest for place in self.places.values() if not place.is_open]
        return pods

    # Decisions.

    def decide(self, now: float) -> list[Decision]:
        """Return what is to be done now."""
        self._decides = True
        if now >= self._looked + _LOOK_SECONDS:
            self._looked = now
            self._look(now)

        decisions = self._go_on_with_groups(now)
        for uid, (pod, is_under_way) in self._placeless.items():
            if not is_under_way:
                self._placeless[uid] = pod, True
                self.counts.released += 1
                decisions.append(Release(pod))

        # a place may free a node that was kept for its pod; what is still to do then can wait
        for _ in range(2):
            changed = self.state.changed | self._changed
            self.state.changed.clear()
            self._changed.clear()
            self._mend(changed, now)
            decisions += self._give(changed, now)
            if not self._changed:
                break

        return self._labels_to_write() + decisions + self._plans_to_take_away()

    def _look(self, now: float) -> None:
        """Look at what no event tells of."""
        self._suspect.update(self._due)
        self._forget_last_pods(now - SLOWEST_REPORT)
        for refused in self._refused_labels:
            self._labelling.pop(refused, None)
        self._refused_labels.clear()

        for uid, place in self.places.items():
            if place.refused_at is not None and now >= place.refused_at + _LATE_SECONDS:
                place.refused_at = now
                self._misplaced.add(uid)

        for uid, (pod, moment) in list(self._parked.items()):
            if now >= moment:
                del self._parked[uid]
                self._waiting_seen(pod, now)

        self._keep_for_overdue(now)

    def _forget_last_pods(self, moment: float) -> None:
        """Take pods that were bound before a moment to be admitted."""
        for name, bound_at in list(self._last_pods.items()):
            later = {uid: at for uid, at in bound_at.items() if at >= moment}
            if len(later) == len(bound_at):
                continue

            self._last_pods[name] = later
            if not later:
                del self._last_pods[name]
            if name in self._unreported:
                self._unreported.discard(name)
                self._changed.add(name)

    def _labels_to_write(self) -> list[Decision]:
        """Return what labels of nodes lack, or have too much."""
        wishes = {
            (name, place.pod.label)
            for place in self.places.values()
            for name in place.labelled & self._nodes.keys()
        }
        present = {(name, key) for key, names in self._labels.items() for name in names}
        decisions: list[Decision] = []
        for name, key in sorted(wishes ^ present):
            is_set = (name, key) in wishes
            if self._labelling.get((name, key)) is not is_set:
                self._labelling[name, key] = is_set
                decisions.append(Label(name, key, is_set))

        return decisions

    def _mend(self, changed: set[str], now: float) -> None:
        """Give another node to pods whose place turned out wrong."""
        suspect = self._suspect
        self._suspect = set()
        fresh = set()
        for name in suspect & self._due.keys():
            for uid in self._due[name]:
                place = self.places[uid]
                if uid not in self._misplaced and all(
                    self._is_wrong(place, node) for node in place.nodes
                ):
                    fresh.add(uid)

        self._misplaced |= fresh
        if not self._relabels:
            return

        for uid in sorted(self._misplaced):
            place = self.places[uid]
            if not place.is_open or len(place.nodes) >= _MOST_NODES:
                continue

            names = None if uid in fresh or place.refused_at == now else changed
            chosen = self._choose(place.pod, names, 1, place.nodes)
            for name in chosen:
                self.counts.mended += 1
                self._misplaced.discard(uid)
                self._keep(place, name, now)
                place.labelled.add(name)

    def _is_wrong(self, place: Place, name: str) -> bool:
        """Return whether a pod can no longer go to a node that is its place."""
        member = self.state.members.get(name)
        node = self._nodes.get(name)
        if member is None or node is None:
            return node is None

        uid = _uid_on(place, name)
        if isinstance(member, ExactMember) and not member.node.manager.has_pod(uid):
            return True

        pod = place.pod.watched.pod
        load = self._load_of(name)
        load.remove(pod)
        try:
            constrained = place.pod.kind.constrained
            return bool(refusal(constrained, _with_label(node, place.pod), load))
        finally:
            load.add(pod)

    def _give(self, changed: set[str], now: float) -> list[Decision]:
        """Give places to pods that wait, in their order, as long as there are any."""
        possible: dict[Kind, set[str] | None] = dict.fromkeys(self._unasked)
        for name in changed:
            for kind in self._kinds_that_fit(name):
                names = possible.setdefault(kind, set())
                if names is not None:
                    names.add(name)

        decisions = self._give_to_groups(changed, possible, now)
        while (place := self._next_place(possible, now)) is not None:
            decisions.append(self._release(place))

        # an equal pod that stands before it may have been refused the node that is kept for it
        for name, pod in list(self._kept.items()):
            if pod.uid in self.queue and name in changed and self._takes_now(pod, name):
                place = self._place(pod, [name], now)
                if place is not None:
                    decisions.append(self._release(place))

        return decisions

    def _give_to_groups(
        self, changed: set[str], possible: dict[Kind, set[str] | None], now: float
    ) -> list[Decision]:
        """Give places to groups, and before each to the pods that are more important."""
        if not self.groups.waiting:
            return []

        for name in changed:
            self.groups.room_on(self._free(name))

        decisions: list[Decision] = []
        refused_shapes: set[object] = set()
        for group in self.groups.to_place(self.queue.charged):
            above = group.priority
            while (place := self._next_place(possible, now, above)) is not None:
                decisions.append(self._release(place))

            if group.shape in refused_shapes:
                continue

            decisions += self._place_group(group, now)
            if group.is_refused:
                refused_shapes.add(group.shape)

        return decisions

    def _next_place(
        self, possible: dict[Kind, set[str] | None], now: float, above: int | None = None
    ) -> Place | None:
        """Give a place to the first pod that gets one; None: none does.

        Args:
            possible: by kind, the nodes to ask, None: all; kinds that these refuse are removed.
            now: seconds.
            above: leave pods alone that have no higher priority than that.
        """
        for pod in self.queue.firsts(possible):
            if above is not None and pod.watched.priority <= above:
                break
            if pod.kind not in possible:
                continue

            # terms of its own take one name each, or a label
            is_narrow = not self._relabels and required_terms(pod.affinity)
            most = _CANDIDATES if pod.unseen and not is_narrow else 1
            chosen = self._choose(pod, possible[pod.kind], most)
            place = self._place(pod, chosen, now) if chosen else None
            if place is not None:
                return place

            del possible[pod.kind]
            if not chosen:
                self._refused_kinds.add(pod.kind)
                self._unasked.discard(pod.kind)

        return None

    def _kinds_that_fit(self, name: str) -> list[Kind]:
        """Return of the kinds that wait those of which a node might take a pod now."""
        if (
            name not in self.state.members
            or name in self.state.uncertain
            or not self._is_in_step(name)
        ):
            return []

        kinds = self._refused_kinds.fitting(self._free(name))
        for due in self._due.get(name, {}).values():
            kinds = [kind for kind in kinds if kind is due or kind.demand == due.demand]

        if not kinds:
            return []

        self.counts.judged += len(kinds)
        pods = {kind: kind.pod for kind in kinds}
        return self.state.view.taken_by_one(name, pods, self.state.strategy)

    def _free(self, name: str) -> dict[str, int]:
        """Return what the sums of a node's pods leave; nothing, where it may take no pod."""
        node = self._nodes.get(name)
        if node is None:
            return {}

        amounts = self._load_of(name).amounts
        return {
            resource: amount - amounts[resource] for resource, amount in node.allocatable.items()
        }

    def _choose(
        self, pod: WaitingPod, names: set[str] | None, most: int, without: Sequence[str] = ()
    ) -> list[str]:
        """Return nodes that take a pod now, the best one first.

        Args:
            pod: the pod.
            names: the nodes to ask; None: all.
            most: how many to return.
            without: nodes that are not returned.
        """
        view = self.state.view
        self.counts.judged += 1
        try:
            if names is None:
                answer = view.verdicts(pod.watched.pod, self.state.strategy)
                all_names = view.names
                ordered = [all_names[number] for number in answer.best().tolist()]
            else:
                asked = sorted(name for name in names if name in view.members)
                scores = view.judge_on(pod.watched.pod, asked, self.state.strategy)
                ordered = sorted(scores, key=lambda name: -scores[name])
        except AlignupError:  # it asks for more than anything here can be judged by
            return []

        chosen: list[str] = []
        for name in ordered:
            if name not in without and self.takes(pod, name):
                chosen.append(name)
                if len(chosen) == most:
                    break

        return chosen

    def takes(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node that would align a pod may be its place."""
        node = self._nodes.get(name)
        if node is None or name in self.state.uncertain:
            return False

        kept_for = self._kept.get(name)
        if (
            kept_for is not None
            and not _is_same_or_member(kept_for, pod)
            and kept_for.watched.priority >= pod.watched.priority
        ):
            return False

        if not self._has_only_copies(pod, name):
            return False

        if not self._is_in_step(name):
            return False
        if refusal(pod.kind.constrained, _with_label(node, pod), self._load_of(name)):
            return False

        return self._fits_alone(pod, name)

    def why_not(self, pod: WaitingPod, name: str) -> str:
        """Return why a node that would align a pod is not its place, in a few words; empty: it is.

        What a scheduler refuses comes in its words.
        """
        node = self._nodes.get(name)
        if node is None:
            return "node(s) had no Node object"

        words = refusal(pod.kind.constrained, _with_label(node, pod), self._load_of(name))
        if words:
            return words
        if name in self._kept and not _is_same_or_member(self._kept[name], pod):
            return "node(s) were kept for a pod that has waited longer"
        return "" if self.takes(pod, name) else UNREPORTED

    def _fits_alone(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node would align a pod if no other one were there.

        Some pods fit only beside others, which keep their first container from what the next one
        needs. These may end before the kubelet gets the pod.
        """
        view = self.state.view
        helps = view.empty_admits(pod.watched.pod, self.state.strategy)
        return bool(helps[view.numbers([name])[0]])

    def _is_in_step(self, name: str) -> bool:
        """Return whether a node has not reported the end of a pod before the API server did.

        The scheduler has not heard of it yet.
        """
        listed = self.state.by_node.get(name)
        return not listed or listed.keys() <= self.state.members[name].pods.keys()

    def _has_only_copies(self, pod: WaitingPod, name: str) -> bool:
        """Return whether all pods that a node has not reported yet are equal to one."""
        due = self._due.get(name, {})
        if any(kind is not pod.kind and kind.demand != pod.kind.demand for kind in due.values()):
            return False

        last_pods = self._last_pods.get(name)
        if not last_pods:
            return True

        member = self.state.members[name]
        unreported = member.unsettled
        for uid in last_pods.keys() & set(unreported):
            if demand_key(member.pods[uid].pod) != pod.kind.demand:
                self._unreported.add(name)
                return False

        if not unreported:
            del self._last_pods[name]
        return True

    def _place(self, pod: WaitingPod, names: Sequence[str], now: float) -> Place | None:
        """Give a place to a pod that waits; None: a node does not take it after all."""
        place = Place(pod, ())
        self.places[pod.uid] = place
        for name in names:
            self._keep(place, name, now)
            member = self.state.members[name]
            if isinstance(member, ExactMember) and not member.node.manager.has_pod(
                _uid_on(place, name)
            ):
                self._give_up(pod.uid)
                return None

        self._forget_waiting(pod.uid)
        self.queue.charge(pod.watched.pod.namespace, self._part_of(pod))
        self.counts.placed += 1
        return place

    def _part_of(self, pod: WaitingPod) -> float:
        """Return the part of the cluster that a pod takes, of the resource it takes most of."""
        return max(
            (
                amount / self._totals[resource]
                for resource, amount in pod.kind.requests.items()
                if self._totals[resource] > 0
            ),
            default=0.0,
        )

    def _release(self, place: Place) -> Release:
        pod = place.pod
        self.counts.released += 1
        if not self._relabels:
            return Release(pod, place.nodes)

        if required_terms(pod.affinity):  # such a pod reaches its nodes by the label only
            place.labelled = set(place.nodes)
        return Release(pod, place.nodes, pod.label)

    # Groups.

    def _members_begin(self, pods: Iterable[WatchedPod]) -> None:
        """Take in that those of some pods that are members are bound, or have no gate."""
        for pod in pods:
            if pod.membership is not None:
                is_exclusive = asks_exclusively(pod.pod)
                self.groups.begins(pod.membership, pod.pod.uid, is_exclusive=is_exclusive)

    def _member_waits_no_more(self, pod: WaitingPod) -> None:
        """Take in that a member is leaving, has another gate, or none."""
        if pod.is_gated or pod.watched.is_leaving:
            self.groups.gone(pod.uid)
        else:
            self._members_begin([pod.watched])

    def _go_on_with_groups(self, now: float) -> list[Decision]:
        """Do the next step for groups that have places, or that wait no more for others."""
        decisions: list[Decision] = []
        for group in self.groups:
            if group.plan:
                decisions += self._go_on_with_plan(group, now)
            elif group.goes_alone:
                decisions += self._let_members_go_alone(group, now)
            elif group.is_written:
                self._adopt_plan(group, now)
                if group.plan:
                    decisions += self._go_on_with_plan(group, now)

            decisions += self._release_again(group)

        return decisions

    def _go_on_with_plan(self, group: WaitingGroup, now: float) -> list[Decision]:
        """Take the gates off once the plan is seen in all members.

        As long as all gates are on, it is taken back where a node is none any more.
        """
        places = [self.places.get(uid) for uid, name in group.plan.items() if name]
        is_wrong = any(place is None or place.pod.uid in self._misplaced for place in places)
        is_written = all(place is not None and place.is_written for place in places)
        if is_written and not is_wrong:
            # the last moment at which nothing has been done yet
            is_wrong = any(place and self._is_wrong(place, place.nodes[0]) for place in places)

        if is_wrong:
            self._take_group_back(group, now)
        if is_wrong or not is_written:
            return []

        group.releasing = set(group.plan)
        group.to_release = {uid for uid, name in group.plan.items() if name}
        for uid in group.plan.keys() - group.to_release:
            pod, _ = self._placeless[uid]
            self._placeless[uid] = pod, False

        group.plan = {}
        return []

    def _release_again(self, group: WaitingGroup) -> list[Decision]:
        """Take gates off that are still on although their pods have places."""
        decisions: list[Decision] = []
        for uid in sorted(group.to_release):
            place = self.places.get(uid)
            if place is not None and not place.is_open:
                place.pod = place.newest
                decisions.append(self._release(place))

        group.to_release = set()
        return decisions

    def _let_members_go_alone(self, group: WaitingGroup, now: float) -> list[Decision]:
        """Let members that wait for nobody go for themselves, to the nodes that stand in them."""
        decisions: list[Decision] = []
        for pod in list(group.waiting.values()):
            since = self.groups.alone(group, pod.uid)
            if not pod.needs_place:
                self._placeless[pod.uid] = pod, False
                continue

            self._enqueue(pod, since)
            if pod.planned and self._takes_now(pod, pod.planned):
                place = self._place(pod, [pod.planned], now)
                if place is not None:
                    group.releasing.add(pod.uid)
                    decisions.append(self._release(place))

        return decisions

    def _takes_now(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node takes a pod now, by all that counts."""
        return name in self._choose(pod, {name}, 1)

    def _adopt_plan(self, group: WaitingGroup, now: float) -> None:
        """Go on with a plan that stands in the members, if their nodes still take them."""
        plan = {}
        members = sorted(group.waiting.values(), key=lambda pod: pod.watched.pod.name)
        for pod in members:
            if not pod.needs_place:
                plan[pod.uid] = ""
            elif pod.planned:
                if not self._takes_now(pod, pod.planned) or not self._place(
                    pod, [pod.planned], now
                ):
                    break
                plan[pod.uid] = pod.planned
                self.places[pod.uid].is_written = True
        else:
            self._begin_plan(group, plan)
            return

        for uid in plan:
            self._give_up(uid)

    def _begin_plan(self, group: WaitingGroup, plan: dict[str, str]) -> None:
        for uid, name in plan.items():
            if not name:
                self._placeless[uid] = group.waiting[uid], True
        self.groups.planned(group, plan)

    def _take_group_back(self, group: WaitingGroup, now: float) -> None:
        """Let a group wait again that has places and all its gates."""
        plan = group.plan
        group.plan = {}
        for uid, name in plan.items():
            pod: WaitingPod | None = None
            if name and uid in self.places:
                pod = self.places[uid].newest
                self._give_up(uid)
            elif not name:
                pod, _ = self._placeless.pop(uid, (None, False))
            if pod is not None:
                self._waiting_seen(pod, now)

        group.is_refused = False

    def _is_tried_again(
        self, group: WaitingGroup, pod: WaitingPod, now: float, *, for_good: bool
    ) -> bool:
        """Return whether a member, of which a patch was refused, needs nothing more."""
        uid = pod.uid
        if uid in group.waiting:  # nothing was given: a plan was to be taken away
            return True

        if uid in group.plan:
            self._take_group_back(group, now)
            newest = group.waiting.get(uid)
            if newest is not None and newest.version == pod.version:
                self.groups.alone(group, uid)
            return newest is None or newest.version != pod.version

        place = self.places.get(uid)
        if place is None or for_good or uid not in group.releasing:
            return False

        # the gates of its group go off: what has changed in it makes no difference
        is_newer = place.newest.version != pod.version and place.newest.waits
        if is_newer:
            group.to_release.add(uid)
        return is_newer

    def _plans_to_take_away(self) -> list[Decision]:
        """Return what stands in members that have no place after all."""
        stale = [pod for pod in self.groups.waiting if pod.planned]
        before = self._unplanned
        self._unplanned = {pod.uid: pod.version for pod in stale}
        return [Plan(pod, "") for pod in stale if before.get(pod.uid) != pod.version]

    def _place_group(self, group: WaitingGroup, now: float) -> list[Decision]:
        """Give places to as many members as have to run together, or to none."""
        members = {uid: pod for uid, pod in group.waiting.items() if pod.needs_place}
        placeless = group.waiting.keys() - members.keys()
        plan = self.plan_group(members)
        group.fitting = len(placeless) + len(plan.places), len(group.waiting)
        group.gained = 0
        group.left_out = members[plan.left_out[0].uid] if plan.left_out else None
        if group.fitting[0] < group.needed:
            group.is_refused = True
            return []

        nodes = dict.fromkeys(placeless, "")
        for place in plan.places:
            pod = members[place.pod.uid]
            if self._place(pod, [place.node], now) is None:
                for uid in nodes:
                    self._give_up(uid)
                return []
            nodes[pod.uid] = place.node
            self.places[pod.uid].is_written = pod.planned == place.node

        self._begin_plan(group, nodes)
        return [
            Plan(members[uid], name)
            for uid, name in nodes.items()
            if name and members[uid].planned != name
        ]

    def plan_group(self, members: Mapping[str, WaitingPod]) -> GroupPlan:
        """Return places for members on copies of the nodes."""
        pods = [member.watched.pod for member in members.values()]
        cluster = self.state.view.cluster
        if not cluster.nodes or not pods:
            return GroupPlan(left_out=tuple(pods))

        self.counts.judged += 1
        room = GroupRoom(len(cluster), members, self._capacities)
        try:
            return place_group(
                cluster,
                pods,
                room,
                strategy=self.state.strategy,
                kind_of=lambda pod: members[pod.uid].kind,
            )
        except AlignupError:  # one asks for more than anything here can be judged by
            return GroupPlan(left_out=tuple(pods))

    def _capacities(self, pod: WaitingPod) -> dict[int, int]:
        """Return, by the number of a node known exactly, how many copies of a pod it may take."""
        view = self.state.view
        answer = view.verdicts(pod.watched.pod, self.state.strategy)
        names = view.names
        count = len(view.cluster.nodes)
        return {
            number: self._most_on(pod, names[number])
            for number in np.flatnonzero(answer.admitted[:count]).tolist()
            if self.takes(pod, names[number])
        }

    def _most_on(self, pod: WaitingPod, name: str) -> int:
        """Return how many copies of a pod the sums of a node leave room for."""
        if pod.watched.pod.constraints.host_ports:
            return 1

        free = self._free(name)
        return min(pod.kind.most_in(free), free.get("pods", 0) - self._load_of(name).pods)

    # Nodes that are kept for pods that have waited long.

    def _keep_for_overdue(self, now: float) -> None:
        """Keep nodes for the first pods that have waited long, and give back all others."""
        overdue = self.queue.overdue(now, self._patience)
        of_group = self._keep_for_group(now)
        if not overdue and not self._kept and not of_group:
            return

        waiting = {pod.uid: pod for pod in self.queue} if self._reserved else {}
        self._reserved = {
            name: waiting[pod.uid] for name, pod in self._reserved.items() if pod.uid in waiting
        }
        kept = {**of_group, **self._reserved}
        most = len(kept) + max(1, len(self._nodes) // _NODES_FOR_EACH_KEPT)
        by_uid = {pod.uid: name for name, pod in self._kept.items()}
        served = {pod.uid for pod in kept.values()}
        emptiest = sorted(self.state.view.names, key=self._cpus_in_use)
        hopeless: set[Kind] = set()
        for pod in overdue:
            if len(kept) == most:
                break
            if pod.kind in hopeless or pod.uid in served:
                continue

            name = by_uid.get(pod.uid, "")
            if name in kept or not self._would_take(pod, name):
                name = self._first_for(pod, emptiest, kept)
            if name:
                kept[name] = pod
            else:
                hopeless.add(pod.kind)

        owners = {name: pod.uid for name, pod in self._kept.items()}
        new_owners = {name: pod.uid for name, pod in kept.items()}
        self._changed.update(name for name, _ in owners.items() ^ new_owners.items())
        self._kept = kept

    def _keep_for_group(self, now: float) -> dict[str, WaitingPod]:
        """Return nodes to keep for the first group that has waited long: as many as it needs.

        There are none where it would not fit even if they were empty. By the node, a member.
        """
        group = self.groups.overdue(now - self._patience, self.queue.charged)
        if group is None:
            return {}

        kept: dict[str, WaitingPod] = {}
        members = [pod for pod in group.waiting.values() if pod.needs_place]
        left = group.needed - (len(group.waiting) - len(members))
        before = {name for name, pod in self._kept.items() if _is_same_or_member(pod, members[0])}
        names = sorted(
            self.state.view.names, key=lambda name: (name not in before, self._cpus_in_use(name))
        )
        for kind in dict.fromkeys(pod.kind for pod in members):
            equal = [pod for pod in members if pod.kind is kind]
            wanted = min(left, len(equal))
            left -= wanted
            helps = self.state.view.empty_admits(kind.pod, self.state.strategy)
            for name in names:
                if wanted <= 0:
                    break
                if name in kept or name in self._reserved:
                    continue
                if helps[self.state.view.numbers([name])[0]]:
                    count = self._copies_on_empty(equal[0], name, wanted)
                    wanted -= count
                    if count:
                        kept[name] = equal[0]

            if wanted > 0:
                return {}

        return kept

    def _copies_on_empty(self, pod: WaitingPod, name: str, most: int) -> int:
        """Return how many copies of a pod a node would take without other pods, up to a number."""
        member = self.state.members[name]
        node = self._nodes.get(name)
        if node is None or not isinstance(member, ExactMember):
            return 0

        copy = member.template.copy()
        load = NodeLoad()
        for count in range(most):
            replica = pod.watched.pod.renamed(uid=f"{pod.uid}/{count}")
            if refusal(pod.kind.constrained, node, load) or not copy.admit(replica).admitted:
                return count
            load.add(replica)

        return most

    def nodes_to_clear(
        self, pod: WaitingPod, names: Container[str] | None = None
    ) -> Iterator[tuple[ExactMember, NodeObject, NodeLoad]]:
        """Yield nodes that are known exactly and would take a pod if no other one were there.

        Those on which another pod is expected, or that are kept for one, are left out.

        Args:
            pod: the pod.
            names: of the nodes to look at; None: all.
        """
        view = self.state.view
        try:
            helps = view.empty_admits(pod.watched.pod, self.state.strategy)
        except AlignupError:
            return

        for index in np.flatnonzero(helps).tolist():
            name = view.names[index]
            member = self.state.members[name]
            if (
                (names is None or name in names)
                and isinstance(member, ExactMember)
                and name not in self.state.uncertain
                and name not in self._due
                and self._kept.get(name, pod).uid == pod.uid
                and self._would_take(pod, name)
            ):
                yield member, self._nodes[name], self._load_of(name)

    def reserve(self, name: str, pod: WaitingPod) -> None:
        """Keep a node for a pod that waits, as long as it does: others go there for it."""
        self._reserved[name] = pod
        self._kept[name] = pod
        self._changed.add(name)

    def give_back(self, name: str) -> None:
        """Keep a node no more; one that is not kept is no error."""
        self._reserved.pop(name, None)
        if self._kept.pop(name, None) is not None:
            self._changed.add(name)

    def _cpus_in_use(self, name: str) -> tuple[int, str]:
        return self._load_of(name).amounts["cpu"], name

    def _would_take(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node would take a pod if no other one were there, by its sums."""
        node = self._nodes.get(name)
        return node is not None and not refusal(pod.kind.constrained, node, NodeLoad())

    def _first_for(
        self, pod: WaitingPod, names: Sequence[str], kept: Mapping[str, WaitingPod]
    ) -> str:
        """Return the first node that would take a pod if no other one were there; empty: none.

        Nodes that are kept already are left out.
        """
        view = self.state.view
        try:
            helps = view.empty_admits(pod.watched.pod, self.state.strategy)
        except AlignupError:
            return ""

        for index in np.flatnonzero(helps[view.numbers(names)]).tolist():
            name = names[index]
            if name not in kept and self._would_take(pod, name):
                return name

        return ""

    def _load_of(self, name: str) -> NodeLoad:
        load = self._loads.get(name)
        if load is None:
            load = self._loads[name] = NodeLoad()
        return load


def _is_same_or_member(kept_for: WaitingPod, pod: WaitingPod) -> bool:
    """Return whether a node that is kept for one pod is kept for the other one, too."""
    membership = kept_for.watched.membership
    other = pod.watched.membership
    is_of_group = membership is not None and other is not None and membership.key == other.key
    return is_of_group or kept_for.uid == pod.uid


def _uid_on(place: Place, name: str) -> str:
    """Return under which uid a pod counts on a node of its place: its own on the first one."""
    if name == place.nodes[0]:
        return place.pod.uid
    return f"{place.pod.uid}@{name}"


def _with_label(node: NodeObject, pod: WaitingPod) -> NodeObject:
    """Return a node as it is once it has the label of a pod that was let go, which asks for it."""
    if pod.is_gated:
        return node
    return replace(node, labels={**node.labels, pod.label: "true"})


def _are_copies(before: WatchedPod, pod: WatchedPod) -> bool:
    """Return whether two records of a pod request the same, as those of one reader mostly do."""
    if before.pod.containers is pod.pod.containers:
        return True
    return demand_key(before.pod) == demand_key(pod.pod)
