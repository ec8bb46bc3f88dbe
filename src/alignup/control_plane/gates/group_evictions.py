"""Makes room for groups: evicts less important pods only where all members have places then.

Those that have room now keep it, and for each of the others the node is taken where the fewest and
least important pods have to go. Whoever may stay in the end stays.

Of members that ask for the same it is known then that they get their places. Of different ones it
is found out: the group is planned on these nodes as they will be, as it is planned later, when the
nodes are kept for it.
"""

from __future__ import annotations

from itertools import islice, permutations
from typing import TYPE_CHECKING, Final

from alignup.cluster.cluster import Cluster
from alignup.cluster.evictions import admits, fewest_victims, without
from alignup.cluster.pod_groups import GroupPlan
from alignup.control_plane.api_server.objects import rules_of
from alignup.control_plane.gates.group_places import left_out_by, plan_members
from alignup.control_plane.gates.node_choice import most_beside
from alignup.control_plane.gates.scheduler_rules import refusal
from alignup.control_plane.gates.victims import Eviction, load_without, may_go
from alignup.control_plane.gates.waiting_groups import GroupRoom

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.cluster.evictions import Rules
    from alignup.control_plane.api_server.objects import Budget, WatchedPod
    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.scheduler_rules import NodeLoad
    from alignup.control_plane.gates.waiting_groups import WaitingGroup
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod
    from alignup.control_plane.scheduler.node_state import ExactMember
    from alignup.kubernetes.node_fit import NodeObject
    from alignup.node import Node

# Nodes that are looked at for a group.
_MOST_NODES: Final = 32

# Members for which room is made at once: plans take a tenth of a second for a few.
_MOST_MEMBERS: Final = 16

# Orders in which room is made for members that differ: all of three kinds.
_MOST_ORDERS: Final = 6


def may_evict(group: WaitingGroup) -> bool:
    """Return whether others may go for a group."""
    members = group.candidates.values()
    return bool(members) and all(
        pod.may_evict and not pod.unseen and not pod.watched.pod.constraints.host_ports
        for pod in members
    )


def lowest_priority(group: WaitingGroup) -> int:
    """Return the priority below which pods may go for a group: that of no member is exceeded."""
    return min(pod.watched.priority for pod in group.candidates.values())


def plan_for_group(
    keeper: Keeper, group: WaitingGroup, budgets: Sequence[Budget]
) -> Eviction | None:
    """Return how room is made for all members that have to run together; None: it cannot be.

    Args:
        keeper: with which the group waits.
        group: for which others may go (`may_evict`).
        budgets: are not exceeded.
    """
    members = group.candidates
    plan = keeper.group_places.plan(members)
    if not left_out_by(plan, group):
        return None

    eviction = _plan_beside(keeper, group, plan, budgets)
    kinds = list(dict.fromkeys(pod.kind for pod in members.values()))
    if eviction is not None or len(kinds) == 1:
        return eviction

    # one that has room now may have it where another one could make room
    for order in islice(permutations(kinds), _MOST_ORDERS):
        in_order = sorted(members.values(), key=lambda pod: order.index(pod.kind))
        none_yet = GroupPlan(left_out=tuple(pod.watched.pod for pod in in_order))
        eviction = _plan_beside(keeper, group, none_yet, budgets)
        if eviction is not None:
            return eviction

    return None


def _plan_beside(
    keeper: Keeper, group: WaitingGroup, plan: GroupPlan, budgets: Sequence[Budget]
) -> Eviction | None:
    """Return how room is made for the members that a plan leaves out, in their order."""
    members = group.candidates
    left_out = left_out_by(plan, group)
    if len(left_out) > _MOST_MEMBERS:
        return None

    by_name = _nodes_to_clear(keeper, members.values(), plan, lowest_priority(group))
    all_known = _let_planned_come(by_name, plan, members)
    are_equal = len({pod.kind for pod in members.values()}) == 1
    if not all_known and not are_equal:
        return None

    rooms = list(by_name.values())
    rules = rules_of((bound for room in rooms for bound in room.going), budgets)
    if not all(_make_room(pod, rooms, rules) for pod in left_out):
        return None

    with_all_victims = [list(room.victims) for room in rooms]
    for room in rooms:
        room.spare(rules)
    if not are_equal and not _have_places(keeper, group, rooms):
        for room, room_victims in zip(rooms, with_all_victims, strict=True):
            room.victims = room_victims
        if not _have_places(keeper, group, rooms):
            return None

    victims = [bound for room in rooms for bound in room.victims]
    if rules.violations([bound.pod for bound in victims]):
        return None

    nodes = dict.fromkeys([*plan.nodes, *(room.name for room in rooms if room.members)])
    return Eviction(left_out[0], tuple(nodes), tuple(victims))


