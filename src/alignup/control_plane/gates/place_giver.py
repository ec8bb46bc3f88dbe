"""Gives nodes to pods: to those in the queue, and other ones where a place turned out wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.control_plane.gates.decisions import Release
from alignup.control_plane.gates.node_affinity import required_terms
from alignup.control_plane.gates.places import MOST_NODES
from alignup.control_plane.gates.waiting_pods import CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.control_plane.gates.decisions import Counts
    from alignup.control_plane.gates.gated_pods import GatedPods
    from alignup.control_plane.gates.kept_nodes import KeptNodes
    from alignup.control_plane.gates.node_choice import NodeChoice
    from alignup.control_plane.gates.places import Place, Places
    from alignup.control_plane.gates.scheduler_nodes import SchedulerNodes
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod

# By kind, the nodes to ask for a place; None: all.
Possible = dict["Kind", set[str] | None]


class PlaceGiver:
    """Gives places, one after the other.

    - A pod that gets one waits no more from then on, and its namespace is charged for it.
    - Only nodes that changed are asked for the kinds that wait: all others have refused these.
    - Pods of which their schedulers know more wait while such pods of their namespace keep too many
      nodes (`Places.unsure_room`).
    - A place that turns out wrong stays with its pod, which cannot be unpinned, and the pod gets
      another node beside it by a label of its own.

    Args:
        nodes: those of the scheduler.
        places: where places are kept.
        kept: nodes kept for pods that wait.
        choice: judges nodes.
        pods: those that wait.
        counts: are kept here.
        relabels: let a pod get another node, by its label, where its place turns out wrong.
    """

    def __init__(
        self,
        nodes: SchedulerNodes,
        places: Places,
        kept: KeptNodes,
        choice: NodeChoice,
        pods: GatedPods,
        counts: Counts,
        *,
        relabels: bool,
    ) -> None:
        self._nodes = nodes
        self._places = places
        self._kept = kept
        self._choice = choice
        self._pods = pods
        self._counts = counts
        self._relabels = relabels

    def give(self, pod: WaitingPod, names: Sequence[str], now: float) -> Place | None:
        """Give a place to a pod that waits; None: a node does not take it after all."""
        place = self._places.give(pod, names, now)
        if place is not None:
            self._pods.forget(pod.uid)
            self._pods.queue.charge(pod.watched.pod.namespace, self._nodes.part_of(pod))
            self._counts.placed += 1
        return place

    def release(self, place: Place) -> Release:
        """Return the decision to let a pod go to its place."""
        pod = place.pod
        self._counts.released += 1
        if not self._relabels:
            return Release(pod, place.nodes)

        if required_terms(pod.affinity):  # such a pod reaches its nodes by the label only
            place.labelled = set(place.nodes)
        return Release(pod, place.nodes, pod.label)

    def pods_for_late_labels(self) -> list[WaitingPod]:
        """Return the pods to which a label that comes late may give another node.

        That is who follows its label already, and who will, as terms of its own leave it no other
        way: for both an earlier leader may have asked for labels. For others it did so only once
        they were seen without the gate; and pods that are bound, or gone, follow no label.
        """
        open_pods = [place.pod for place in self._places if place.is_open]
        pods = [pod for pod in open_pods if pod.follows_label]
        if self._relabels:
            pods += [pod for pod in self._pods.gated if required_terms(pod.affinity)]
        return pods

    def possible(self, changed: set[str]) -> Possible:
        """Return for which kinds in the queue which nodes are to be asked."""
        self._pods.hope_again()
        possible: Possible = dict.fromkeys(self._pods.unasked)
        if not self._pods.refused_kinds:
            return possible

        for name in changed:
            for kind in self._choice.kinds_that_fit(self._pods.refused_kinds, name):
                names = possible.setdefault(kind, set())
                if names is not None:
                    names.add(name)

        return possible

    def give_to_queue(
        self, possible: Possible, now: float, above: int | None = None
    ) -> list[Release]:
        """Give places to pods in the queue, in their order, as long as there are any.

        Args:
            possible: the nodes to ask; kinds that these refuse are removed.
            now: seconds.
            above: leave pods alone that have no higher priority than that.
        """
        releases = []
        while (place := self._next_place(possible, now, above)) is not None:
            releases.append(self.release(place))
        return releases

    def _next_place(self, possible: Possible, now: float, above: int | None) -> Place | None:
        """Give a place to the first pod that gets one; None: none does."""
        for pod in self._pods.queue.firsts(possible):
            if above is not None and pod.watched.priority <= above:
                break
            if pod.kind not in possible:
                continue

            # terms of its own take one name each, or a label
            is_narrow = not self._relabels and required_terms(pod.affinity)
            most = CANDIDATES if pod.unseen and not is_narrow else 1
            if pod.unseen:
                most = min(most, self._places.unsure_room(pod))
            if not most:
                self._pods.ask_all(pod.kind)
                continue

            chosen = self._choice.choose(pod, possible[pod.kind], most)
            place = self.give(pod, chosen, now) if chosen else None
            if place is not None:
                return place

            del possible[pod.kind]
            if not chosen:
                is_hopeless = self._choice.is_hopeless(pod)
                self._pods.all_refuse(pod.kind, is_hopeless=is_hopeless)

        return None

    def give_kept(self, changed: set[str], now: float) -> list[Release]:
        """Give nodes that changed to those for whom they are kept.

        An equal pod that stands before such a pod may have been refused the node.
        """
        releases = []
        for name, pod in self._kept.owners():
            is_waiting = pod.uid in self._pods.queue and name in changed
            if is_waiting and self._places.may_have_one(pod) and self._choice.takes_now(pod, name):
                place = self.give(pod, [name], now)
                if place is not None:
                    releases.append(self.release(place))

        return releases

    def mend(self, changed: set[str], now: float) -> None:
        """Give another node to pods whose place turned out wrong.

        Args:
            changed: the nodes to ask for those whose place was wrong before.
            now: seconds.
        """
        fresh = self._places.find_misplaced()
        if not self._relabels:
            return

        for uid in sorted(self._places.misplaced):
            place = self._places[uid]
            if not place.is_open or len(place.nodes) >= MOST_NODES:
                continue
            if place.is_unsure and not self._places.unsure_room(place.pod):
                continue

            names = None if uid in fresh or place.refused_at == now else changed
            for name in self._choice.choose(place.pod, names, 1, place.nodes):
                self._counts.mended += 1
                self._places.misplaced.discard(uid)
                self._places.extend(place, name, now)
                place.labelled.add(name)
