"""Who may be evicted for pods that wait behind the gate, and what a node is like without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.control_plane.gates.scheduler_rules import NodeLoad
from alignup.control_plane.gates.waiting_pods import OF_A_NODE
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.waiting_pods import WaitingPod


class Eviction(Record):
    """How room is made for a pod, or for a group.

    Attributes:
        pod: the pod that waits; of a group one of its members.
        nodes: where it is made, and where the other members have room already.
        victims: who has to go; empty: those that are leaving are enough.
    """

    pod: WaitingPod
    nodes: tuple[str, ...]
    victims: tuple[WatchedPod, ...] = ()


def may_go(bound: WatchedPod, priority: int) -> bool:
    """Return whether a pod may be evicted for one of a priority."""
    return (
        bound.priority < priority
        and not bound.is_leaving
        and not bound.is_copy
        and bound.owner not in OF_A_NODE
        and bound.membership is None
    )


def load_without(load: NodeLoad, pods: Iterable[WatchedPod]) -> NodeLoad:
    """Return the sums of a node without some of its pods."""
    less = NodeLoad()
    less.pods = load.pods
    less.amounts = load.amounts.copy()
    less.host_ports = load.host_ports.copy()
    for bound in pods:
        less.remove(bound.pod)
    return less
