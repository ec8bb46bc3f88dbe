"""Which pods that wait behind the gate could have places now, by plain rules.

A pod that waits for itself could have one where some node takes it. A group could where all of its
members are there and come to nodes one after the other, the largest first, each to the first node
that takes it beside those before it.

A node takes pods if its sums have room for them, it has the labels that they select, and its
kubelet admits them in each order, beside those that it holds and without these.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from alignup.control_plane.gates.waiting_pods import WaitingPod, asks_exclusively
from alignup.kubernetes.node_fit import requests_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.kubernetes.groups import Membership
    from alignup.node import Node


class Room:
    """What a node has left.

    Args:
        kubelets: of the node as it is, and of the node without any pod.
        free: what its sums leave.
        labels: that it has.
    """

    def __init__(
        self, kubelets: Sequence[Node], free: Counter[str], labels: Mapping[str, str]
    ) -> None:
        self._kubelets = kubelets
        self._free = free
        self._labels = labels

    def takes(self, pods: Sequence[WaitingPod]) -> bool:
        """Return whether the node takes some pods, in whatever order they come."""
        free = self._free.copy()
        for pod in pods:
            free.subtract({**requests_of(pod.watched.pod), "pods": 1})
            selector = pod.kind.constrained.constraints.node_selector
            if not selector.items() <= self._labels.items():
                return False

        return min(free.values()) >= 0 and all(
            _admits(kubelet, order) for kubelet in self._kubelets for order in permutations(pods)
        )


def _admits(kubelet: Node, pods: Iterable[WaitingPod]) -> bool:
    there = kubelet.copy()
    return all(there.admit(pod.watched.pod).admitted for pod in pods)


def membership_of(pod: WatchedPod | WaitingPod) -> Membership | None:
    """Return the group of a pod, bound or not; None: it goes alone."""
    watched = pod.watched if isinstance(pod, WaitingPod) else pod
    return watched.membership


def waiting_in_vain(
    pods: Iterable[WatchedPod | WaitingPod], rooms: Sequence[Room]
) -> list[list[str]]:
    """Return the names of pods that wait though there is room: of each group those of all members.

    Args:
        pods: all that there are.
        rooms: of the nodes that take pods.
    """
    groups: dict[tuple[str, str, str], list[WatchedPod | WaitingPod]] = {}
    sets: list[list[WaitingPod]] = []
    for pod in pods:
        membership = membership_of(pod)
        if membership is not None:
            groups.setdefault(membership.key, []).append(pod)
        elif _waits(pod):
            sets.append([pod])

    for members in groups.values():
        sets += _sets_of(members)
    return [
        [pod.watched.pod.name for pod in waiting] for waiting in sets if _have_room(waiting, rooms)
    ]


def _sets_of(members: Iterable[WatchedPod | WaitingPod]) -> list[list[WaitingPod]]:
    """Return those of a group that get places together; none where members have yet to come."""
    waiting = []
    begun = []
    for pod in members:
        if _waits(pod):
            waiting.append(pod)
        elif not isinstance(pod, WaitingPod):
            begun.append(pod)
        elif not pod.is_gated and not pod.watched.is_leaving:
            begun.append(pod.watched)

    size = max(
        (membership.size for membership in map(membership_of, waiting) if membership), default=0
    )
    if size == 1 or any(asks_exclusively(pod.pod) for pod in begun):
        return [[pod] for pod in waiting]
    return [waiting] if waiting and 0 < size <= len(waiting) + len(begun) else []


def _have_room(pods: Iterable[WaitingPod], rooms: Sequence[Room]) -> bool:
    needy = [pod for pod in pods if pod.needs_place]
    needy.sort(key=lambda pod: requests_of(pod.watched.pod).get("cpu", 0), reverse=True)
    there: list[list[WaitingPod]] = [[] for _ in rooms]
    for pod in needy:
        for room, others in zip(rooms, there, strict=True):
            if room.takes([*others, pod]):
                others.append(pod)
                break
        else:
            return False

    return True


def _waits(pod: WatchedPod | WaitingPod) -> bool:
    return isinstance(pod, WaitingPod) and pod.waits
