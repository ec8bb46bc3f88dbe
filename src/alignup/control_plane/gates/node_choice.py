"""Which nodes may be the place of a pod, and why others may not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.admission_orders import admits_in_any_order
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.errors import AlignupError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.cluster.cluster import Bools
    from alignup.control_plane.gates.decisions import Counts
    from alignup.control_plane.gates.kept_nodes import KeptNodes
    from alignup.control_plane.gates.places import Places, UnadmittedPods
    from alignup.control_plane.gates.scheduler_nodes import SchedulerNodes
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod
    from alignup.control_plane.gates.waiting_queue import KindTable
    from alignup.control_plane.scheduler.cluster_state import ClusterState
    from alignup.node import Node

# Of a node that is kept for another pod.
KEPT: Final = "node(s) were kept for a pod that has waited longer"

# Of a node whose last pods are not known to be admitted.
UNREPORTED: Final = "node(s) have not reported all their pods"


class NodeChoice:
    """Judges nodes for pods, and changes nothing of either.

    - What aligns a pod is what the state's view says of the node as it is, with all that counts as
      bound there.
    - What a scheduler's filters say counts as well, by the sums of all bound pods.
    - A pod gets no place on a node that would refuse it if it were empty: pods that are there now
      may end before its kubelet gets the new one.
    - No place is given on a node whose report lacks a pod that the API server lists: the scheduler
      has not heard of that pod's end.
    - Nor on one that is kept for another pod, or where a pod that is not a copy is on its way;
      members of a group may come there together where each order of them is admitted.
    """

    def __init__(
        self,
        state: ClusterState,
        nodes: SchedulerNodes,
        places: Places,
        unadmitted: UnadmittedPods,
        kept: KeptNodes,
        counts: Counts,
    ) -> None:
        self._state = state
        self._nodes = nodes
        self._places = places
        self._unadmitted = unadmitted
        self._kept = kept
        self._counts = counts

    def choose(
        self, pod: WaitingPod, names: set[str] | None, most: int, without: Sequence[str] = ()
    ) -> list[str]:
        """Return nodes that take a pod now, the best one first.

        Args:
            pod: the pod.
            names: the nodes to ask; None: all.
            most: how many to return.
            without: nodes that are not returned.
        """
        view = self._state.view
        self._counts.judged += 1
        try:
            if names is None:
                answer = view.verdicts(pod.watched.pod, self._state.strategy)
                all_names = view.names
                ordered = [all_names[number] for number in answer.best().tolist()]
            else:
                reporting = sorted(name for name in names if name in view.members)
                scores = view.judge_on(pod.watched.pod, reporting, self._state.strategy)
                ordered = sorted(scores, key=lambda name: -scores[name])
        except AlignupError:  # it asks for more than anything here can be judged by
            return []

        if not ordered:
            return []

        alone = self._taken_alone(pod)
        chosen: list[str] = []
        for name in ordered:
            if name not in without and self._takes(pod, name, alone):
                chosen.append(name)
                if len(chosen) == most:
                    break

        return chosen

    def is_hopeless(self, pod: WaitingPod) -> bool:
        """Return whether no node would align a pod even if no other one were there."""
        return not self._taken_alone(pod).any()

    def takes_now(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node takes a pod now, by all that counts."""
        return name in self.choose(pod, {name}, 1)

    def takes(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node that would align a pod may be its place."""
        return self._takes(pod, name, self._taken_alone(pod))

    def why_not(self, pod: WaitingPod, names: Sequence[str]) -> list[str]:
        """Return why each of some nodes that would align a pod is not its place, in a few words.

        Empty: it is. What a scheduler refuses comes in its words.
        """
        alone = self._taken_alone(pod)
        return [self._why_not(pod, name, alone) for name in names]

    def _why_not(self, pod: WaitingPod, name: str, alone: Bools) -> str:
        if name not in self._nodes.objects:
            return "node(s) had no Node object"

        words = self._nodes.refusal(pod, name)
        if words:
            return words
        if self._kept.is_for_another(pod, name):
            return KEPT
        return "" if self._is_open_to(pod, name, alone) else UNREPORTED

    def _takes(self, pod: WaitingPod, name: str, alone: Bools) -> bool:
        """Return what `takes` does, with the answer of `_taken_alone`."""
        return self._is_open_to(pod, name, alone) and not self._nodes.refusal(pod, name)

    def _is_open_to(self, pod: WaitingPod, name: str, alone: Bools) -> bool:
        """Return whether a node may be a pod's place but for what its scheduler says."""
        if name not in self._nodes.objects or name in self._state.uncertain:
            return False
        if self._kept.is_closed_to(pod, name):
            return False

        if not self._has_only_copies(pod, name) and not self._goes_beside_members(pod, name):
            return False

        return self._is_in_step(name) and bool(alone[self._state.view.numbers([name])[0]])

    def kinds_that_fit(self, kinds: KindTable, name: str) -> list[Kind]:
        """Return of some kinds those of which a node might take a pod now."""
        if (
            name not in self._state.members
            or name in self._state.uncertain
            or not self._is_in_step(name)
        ):
            return []

        fitting = self._places.copies_among(kinds.fitting(self._nodes.free(name)), name)
        if not fitting:
            return []

        self._counts.judged += len(fitting)
        pods = {kind: kind.pod for kind in fitting}
        return self._state.view.taken_by_one(name, pods, self._state.strategy)

    def capacities(self, pod: WaitingPod) -> dict[int, int]:
        """Return, by the number of a node known exactly, how many copies of a pod it may take.

        Raises:
            InputError: the pod asks for more than anything can be judged by.
        """
        view = self._state.view
        answer = view.verdicts(pod.watched.pod, self._state.strategy)
        names = view.names
        count = len(view.cluster.nodes)
        alone = self._taken_alone(pod)
        return {
            number: self._nodes.most_of(pod, names[number])
            for number in np.flatnonzero(answer.admitted[:count]).tolist()
            if self._takes(pod, names[number], alone)
        }

    def most_beside_members(
        self, number: int, pod: WaitingPod, others: Sequence[WaitingPod], most: int
    ) -> int:
        """Return how many copies of a pod a node takes beside others that are to come there.

        By sums, and by NUMA nodes in whatever order all of them come: beside the pods that are
        there, and without these.

        Args:
            number: that of the node, which takes each of the pods by itself.
            pod: the pod.
            others: the others.
            most: the most to return.
        """
        name = self._state.view.names[number]
        member = self._state.members[name]
        if not isinstance(member, ExactMember) or any(
            each.watched.pod.constraints.host_ports for each in (pod, *others)
        ):
            return 0

        free = Counter(self._nodes.free(name))
        free["pods"] -= self._nodes.load(name).pods
        return most_beside((member.node, member.template), free, pod, others, most)

    def _goes_beside_members(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a pod may go where its plan says, though others are on their way there.

        They are of its group, and each order of all of them is admitted: that was found out when
        the plan was made, which a keeper that starts anew goes on with.
        """
        membership = pod.watched.membership
        member = self._state.members[name]
        if pod.planned != name or membership is None or not isinstance(member, ExactMember):
            return False

        coming = [member.pods[uid] for uid in member.unsettled]
        if not all(
            other.membership is not None
            and other.membership.key == membership.key
            and member.node.manager.has_pod(other.pod.uid)
            for other in coming
        ):
            return False

        settled = member.node.copy()
        for other in coming:
            settled.remove(other.pod.uid)

        pods = [*(other.pod for other in coming), pod.watched.pod]
        return all(admits_in_any_order(node, pods) for node in (settled, member.template))

    def _has_only_copies(self, pod: WaitingPod, name: str) -> bool:
        """Return whether all pods that a node has not reported yet are equal to one."""
        kind = pod.kind
        return self._places.are_copies(kind, name) and self._unadmitted.are_copies(kind, name)

    def _taken_alone(self, pod: WaitingPod) -> Bools:
        """Return by number which nodes would align a pod if no other one were there.

        Some pods fit only beside others, which keep their first container from what the next one
        needs. These may end before the kubelet gets the pod.
        """
        return self._state.view.empty_admits(pod.watched.pod, self._state.strategy)

    def _is_in_step(self, name: str) -> bool:
        """Return whether a node has not reported the end of a pod before the API server did.

        The scheduler has not heard of it yet.
        """
        listed = self._state.by_node.get(name)
        return not listed or listed.keys() <= self._state.members[name].pods.keys()


def most_beside(
    nodes: Sequence[Node],
    free: Mapping[str, int],
    pod: WaitingPod,
    others: Sequence[WaitingPod],
    most: int,
) -> int:
    """Return how many copies of a pod a node takes beside others, in whatever order all come.

    Args:
        nodes: the node as it may be when they come.
        free: what the sums of the pods that are there leave; `pods` is among them.
        pod: the pod.
        others: the others, of which the node takes each by itself.
        most: the most to return.
    """
    left = Counter(free)
    left["pods"] -= len(others)
    for other in others:
        left.subtract(other.kind.requests)

    most = min(most, pod.kind.most_in(left), left["pods"])
    pods = [other.watched.pod for other in others]
    for count in range(most):
        pods.append(pod.watched.pod.renamed(uid=f"{pod.uid}/{count}"))
        if not all(admits_in_any_order(node, pods) for node in nodes):
            return count

    return max(0, most)