def _nodes_to_clear(
    keeper: Keeper, members: Iterable[WaitingPod], plan: GroupPlan, priority: int
) -> dict[str, _Clearing]:
    """Return by name nodes from which pods may go: those of a plan, and the least important ones.

    Args:
        keeper: with which the group waits.
        members: of the group.
        plan: where there is room now.
        priority: below which pods may go.
    """
    rooms: dict[str, _Clearing] = {}
    for pod in {pod.kind: pod for pod in members}.values():
        for member, node, load in keeper.kept.to_clear(pod):
            if member.name not in rooms:
                rooms[member.name] = _Clearing(member, node, load, priority)

    planned = [name for name in plan.nodes if name in rooms]
    others = sorted(rooms.keys() - set(planned), key=lambda name: rooms[name].importance)
    return {name: rooms[name] for name in [*planned, *others[:_MOST_NODES]]}


def _let_planned_come(
    rooms: dict[str, _Clearing], plan: GroupPlan, members: Mapping[str, WaitingPod]
) -> bool:
    """Let members that have room now come there; return whether all of their nodes are among these.

    A node that does not take one after all is left out.
    """
    all_known = True
    for place in plan.places:
        room = rooms.get(place.node)
        if room is None or not room.admit(members[place.pod.uid]):
            rooms.pop(place.node, None)
            all_known = False

    return all_known


def _have_places(keeper: Keeper, group: WaitingGroup, rooms: Iterable[_Clearing]) -> bool:
    """Return whether a group gets places on the nodes that take members, as they will be then."""
    view = keeper.state.view
    used = {room.name: room for room in rooms if room.members}
    names = [name for name in view.names if name in used]
    members = group.candidates

    def most_of(pod: WaitingPod) -> dict[int, int]:
        return {index: used[name].most_of(pod) for index, name in enumerate(names)}

    def beside(index: int, pod: WaitingPod, others: Sequence[WaitingPod], most: int) -> int:
        return used[names[index]].most_beside(pod, others, most)

    cluster = Cluster.from_nodes({name: used[name].cleared() for name in names})
    room = GroupRoom(len(names), members, most_of, beside)
    plan = plan_members(cluster, members, room, keeper.state.strategy)
    return not left_out_by(plan, group)


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
        # By kind, what `fewest_for` says of the node as it is.
        self._fewest: dict[Kind, list[WatchedPod] | None] = {}

    @property
    def importance(self) -> tuple[int, str]:
        """Sorts those first of which the least important pods may go."""
        return max((bound.priority for bound in self.going), default=0), self.name

    def fewest_for(self, pod: WaitingPod, rules: Rules) -> list[WatchedPod] | None:
        """Return who has to go for one more member; None: the end of all is not enough."""
        if pod.kind not in self._fewest:
            self._fewest[pod.kind] = self._find_fewest(pod, rules)
        return self._fewest[pod.kind]

    def _find_fewest(self, pod: WaitingPod, rules: Rules) -> list[WatchedPod] | None:
        """Return what `fewest_for` does, for the members and victims that there are."""
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
        self._fewest.clear()
        return self._fits(self.victims, self.members)

    def spare(self, rules: Rules) -> None:
        """Let those stay without whose end all members have room, the most important ones first."""
        by_loss = sorted(self.victims, key=lambda bound: rules.loss([bound.pod]), reverse=True)
        for bound in by_loss:
            others = [other for other in self.victims if other is not bound]
            if self._fits(others, self.members):
                self.victims = others

    def cleared(self) -> Node:
        """Return the node without those that go."""
        return without(self._member.node, [bound.pod for bound in (*self._leaving, *self.victims)])

    def most_of(self, pod: WaitingPod) -> int:
        """Return how many copies of a pod the sums leave room for once those that go are gone."""
        load = self._load_without(self.victims)
        if refusal(pod.kind.constrained, self._node, load):
            return 0
        free = self._free(load)
        return min(pod.kind.most_in(free), free.get("pods", 0))

    def most_beside(self, pod: WaitingPod, others: Sequence[WaitingPod], most: int) -> int:
        """Return how many copies of a pod come beside others once those that go are gone."""
        free = self._free(self._load_without(self.victims))
        return most_beside((self.cleared(), self._member.template), free, pod, others, most)

    def _load_without(self, victims: Sequence[WatchedPod]) -> NodeLoad:
        return load_without(self._load, [*self._leaving, *victims])

    def _free(self, load: NodeLoad) -> dict[str, int]:
        """Return what sums leave of the node, the number of pods among it."""
        free = {
            resource: amount - load.amounts[resource]
            for resource, amount in self._node.allocatable.items()
        }
        free["pods"] = free.get("pods", 0) - load.pods
        return free

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
        load = self._load_without(victims)
        for pod in members:
            if refusal(pod.kind.constrained, self._node, load):
                return False
            load.add(pod.watched.pod)
        return self._with_members(victims, members) is not None
