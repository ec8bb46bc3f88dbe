"""Decides which of the pods that wait behind the gate get which node.

Pure and synchronous: events come as calls, time as an argument, and what is to be done comes back
as records. Nothing here reads a clock or a socket. What holds is said by those who see to it:

- `places`: nodes that pods are on their way to, and what may come there beside them;
- `node_choice`: which nodes may be a place;
- `kept_nodes`: nodes for those who have waited long;
- `gated_pods`: where each pod stands that is not bound;
- `place_giver`: who is next, and what happens where a place turns out wrong;
- `group_places`: members of a group get places together, written into all of them before the first
  gate goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.cluster.node_totals import demand_key
from alignup.control_plane.gates.decisions import Counts
from alignup.control_plane.gates.gated_pods import GatedPods
from alignup.control_plane.gates.group_places import GroupPlaces
from alignup.control_plane.gates.kept_nodes import PATIENCE, KeptNodes
from alignup.control_plane.gates.node_choice import NodeChoice
from alignup.control_plane.gates.place_giver import PlaceGiver
from alignup.control_plane.gates.place_labels import PlaceLabels
from alignup.control_plane.gates.places import Places, UnadmittedPods
from alignup.control_plane.gates.scheduler_nodes import SchedulerNodes
from alignup.control_plane.gates.waiting_pods import WaitingPod
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.decisions import Decision, Label, Release
    from alignup.control_plane.scheduler.cluster_state import ClusterState
    from alignup.kubernetes.node_fit import NodeObject

# Seconds between two looks at what no event tells of.
_LOOK_SECONDS: Final = 1.0


class Keeper:
    """Everything but the API server.

    Each event goes to the parts that it concerns, in an order in which they agree afterwards: the
    sums of `nodes` are those of the pods that `state` counts, and a pod that is bound has no place
    and waits nowhere.

    Args:
        state: the cluster; all that it learns of pods and nodes comes through here.
        patience: seconds after which a node may be kept for a pod.
        relabels: let a pod get another node, by its label, where its place turns out wrong.
    """

    def __init__(
        self, state: ClusterState, *, patience: float = PATIENCE, relabels: bool = True
    ) -> None:
        self.state = state
        self.counts = Counts()
        self.nodes = SchedulerNodes()
        self.labels = PlaceLabels()
        self.places = Places(state, self.nodes)
        self.unadmitted = UnadmittedPods(state, self.nodes)
        self.kept = KeptNodes(state, self.nodes, self.places, patience)
        self.choice = NodeChoice(
            state, self.nodes, self.places, self.unadmitted, self.kept, self.counts
        )
        self.pods = GatedPods(state, self.places, self.kept, self.labels)
        self.queue = self.pods.queue
        self.groups = self.pods.groups
        self.giver = PlaceGiver(
            self.nodes,
            self.places,
            self.kept,
            self.choice,
            self.pods,
            self.counts,
            relabels=relabels,
        )
        self.group_places = GroupPlaces(
            state,
            self.nodes,
            self.places,
            self.kept,
            self.choice,
            self.pods,
            self.giver,
            self.counts,
        )

        self._looked = float("-inf")
        # Whether places come from here, and not from a keeper that leads or has led.
        self._decides = False

    # Nodes.

    def nodes_listed(self, nodes: Sequence[NodeObject], now: float) -> None:
        """Take in all Node objects at one moment."""
        names = {node.name for node in nodes}
        for name in [name for name in self.nodes.objects if name not in names]:
            self.node_gone(name)
        for node in nodes:
            self.node_seen(node, now)

    def node_seen(self, node: NodeObject, now: float) -> None:
        """Take in a Node object that is new or changed."""
        name = node.name
        has_changed = self.nodes.seen(node)
        self.state.node_seen(name, node.labels)
        self._note_labels(node, now)
        if has_changed:
            self.places.suspect.add(name)

    def node_gone(self, name: str) -> None:
        """Take in that a Node object was deleted."""
        self.nodes.gone(name)
        self.state.node_gone(name)
        self.labels.node_gone(name)
        self.places.suspect.add(name)

    def _note_labels(self, node: NodeObject, now: float) -> None:
        """Take in which pods' labels a node has.

        Until this keeper decides itself, another one has given the places that it sees.
        """
        name = node.name
        for uid in self.labels.seen(name, node.labels, node.version):
            place = self.places.get(uid)
            if place is not None and not self._decides:
                place.labelled.add(name)
                if name not in place.nodes:
                    self.places.extend(place, name, now)

    def reported(self, names: Iterable[str]) -> bool:
        """Take in that nodes have reported; the state knows what.

        Return whether something else may be decided now: half of the reports only say of a pod
        what was expected.
        """
        names = list(names)
        self.unadmitted.reported(names)
        return any(name in self.state.changed or name in self.nodes.changed for name in names)

    @property
    def waits_for_changes(self) -> bool:
        """Whether something else may be decided once a node has more to give, or less.

        Mostly nothing waits, or only pods that would have no place on empty nodes either.
        """
        return self.pods.hopes or bool(self.places.suspect or self.places.misplaced or self.labels)

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
        self.places.assume_all(now)

        before = dict(self.state.pods)
        self.state.pods_listed(bound, now, began, is_cached=is_cached)
        after = self.state.pods
        for uid, watched in before.items():
            if after.get(uid) is not watched:
                self.nodes.load(watched.node).remove(watched.pod)
                self.nodes.changed.add(watched.node)
        for uid, watched in after.items():
            if before.get(uid) is not watched:
                self.nodes.load(watched.node).add(watched.pod)
                self.unadmitted.bound(uid, watched.node, now)

        for waiting_pod in waiting:
            self.pods.seen(waiting_pod, now)
        self.pods.members_begin(bound)
        self.places.suspect_all()

    def _forget_all_but(self, bound: set[str], waiting: set[str], now: float) -> None:
        """Forget what is neither bound nor waits any more, and end places of what is bound."""
        for uid in self.pods.uids:
            if uid in bound:  # another keeper has let it go, and no event said so
                self.pods.forget(uid)
            elif uid not in waiting:
                self.pod_vanished(uid, now)

        for uid in bound.intersection(self.places.uids):
            self.places.end(uid)

    def is_news(self, pod: WatchedPod | WaitingPod) -> bool:
        """Return whether something else may be decided once a pod is seen.

        Most events of a bound pod only tell how far its kubelet is.
        """
        if isinstance(pod, WaitingPod) or pod.pod.uid in self.places:
            return True

        before = self.state.pods.get(pod.pod.uid)
        return before is None or pod != replace(before, since=pod.since)

    def pod_seen(self, pod: WatchedPod | WaitingPod, now: float) -> None:
        """Take in a pod that is new or changed."""
        if isinstance(pod, WaitingPod):
            self.pods.seen(pod, now)
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
        self.places.vanish(uid, now)
        self._forget_pod(uid)
        self.state.pod_vanished(uid, now)

    def _forget_pod(self, uid: str) -> None:
        """Let a pod wait no longer, and count for no scheduler."""
        self.pods.forget(uid)
        self.places.end(uid)
        self.groups.gone(uid)

        watched = self.state.pods.get(uid)
        if watched is not None:
            self.nodes.load(watched.node).remove(watched.pod)
            self.nodes.changed.add(watched.node)

    def _bound_seen(self, pod: WatchedPod, now: float) -> None:
        uid = pod.pod.uid
        self.pods.forget(uid)
        self.pods.members_begin([pod])
        if uid in self.places:
            self.places.end(uid, pod.node)
            self.unadmitted.bound(uid, pod.node, now)

        before = self.state.pods.get(uid)
        if before is not None and before.node == pod.node and _are_copies(before, pod):
            self.state.pod_seen(pod, now)
            return

        if before is not None:
            self.nodes.load(before.node).remove(before.pod)

        # its kubelet gets it before those that are still to be bound
        due = self.places.take_back_all(pod.node) if before is None else []
        self.state.pod_seen(pod, now)
        self.nodes.load(pod.node).add(pod.pod)
        self.unadmitted.bound(uid, pod.node, now)
        self.places.assume_again(due, pod.node, now)

    # What came of decisions.

    def refused(self, pod: WaitingPod, now: float, *, for_good: bool = False) -> None:
        """Take in that the API server did not let a pod go.

        Args:
            pod: as it was decided about.
            now: seconds.
            for_good: it is not that the pod has changed meanwhile: it is tried again later.
        """
        self.counts.refused += 1
        if not self.group_places.is_tried_again(pod, now, for_good=for_good):
            self.pods.refused(pod, now, for_good=for_good)

    def label_refused(self, label: Label, *, is_outdated: bool = False) -> None:
        """Take in that the API server did not change a label: it is asked again soon.

        Arguments as for `PlaceLabels.refused`.
        """
        self.labels.refused(label, is_outdated=is_outdated)

    def has_other_label(self, release: Release) -> bool:
        """Return whether a node has the label of a pod that is not to go there."""
        return not self.labels.nodes_with(release.label) <= set(release.nodes)

    def stand_by(self, now: float) -> None:
        """Take in that another keeper decides, or may do so, again and again as long as it does.

        What only decisions use up is kept no longer than it can matter: pods come and go, and
        nodes with other names, for weeks before this keeper leads.
        """
        self._decides = False
        self.unadmitted.forget_old(now)
        nodes = self.nodes.objects.keys() | self.state.members.keys()
        for names in (self.nodes.changed, self.state.changed, self.places.suspect):
            names.intersection_update(nodes)

    def begin_term(self, now: float) -> None:
        """Forget what this process asked for when it led before: it may have come to nothing.

        Of places that leaves what stands in their pods, and in the labels of nodes.
        """
        self.stand_by(now)
        self.group_places.begin_anew(now)
        self.labels.forget_requests()
        self.pods.forget_releases()
        for place in self.places:
            self.places.end(place.pod.uid)
            self.pods.seen(place.newest, now)

    def nodes_for_late_labels(self) -> list[str]:
        """Return the nodes on which a label does harm that an earlier leader has asked for."""
        return self.nodes.that_may_take(self.giver.pods_for_late_labels())

    # Decisions.

    def decide(self, now: float) -> list[Decision]:
        """Return what is to be done now."""
        self._decides = True
        if now >= self._looked + _LOOK_SECONDS:
            self._looked = now
            self._look(now)

        decisions = self.group_places.go_on(now)
        placeless = self.pods.releases()
        self.counts.released += len(placeless)
        decisions += placeless

        # a place may free a node that was kept for its pod; what is still to do then can wait
        for _ in range(2):
            changed = self.state.changed | self.nodes.changed
            self.state.changed.clear()
            self.nodes.changed.clear()
            self.giver.mend(changed, now)
            decisions += self._give(changed, now)
            if not self.nodes.changed:
                break

        return [*self._labels_to_write(), *decisions, *self.group_places.plans_to_take_away()]

    def _look(self, now: float) -> None:
        """Look at what no event tells of."""
        self.unadmitted.forget_old(now)
        self.labels.ask_refused_again()
        self.places.look(now)
        self.pods.try_parked_again(now)
        self.kept.keep_for_overdue(self.queue, self.groups, now)

    def _give(self, changed: set[str], now: float) -> list[Decision]:
        """Give places to those that wait, groups before single pods of their priority."""
        possible = self.giver.possible(changed)
        return [
            *self.group_places.give(changed, possible, now),
            *self.giver.give_to_queue(possible, now),
            *self.giver.give_kept(changed, now),
        ]

    def _labels_to_write(self) -> list[Label]:
        """Return what labels of nodes lack, or have too much."""
        return self.labels.to_write(
            (name, place.pod.label)
            for place in self.places
            for name in place.labelled & self.nodes.objects.keys()
        )


def _are_copies(before: WatchedPod, pod: WatchedPod) -> bool:
    """Return whether two records of a pod request the same, as those of one reader mostly do."""
    if before.pod.containers is pod.pod.containers:
        return True
    return demand_key(before.pod) == demand_key(pod.pod)
