"""Nodes that are kept for pods and groups that wait, until the pods there have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.control_plane.gates.scheduler_rules import NodeLoad, refusal
from alignup.control_plane.gates.waiting_pods import OF_A_NODE
from alignup.control_plane.scheduler.node_state import ExactMember

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.places import Places
    from alignup.control_plane.gates.scheduler_nodes import SchedulerNodes
    from alignup.control_plane.gates.waiting_groups import WaitingGroup, WaitingGroups
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod
    from alignup.control_plane.gates.waiting_queue import WaitingQueue
    from alignup.control_plane.scheduler.cluster_state import ClusterState
    from alignup.kubernetes.node_fit import NodeObject

# Seconds that a pod waits before a node may be kept for it.
PATIENCE: Final = 30.0

# Of so many nodes one may be kept for a pod that has waited long; one always may.
_NODES_FOR_EACH_KEPT: Final = 50


class KeptNodes:
    """Which node is kept for which pod.

    A node is kept for one pod, or for the members of one group, at most, and only while these wait:
    on it, nobody else gets a place who is not more important. Whenever that changes, the node is
    asked anew.

    Args:
        state: the cluster.
        nodes: those of the scheduler.
        places: nodes that pods are on their way to.
        patience: seconds after which a node may be kept for a pod.
    """

    def __init__(
        self, state: ClusterState, nodes: SchedulerNodes, places: Places, patience: float
    ) -> None:
        self._state = state
        self._nodes = nodes
        self._places = places
        self._patience = patience
        # By node, the pod that it is kept for.
        self._owners: dict[str, WaitingPod] = {}
        # Those of them where room was made for it.
        self._reserved: dict[str, WaitingPod] = {}

    def owners(self) -> list[tuple[str, WaitingPod]]:
        """Return the nodes that are kept, each with its pod, as of now."""
        return list(self._owners.items())

    def is_for_another(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node is kept for another pod than this one or members of its group."""
        owner = self._owners.get(name)
        return owner is not None and not _is_same_or_member(owner, pod)

    def is_closed_to(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node is kept for another pod that is not less important."""
        owner = self._owners.get(name)
        return (
            owner is not None
            and not _is_same_or_member(owner, pod)
            and owner.watched.priority >= pod.watched.priority
        )

    def ask_below(self, priority: int) -> None:
        """Let the nodes be asked anew that are kept for pods of a lower priority."""
        self._nodes.changed.update(
            name for name, owner in self._owners.items() if owner.watched.priority < priority
        )

    def forget(self, uid: str) -> None:
        """Keep nothing for a pod that waits no more."""
        for name in [name for name, owner in self._owners.items() if owner.uid == uid]:
            del self._owners[name]
            self._nodes.changed.add(name)

    def reserve(self, name: str, pod: WaitingPod) -> None:
        """Keep a node for a pod that waits, as long as it does: others go there for it."""
        self._reserved[name] = pod
        self._owners[name] = pod
        self._nodes.changed.add(name)

    def reserved_for(self, pod: WaitingPod) -> set[str]:
        """Return the nodes on which room was made for a pod, or for members of its group."""
        return {name for name, owner in self._reserved.items() if _is_same_or_member(owner, pod)}

    def give_back(self, name: str) -> None:
        """Keep a node no more; one that is not kept is no error."""
        self._reserved.pop(name, None)
        if self._owners.pop(name, None) is not None:
            self._nodes.changed.add(name)

    def keep_for_overdue(self, queue: WaitingQueue, groups: WaitingGroups, now: float) -> None:
        """Keep nodes for the first that have waited long, and give back all others."""
        overdue = queue.overdue(now, self._patience)
        group = groups.overdue(now - self._patience, queue.charged)
        of_group = self._nodes_for_group(group) if group is not None else {}
        if not (overdue or of_group or self._owners or self._reserved):
            return

        waiting = {pod.uid: pod for pod in (*queue, *groups.waiting)} if self._reserved else {}
        self._reserved = {
            name: waiting[pod.uid] for name, pod in self._reserved.items() if pod.uid in waiting
        }
        kept = self._nodes_for(overdue, {**of_group, **self._reserved})

        before = {name: pod.uid for name, pod in self._owners.items()}
        after = {name: pod.uid for name, pod in kept.items()}
        self._nodes.changed.update(name for name, _ in before.items() ^ after.items())
        self._owners = kept

    def _nodes_for(
        self, overdue: Sequence[WaitingPod], kept: dict[str, WaitingPod]
    ) -> dict[str, WaitingPod]:
        """Return the nodes to keep: those that are given, and some for pods that are overdue."""
        most = len(kept) + max(1, len(self._nodes.objects) // _NODES_FOR_EACH_KEPT)
        by_uid = {pod.uid: name for name, pod in self._owners.items()}
        served = {pod.uid for pod in kept.values()}
        emptiest = sorted(self._state.view.names, key=self._nodes.cpus_in_use)
        hopeless: set[Kind] = set()
        for pod in overdue:
            if len(kept) == most:
                break
            if pod.kind in hopeless or pod.uid in served:
                continue
            if not self._places.may_have_one(pod):
                continue

            name = by_uid.get(pod.uid, "")
            if name in kept or not self._would_take(pod, name):
                name = self._first_for(pod, emptiest, kept)
            if name:
                kept[name] = pod
            else:
                hopeless.add(pod.kind)

        return kept

    def _first_for(
        self, pod: WaitingPod, names: Sequence[str], kept: Mapping[str, WaitingPod]
    ) -> str:
        """Return the first node that would take a pod if no other one were there; empty: none.

        Nodes that are kept already are left out.
        """
        view = self._state.view
        helps = view.empty_admits(pod.watched.pod, self._state.strategy)
        for index in np.flatnonzero(helps[view.numbers(names)]).tolist():
            name = names[index]
            if name not in kept and self._would_take(pod, name):
                return name

        return ""

    def _nodes_for_group(self, group: WaitingGroup) -> dict[str, WaitingPod]:
        """Return as many nodes as a group needs, each with a member.

        There are none where it would not fit even if they were empty.
        """
        kept: dict[str, WaitingPod] = {}
        members = [pod for pod in group.waiting.values() if pod.needs_place]
        left = group.needed - (len(group.waiting) - len(members))
        before = {name for name, pod in self._owners.items() if _is_same_or_member(pod, members[0])}
        view = self._state.view
        names = sorted(
            view.names, key=lambda name: (name not in before, self._nodes.cpus_in_use(name))
        )
        for kind in dict.fromkeys(pod.kind for pod in members):
            equal = [pod for pod in members if pod.kind is kind]
            wanted = min(left, len(equal))
            left -= wanted
            helps = view.empty_admits(kind.pod, self._state.strategy)
            for name in names:
                if wanted <= 0:
                    break
                if name in kept or name in self._reserved:
                    continue
                if helps[view.numbers([name])[0]]:
                    count = self._copies_on_empty(equal[0], name, wanted)
                    wanted -= count
                    if count:
                        kept[name] = equal[0]

            if wanted > 0:
                return {}

        return kept

    def _copies_on_empty(self, pod: WaitingPod, name: str, most: int) -> int:
        """Return how many copies of a pod an empty node would take, up to a number."""
        member = self._state.members[name]
        node = self._nodes.objects.get(name)
        if node is None or not isinstance(member, ExactMember):
            return 0

        copy = member.template.copy()
        for staying in self._staying(name):
            copy.admit(staying.pod)

        load = self._staying_load(name)
        for count in range(most):
            replica = pod.watched.pod.renamed(uid=f"{pod.uid}/{count}")
            if refusal(pod.kind.constrained, node, load) or not copy.admit(replica).admitted:
                return count
            load.add(replica)

        return most

    def _would_take(self, pod: WaitingPod, name: str) -> bool:
        """Return whether a node would take a pod if it were empty, by its sums."""
        return self._nodes.would_take(pod, name, self._staying_load(name))

    def _staying(self, name: str) -> list[WatchedPod]:
        """Return the pods of a node that nobody waits for, as they come back at once.

        A node is as empty as can be where these are left, as a drain leaves them.
        """
        bound = self._state.by_node.get(name, {}).values()
        return [pod for pod in bound if pod.is_copy or pod.owner in OF_A_NODE]

    def _staying_load(self, name: str) -> NodeLoad:
        load = NodeLoad()
        for staying in self._staying(name):
            load.add(staying.pod)
        return load

    def to_clear(
        self, pod: WaitingPod, names: Container[str] | None = None
    ) -> Iterator[tuple[ExactMember, NodeObject, NodeLoad]]:
        """Yield nodes that are known exactly and would take a pod if no other one were there.

        Those on which another pod is expected, or that are kept for one, are left out.

        Args:
            pod: the pod.
            names: of the nodes to look at; None: all.
        """
        view = self._state.view
        helps = view.empty_admits(pod.watched.pod, self._state.strategy)
        for index in np.flatnonzero(helps).tolist():
            name = view.names[index]
            member = self._state.members[name]
            if (
                (names is None or name in names)
                and isinstance(member, ExactMember)
                and name not in self._state.uncertain
                and not self._places.is_expecting(name)
                and not self.is_for_another(pod, name)
                and self._would_take(pod, name)
            ):
                yield member, self._nodes.objects[name], self._nodes.load(name)


def _is_same_or_member(owner: WaitingPod, pod: WaitingPod) -> bool:
    """Return whether a node that is kept for one pod is kept for the other one, too."""
    membership = owner.watched.membership
    other = pod.watched.membership
    is_of_group = membership is not None and other is not None and membership.key == other.key
    return is_of_group or owner.uid == pod.uid
