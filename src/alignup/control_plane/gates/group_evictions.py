"""Makes room for groups: evicts less important pods only where all members have places then.

The members of the group ask for the same: of different ones nobody knows here whether the group
gets its places in the end. Those that have room now keep it, and for each of the others the node is
taken where the fewest and least important pods have to go. Whoever may stay in the end stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.cluster.evictions import admits, fewest_victims, without
from alignup.control_plane.api_server.objects import rules_of
from alignup.control_plane.gates.group_places import left_out_by
from alignup.control_plane.gates.scheduler_rules import refusal
from alignup.control_plane.gates.victims import Eviction, load_without, may_go

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from alignup.cluster.evictions import Rules
    from alignup.control_plane.api_server.objects import Budget, WatchedPod
    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.scheduler_rules import NodeLoad
    from alignup.control_plane.gates.waiting_groups import WaitingGroup
    from alignup.control_plane.gates.waiting_pods import WaitingPod
    from alignup.control_plane.scheduler.node_state import ExactMember
    from alignup.kubernetes.node_fit import NodeObject
    from alignup.node import Node

# Nodes that are looked at for a group.
_MOST_NODES: Final = 32

# Members for which room is made at once: plans take a tenth of a second for a few.
_MOST_MEMBERS: Final = 16


def may_evict(group: WaitingGroup) -> bool:
    """Return whether others may go for a group."""
    members = [pod for pod in group.waiting.values() if pod.needs_place]
    return (
        len({pod.kind for pod in members}) == 1
        and all(pod.may_evict and not pod.unseen for pod in members)
        and not members[0].watched.pod.constraints.host_ports
    )


def lowest_priority(group: WaitingGroup) -> int:
    """Return the priority below which pods may go for a group: that of no member is exceeded."""
    return min(pod.watched.priority for pod in group.waiting.values() if pod.needs_place)


def plan_for_group(
    keeper: Keeper, group: WaitingGroup, budgets: Sequence[Budget]
) -> Eviction | None:
    """Return how room is made for all members that have to run together; None: it cannot be.

    Args:
        keeper: with which the group waits.
        group: its members ask for the same (`may_evict`).
        budgets: are not exceeded.
    """
    members = {uid: pod for uid, pod in group.waiting.items() if pod.needs_place}
    plan = keeper.group_places.plan(members)
    left_out = left_out_by(plan, group)
    if not left_out or len(left_out) > _MOST_MEMBERS:
        return None

    priority = lowest_priority(group)
    rooms = [
        _Clearing(member, node, load, priority)
        for member, node, load in keeper.kept.to_clear(left_out[0])
    ]
    rooms.sort(key=lambda room: room.importance)
    by_name = {room.name: room for room in rooms[:_MOST_NODES]}
    for place in plan.places:
        if place.node in by_name and not by_name[place.node].admit(members[place.pod.uid]):
            del by_name[place.node]

    rooms = list(by_name.values())
    rules = rules_of((bound for room in rooms for bound in room.going), budgets)
    for pod in left_out:
        if not _make_room(pod, rooms, rules):
            return None

    for room in rooms:
        room.spare(rules)
    victims = [bound for room in rooms for bound in room.victims]
    if rules.violations([bound.pod for bound in victims]):
        return None

    nodes = dict.fromkeys([*plan.nodes, *(room.name for room in rooms if room.members)])
    return Eviction(left_out[0], tuple(nodes), tuple(victims))


def _make_room(pod: WaitingPod, rooms: Iterable[_Clearing], rules: Rules) -> bool:
    """Let pods go for one member where that is the least loss; return whether there is room."""
    best: tuple[tuple[object, ...], _Clearing, list[WatchedPod]] | None = None
    for room in rooms:
        victims = room.fewest_for(pod, rules)
        if victims is not None:
            loss = rules.loss([bound.pod for bound in victims])
            if best is None or loss < best[0]:
                best = loss, room, victims

    if best is None:
        return False

    _, room, victims = best
    room.victims += victims
    return room.admit(pod)


class _Clearing:
    """A node from which pods go, and to which members come.

    Args:
        member: the node as it is now.
        node: its object.
        load: the sums of its pods.
        priority: below which pods may go.
    """

    def __init__(
        self, member: ExactMember, node: NodeObject, load: NodeLoad, priority: int
    ) -> None:
        bound = member.pods.values()
        self.name = member.name
        self.going = [pod for pod in bound if may_go(pod, priority)]
        self.victims: list[WatchedPod] = []
        self.members: list[WaitingPod] = []
        self._member = member
        self._node = node
        self._load = load
        self._leaving = [pod for pod in bound if pod.is_leaving]

    @property
    def importance(self) -> tuple[int, str]:
        """Sorts those first of which the least important pods may go."""
        return max((bound.priority for bound in self.going), default=0), self.name

    def fewest_for(self, pod: WaitingPod, rules: Rules) -> list[WatchedPod] | None:
        """Return who has to go for one more member; None: the end of all is not enough."""
        there = self._with_members(self.victims, self.members)
        staying = {bound.pod.uid: bound for bound in self.going if bound not in self.victims}
        if there is None:
            return None

        plain = [bound.pod for bound in staying.values()]
        fewest = fewest_victims(there, pod.watched.pod, plain, rules)
        if fewest is None:
            return None

        victims = [staying[victim.uid] for victim in fewest]
        return victims if self._fits([*self.victims, *victims], [*self.members, pod]) else None

    def admit(self, pod: WaitingPod) -> bool:
        """Let one more member come; return whether there is room for it."""
        self.members.append(pod)
        return self._fits(self.victims, self.members)

    def spare(self, rules: Rules) -> None:
        """Let those stay without whose end all members have room, the most important ones first."""
        by_loss = sorted(self.victims, key=lambda bound: rules.loss([bound.pod]), reverse=True)
        for bound in by_loss:
            others = [other for other in self.victims if other is not bound]
            if self._fits(others, self.members):
                self.victims = others

    def _with_members(
        self, victims: Sequence[WatchedPod], members: Sequence[WaitingPod]
    ) -> Node | None:
        """Return the node without those that go, and with members; None: it does not take them."""
        there = without(self._member.node, [bound.pod for bound in (*self._leaving, *victims)])
        for pod in members:
            if not admits(there, pod.watched.pod):
                return None
            there.admit(pod.watched.pod)
        return there

    def _fits(self, victims: Sequence[WatchedPod], members: Sequence[WaitingPod]) -> bool:
        """Return whether the node takes members once victims are gone, and its scheduler, too."""
        load = load_without(self._load, [*self._leaving, *victims])
        for pod in members:
            if refusal(pod.kind.constrained, self._node, load):
                return False
            load.add(pod.watched.pod)
        return self._with_members(victims, members) is not None
