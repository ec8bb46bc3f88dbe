"""Gives places to groups, each as a whole, and takes their plans through.

How far a group is, and in which steps it goes, is said in `waiting_groups`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from alignup.cluster.pod_groups import GroupPlan, place_group
from alignup.control_plane.gates.decisions import Plan
from alignup.control_plane.gates.waiting_groups import GroupRoom
from alignup.errors import AlignupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alignup.cluster.cluster import Cluster
    from alignup.control_plane.gates.decisions import Counts, Decision
    from alignup.control_plane.gates.gated_pods import GatedPods
    from alignup.control_plane.gates.kept_nodes import KeptNodes
    from alignup.control_plane.gates.node_choice import NodeChoice
    from alignup.control_plane.gates.place_giver import PlaceGiver, Possible
    from alignup.control_plane.gates.places import Places
    from alignup.control_plane.gates.scheduler_nodes import SchedulerNodes
    from alignup.control_plane.gates.waiting_groups import WaitingGroup
    from alignup.control_plane.gates.waiting_pods import WaitingPod
    from alignup.control_plane.scheduler.cluster_state import ClusterState


class GroupPlaces:
    """Plans groups, and lets them go.

    - As many members as have to run together get places at the same moment, or none does.
    - No gate of a group goes before its plan stands in all members.
    - While all gates are on, a plan is taken back where one of its nodes is none any more; once one
      is off, the others follow.
    """

    def __init__(
        self,
        state: ClusterState,
        nodes: SchedulerNodes,
        places: Places,
        kept: KeptNodes,
        choice: NodeChoice,
        pods: GatedPods,
        giver: PlaceGiver,
        counts: Counts,
    ) -> None:
        self._state = state
        self._nodes = nodes
        self._places = places
        self._kept = kept
        self._choice = choice
        self._pods = pods
        self._groups = pods.groups
        self._giver = giver
        self._counts = counts
        # By uid, the version of a member from which a plan is being taken away.
        self._unplanned: dict[str, str] = {}

    def go_on(self, now: float) -> list[Decision]:
        """Do the next step for groups that have places, or that wait no more for others."""
        decisions: list[Decision] = []
        for group in self._groups:
            if group.plan:
                self._go_on_with_plan(group, now)
            elif group.goes_alone:
                decisions += self._let_members_go_alone(group, now)
            elif group.is_written:
                self._adopt_plan(group, now)
                if group.plan:
                    self._go_on_with_plan(group, now)

            decisions += self._release_again(group)

        return decisions

    def give(self, changed: set[str], possible: Possible, now: float) -> list[Decision]:
        """Give places to groups, and before each to the pods that are more important.

        Args:
            changed: the nodes on which more may fit than before.
            possible: the nodes to ask for pods in the queue.
            now: seconds.
        """
        if not self._groups.waiting:
            return []

        for name in changed:
            self._groups.room_on(self._nodes.free(name))

        decisions: list[Decision] = []
        refused_shapes: set[object] = set()
        for group in self._groups.to_place(self._pods.queue.charged):
            decisions += self._giver.give_to_queue(possible, now, group.priority)
            if group.shape in refused_shapes or not self._may_have_places(group):
                continue

            decisions += self._place(group, now)
            if group.is_refused:
                refused_shapes.add(group.shape)

        return decisions

    def _may_have_places(self, group: WaitingGroup) -> bool:
        return all(self._places.may_have_one(pod) for pod in group.waiting.values())

    def take_back(self, group: WaitingGroup, now: float) -> None:
        """Let a group wait again that has places and all its gates."""
        plan = group.plan
        group.plan = {}
        for uid, name in plan.items():
            pod: WaitingPod | None = None
            place = self._places.get(uid)
            if name and place is not None:
                pod = place.newest
                self._places.end(uid)
            elif not name:
                pod = self._pods.take_placeless(uid)
            if pod is not None:
                self._pods.seen(pod, now)

        group.is_refused = False

    def begin_anew(self, now: float) -> None:
        """Take back what this process asked for when it led before."""
        for group in self._groups:
            self.take_back(group, now)
            group.releasing.clear()

        self._unplanned.clear()

    def is_tried_again(self, pod: WaitingPod, now: float, *, for_good: bool) -> bool:
        """Return whether a pod, of which a patch was refused, is a member that needs nothing more.

        Arguments as for `Keeper.refused`.
        """
        uid = pod.uid
        group = self._groups.of(uid)
        if group is None:
            return False
        if uid in group.waiting:  # nothing was given: a plan was to be taken away
            return True

        if uid in group.plan:
            self.take_back(group, now)
            newest = group.waiting.get(uid)
            if newest is not None and newest.version == pod.version:
                self._groups.alone(group, uid)
            return newest is None or newest.version != pod.version

        place = self._places.get(uid)
        if place is None or for_good or uid not in group.releasing:
            return False

        # the gates of its group go off: what has changed in it makes no difference
        is_newer = place.newest.version != pod.version and place.newest.waits
        if is_newer:
            group.to_release.add(uid)
        return is_newer

    def plans_to_take_away(self) -> list[Plan]:
        """Return what stands in members that have no place after all."""
        stale = [pod for pod in self._groups.waiting if pod.planned]
        before = self._unplanned
        self._unplanned = {pod.uid: pod.version for pod in stale}
        return [Plan(pod, "") for pod in stale if before.get(pod.uid) != pod.version]

    def plan(self, members: Mapping[str, WaitingPod]) -> GroupPlan:
        """Return places for members, by uid, on copies of the nodes.

        Members of different demands come to one node only where they do not fit otherwise, and
        where each order of them is admitted.
        """
        plan = self._plan(members, self._choice.capacities)
        if not plan.left_out or not members:
            return plan

        # where room was made for them, each was found a place, if nobody goes elsewhere
        made = self._kept.reserved_for(next(iter(members.values())))
        if not made:
            return plan

        names = self._state.view.names

        def capacities(pod: WaitingPod) -> dict[int, int]:
            there = self._choice.capacities(pod)
            return {number: count for number, count in there.items() if names[number] in made}

        return min(plan, self._plan(members, capacities), key=_count_left_out)

    def _plan(
        self, members: Mapping[str, WaitingPod], most_of: Callable[[WaitingPod], Mapping[int, int]]
    ) -> GroupPlan:
        cluster = self._state.view.cluster
        if not cluster.nodes:
            return GroupPlan(left_out=tuple(pod.watched.pod for pod in members.values()))

        self._counts.judged += 1
        room = GroupRoom(len(cluster), members, most_of, self._choice.most_beside_members)
        return plan_members(cluster, members, room, self._state.strategy)

    def left_out(self, group: WaitingGroup) -> list[WaitingPod]:
        """Return members of a group that waits without which it could not run, and have no place.

        The others have theirs now, all at the same time.
        """
        return left_out_by(self.plan(group.candidates), group)

    def _place(self, group: WaitingGroup, now: float) -> list[Plan]:
        """Give places to as many members as have to run together, or to none."""
        members = group.candidates
        placeless = group.waiting.keys() - members.keys()
        plan = self.plan(members)
        group.fitting = len(placeless) + len(plan.places), len(group.waiting)
        group.gained = 0
        group.left_out = members[plan.left_out[0].uid] if plan.left_out else None
        if group.fitting[0] < group.needed:
            group.is_refused = True
            return []

        nodes = dict.fromkeys(placeless, "")
        for planned in plan.places:
            pod = members[planned.pod.uid]
            place = self._giver.give(pod, [planned.node], now)
            if place is None:
                for uid in nodes:
                    self._places.end(uid)
                return []

            nodes[pod.uid] = planned.node
            place.is_written = pod.planned == planned.node

        self._begin_plan(group, nodes)
        return [
            Plan(members[uid], name)
            for uid, name in nodes.items()
            if name and members[uid].planned != name
        ]

    def _begin_plan(self, group: WaitingGroup, plan: dict[str, str]) -> None:
        for uid, name in plan.items():
            if not name:
                self._pods.let_go_later(group.waiting[uid])
        self._groups.planned(group, plan)

    def _has_left(self, group: WaitingGroup, uid: str, name: str) -> bool:
        """Return whether a member has not any more what its group's plan says of it.

        Args:
            group: with a plan.
            uid: that of the member.
            name: of its node; empty: it needs no place.
        """
        if uid not in group.uids:
            return True
        if not name:
            return not self._pods.is_placeless(uid)
        return self._places.get(uid) is None or uid in self._places.misplaced

    def _go_on_with_plan(self, group: WaitingGroup, now: float) -> None:
        """Let the gates go once the plan is seen in all members.

        As long as all gates are on, it is taken back where a node is none any more.
        """
        places = [self._places.get(uid) for uid, name in group.plan.items() if name]
        is_wrong = any(self._has_left(group, uid, name) for uid, name in group.plan.items())
        is_written = all(place is not None and place.is_written for place in places)
        if is_written and not is_wrong:
            # the last moment at which nothing has been done yet
            is_wrong = any(
                place and self._places.is_wrong(place, place.nodes[0]) for place in places
            )

        if is_wrong:
            self.take_back(group, now)
        if is_wrong or not is_written:
            return

        group.releasing = set(group.plan)
        group.to_release = {uid for uid, name in group.plan.items() if name}
        for uid in group.plan.keys() - group.to_release:
            self._pods.let_go_with_group(uid)

        group.plan = {}

    def _release_again(self, group: WaitingGroup) -> list[Decision]:
        """Take gates off that are still on although their pods have places."""
        decisions: list[Decision] = []
        for uid in sorted(group.to_release):
            place = self._places.get(uid)
            if place is not None and not place.is_open:
                place.pod = place.newest
                decisions.append(self._giver.release(place))

        group.to_release = set()
        return decisions

    def _let_members_go_alone(self, group: WaitingGroup, now: float) -> list[Decision]:
        """Let members that wait for nobody go for themselves, to the nodes that stand in them."""
        decisions: list[Decision] = []
        for pod in list(group.waiting.values()):
            since = self._groups.alone(group, pod.uid)
            if not pod.needs_place:
                self._pods.let_go(pod)
                continue

            self._pods.enqueue(pod, since)
            if pod.planned and self._choice.takes_now(pod, pod.planned):
                place = self._giver.give(pod, [pod.planned], now)
                if place is not None:
                    group.releasing.add(pod.uid)
                    decisions.append(self._giver.release(place))

        return decisions

    def _adopt_plan(self, group: WaitingGroup, now: float) -> None:
        """Go on with a plan that stands in the members, if their nodes still take them."""
        plan = {}
        members = sorted(group.waiting.values(), key=lambda pod: pod.watched.pod.name)
        for pod in members:
            if not pod.needs_place:
                plan[pod.uid] = ""
            elif pod.planned:
                place = None
                if self._choice.takes_now(pod, pod.planned):
                    place = self._giver.give(pod, [pod.planned], now)
                if place is None:
                    break

                plan[pod.uid] = pod.planned
                place.is_written = True
        else:
            self._begin_plan(group, plan)
            return

        for uid in plan:
            self._places.end(uid)


def plan_members(
    cluster: Cluster, members: Mapping[str, WaitingPod], room: GroupRoom, strategy: str
) -> GroupPlan:
    """Return places for members, by uid, on copies of nodes; see `GroupPlaces.plan`.

    Args:
        cluster: of the nodes.
        members: by uid.
        room: of the nodes, in the order of the cluster.
        strategy: see `rank`.
    """
    pods = [member.watched.pod for member in members.values()]
    if not pods:
        return GroupPlan()

    place = partial(
        place_group, cluster, pods, strategy=strategy, kind_of=lambda pod: members[pod.uid].kind
    )
    try:
        plan = place(room)
        if plan.left_out and len({member.kind for member in members.values()}) > 1:
            plan = min(plan, place(room.mixing()), key=_count_left_out)
    except AlignupError:  # one asks for more than anything here can be judged by
        return GroupPlan(left_out=tuple(pods))

    return plan


def _count_left_out(plan: GroupPlan) -> int:
    return len(plan.left_out)


def left_out_by(plan: GroupPlan, group: WaitingGroup) -> list[WaitingPod]:
    """Return the members without which a group could not run, and which have no place in a plan."""
    short = group.needed - (len(group.waiting) - len(plan.left_out))
    return [group.waiting[pod.uid] for pod in plan.left_out][: max(0, short)]
