"""Makes room for pods that wait: evicts less important ones, and keeps what they free.

kube-scheduler preempts for no pod that has a gate. So this finds pods whose end lets a waiting pod
in, and evicts them by the Eviction API, which respects disruption budgets and lets each pod end in
its own time. The rules are kube-scheduler's but for the budgets, which it exceeds where nothing
else helps (`DefaultPreemption`, Kubernetes 1.37):

- Only pods of a strictly lower priority go, and never for a pod with `preemptionPolicy: Never`.
- No more go than have to: of two sets the smaller one, then the less important one. Among equals, a
  pod goes that finds another place at once (`plan_room`), then the youngest.
- Where pods that are leaving already make the room, it is waited for them.

Its nodes are kept for the pod from then on (`KeptNodes.reserve`). Of pods with constraints that
only their scheduler sees nobody knows here whether an eviction helps: for them nobody goes. For a
group pods go where that lets all of it in (`group_evictions`). No member of a group goes: the
others would run for nothing.

`Preemption` plans, and is pure; `Evictor` carries its plans out.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from alignup.cluster.cluster import Cluster
from alignup.cluster.evictions import Standing, fewest_victims, plan_room, without
from alignup.control_plane.api_server import api_client
from alignup.control_plane.api_server.objects import decode_budget, rules_of
from alignup.control_plane.api_server.pod_events import write_event
from alignup.control_plane.api_server.watch import list_objects
from alignup.control_plane.gates.group_evictions import lowest_priority, may_evict, plan_for_group
from alignup.control_plane.gates.reasons import COMPONENT
from alignup.control_plane.gates.scheduler_rules import refusal
from alignup.control_plane.gates.victims import Eviction, load_without, may_go
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.errors import AlignupError
from alignup.kubernetes.wire import Metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from alignup.cluster.evictions import Rules
    from alignup.control_plane.api_server.objects import Budget, WatchedPod
    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.waiting_groups import WaitingGroup
    from alignup.control_plane.gates.waiting_pods import WaitingPod
    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

# Seconds that a pod has waited before others go for it: a place may come free by itself.
_FIRST_WAIT: Final = 1.0

# Seconds between two looks, in each of which room is made for one pod at most.
_LOOK_SECONDS: Final = 1.0

# Seconds after which room is looked for again, where there was none, or its plan failed.
_PAUSE: Final = 5.0

# Seconds after the last victim's end within which its node has to report, and the pod gets it.
_LONGEST_REPORT: Final = 20.0

# Nodes that are looked at for a pod.
_MOST_NODES: Final = 16

# Of these, nodes from which a pod may move to another place, and nodes to which it may: plans take
# a tenth of a second, for which nobody else is given a place.
_MOST_LEFT: Final = 3
_MOST_ENTERED: Final = 5

# Kinds of pods, and groups, for which room is looked for in one look.
_MOST_KINDS: Final = 4
_MOST_GROUPS: Final = 2


class Preemption:
    """Plans evictions, from what a keeper knows of the cluster."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        # By uid of the pod that waits, what is done for it, and since when nobody is in its way.
        self.under_way: dict[str, tuple[Eviction, float | None]] = {}
        # By what is equal for those for whom it is as vain, when room was looked for in vain.
        self._vain: dict[object, float] = {}

    def has_candidates(self, now: float) -> bool:
        """Return whether there is anybody for whom others may go."""
        return bool(self.candidates(now) or self._groups(now))

    def candidates(self, now: float) -> list[WaitingPod]:
        """Return the pods for which others may go, in their order; of equal ones the first."""
        self._vain = {key: at for key, at in self._vain.items() if at > now - _PAUSE}
        self._forget_what_is_over(now)
        pods: dict[object, WaitingPod] = {}
        for pod in self._keeper.queue.in_order():
            key = pod.kind, pod.watched.priority
            if (
                pod.may_evict
                and not pod.unseen
                and key not in self._vain
                and pod.uid not in self.under_way
                and self._keeper.queue.since(pod.uid) <= now - _FIRST_WAIT
            ):
                pods.setdefault(key, pod)

        if not pods:
            return []

        lowest = self._lowest_priority()
        return [pod for pod in pods.values() if pod.watched.priority > lowest]

    def _groups(self, now: float) -> list[WaitingGroup]:
        """Return the groups for which others may go, in their order."""
        waiting = [
            group
            for group in self._keeper.groups
            if group.is_refused
            and group.needs_places
            and not group.goes_alone
            and not group.lacking
            and max(group.since.values()) <= now - _FIRST_WAIT
            and group.shape not in self._vain
            and self.under_way.keys().isdisjoint(group.waiting)
            and may_evict(group)
        ]
        if not waiting:
            return []

        lowest = self._lowest_priority()
        order = self._keeper.queue.charged
        waiting = [group for group in waiting if lowest_priority(group) > lowest]
        return sorted(
            waiting, key=lambda group: (-group.priority, order(group.membership.namespace))
        )

    def _lowest_priority(self) -> int:
        return min((bound.priority for bound in self._keeper.state.pods.values()), default=0)

    def _forget_what_is_over(self, now: float) -> None:
        """Forget evictions whose pod has a place or is gone, and those that came to nothing."""
        bound = self._keeper.state.pods
        for uid, (eviction, since) in list(self.under_way.items()):
            if not self._keeper.pods.is_waiting(uid):
                del self.under_way[uid]
            elif any(victim.pod.uid in bound for victim in eviction.victims):
                continue
            elif since is None:
                self.under_way[uid] = eviction, now
            elif since < now - _LONGEST_REPORT:
                self.failed(eviction, now)

    def plan(self, budgets: Sequence[Budget], now: float) -> Eviction | None:
        """Return how room is made for the first pod or group for which that can be; None: for none.

        A group comes before pods of its priority. The nodes are kept for them from now on.
        """
        pods = self.candidates(now)[:_MOST_KINDS]
        groups = self._groups(now)[:_MOST_GROUPS]
        for pod in pods:
            priority = pod.watched.priority
            before = [group for group in groups if group.priority >= priority]
            groups = groups[len(before) :]
            eviction = self._plan_for_first(before, budgets, now) or self._plan_for(pod, budgets)
            if eviction is not None:
                return self._begin(eviction)

            self._vain[pod.kind, priority] = now

        eviction = self._plan_for_first(groups, budgets, now)
        return None if eviction is None else self._begin(eviction)

    def _plan_for_first(
        self, groups: Iterable[WaitingGroup], budgets: Sequence[Budget], now: float
    ) -> Eviction | None:
        """Return how room is made for the first group for which that can be; None: for none."""
        for group in groups:
            eviction = plan_for_group(self._keeper, group, budgets)
            if eviction is not None:
                return eviction
            self._vain[group.shape] = now

        return None

    def _begin(self, eviction: Eviction) -> Eviction:
        self.under_way[eviction.pod.uid] = eviction, None
        for name in eviction.nodes:
            self._keeper.kept.reserve(name, eviction.pod)
        return eviction

    def failed(self, eviction: Eviction, now: float) -> None:
        """Take in that room was not made: a pod did not go, or the node took another one."""
        pod = eviction.pod
        self.under_way.pop(pod.uid, None)
        group = self._keeper.groups.of(pod.uid)
        is_member = group is not None and pod.uid in group.waiting
        key = group.shape if group is not None and is_member else (pod.kind, pod.watched.priority)
        self._vain[key] = now
        for name in eviction.nodes:
            self._keeper.kept.give_back(name)

    def _plan_for(self, pod: WaitingPod, budgets: Sequence[Budget]) -> Eviction | None:
        nodes = list(islice(self._nodes_for(pod), _MOST_NODES))
        by_uid = {watched.pod.uid: watched for _, going, _ in nodes for watched in going}
        rules = rules_of(by_uid.values(), budgets)

        best: Eviction | None = None
        for name, going, node in nodes:
            victims = fewest_victims(node, pod.watched.pod, [bound.pod for bound in going], rules)
            if victims is None or rules.violations(victims):
                continue

            eviction = Eviction(pod, (name,), tuple([by_uid[victim.uid] for victim in victims]))
            if not victims:
                return eviction
            if self._is_enough(eviction) and (
                best is None or rules.loss(victims) < rules.loss(_pods(best))
            ):
                best = eviction

        if best is None or len(best.victims) > 1:
            return best

        left = {name: node for name, _, node in nodes if name in best.nodes}
        left |= {name: node for name, _, node in nodes[:_MOST_LEFT]}
        moved = self._plan_moves(pod, left, by_uid, rules)
        if moved is not None and _weight(rules, moved) <= _weight(rules, best):
            return moved
        return best

    def _nodes_for(self, pod: WaitingPod) -> Iterable[tuple[str, list[WatchedPod], Node]]:
        """Yield nodes that could take a pod if others went: the least important ones first.

        Each with those who may go, and a copy without the pods that are leaving.
        """
        priority = pod.watched.priority
        helpful: list[tuple[tuple[int, str], list[WatchedPod], Node]] = []
        for member, node, load in self._keeper.kept.to_clear(pod):
            leaving = [bound for bound in member.pods.values() if bound.is_leaving]
            going = [bound for bound in member.pods.values() if may_go(bound, priority)]
            if refusal(pod.kind.constrained, node, load_without(load, [*leaving, *going])):
                continue

            highest = max((bound.priority for bound in going), default=priority)
            copy = without(member.node, [bound.pod for bound in leaving])
            helpful.append(((highest, member.name), going, copy))

        helpful.sort(key=lambda entry: entry[0])
        for (_, name), going, copy in helpful:
            yield name, going, copy

    def _is_enough(self, eviction: Eviction) -> bool:
        """Return whether a scheduler would put the pod on the node, too, when the others went."""
        for member, node, load in self._keeper.kept.to_clear(eviction.pod, eviction.nodes):
            leaving = [bound for bound in member.pods.values() if bound.is_leaving]
            return not refusal(
                eviction.pod.kind.constrained,
                node,
                load_without(load, [*leaving, *eviction.victims]),
            )

        return False

    def _plan_moves(
        self,
        pod: WaitingPod,
        nodes: dict[str, Node],
        by_uid: dict[str, WatchedPod],
        rules: Rules,
    ) -> Eviction | None:
        """Return how room is made so that each pod that goes finds another place at once.

        Args:
            pod: the pod that waits.
            nodes: those from which pods may go, by name.
            by_uid: the pods that may go.
            rules: who of them comes back, and the budgets.
        """
        others = [
            (name, member.node)
            for name, member in self._keeper.state.members.items()
            if name not in nodes and isinstance(member, ExactMember)
        ]
        others.sort(key=lambda entry: len(entry[1].pods))
        known = {**nodes, **dict(others[:_MOST_ENTERED])}
        standings = {
            bound.uid: Standing(comes_back=False)
            for node in known.values()
            for bound in node.pods
            if bound.uid not in by_uid or node not in nodes.values()
        }
        standings = {**rules.standings, **standings}
        standings[pod.uid] = Standing(pod.watched.priority)
        try:
            plan = plan_room(
                Cluster.from_nodes(known),
                [pod.watched.pod],
                standings=standings,
                budgets=rules.budgets,
            )
        except AlignupError:  # something decides otherwise when it is asked again
            return None

        if not plan.evictions or plan.left_out or plan.placements[0].node not in nodes:
            return None

        victims = tuple([by_uid[step.pod.uid] for step in plan.evictions])
        eviction = Eviction(pod, (plan.placements[0].node,), victims)
        return eviction if self._is_enough(eviction) else None


class Evictor:
    """Carries plans out, one after the other.

    Args:
        api: the API server.
        keeper: gives the pods their places.
        clock: that of the keeper.
    """

    def __init__(self, api: api_client.Api, keeper: Keeper, clock: Callable[[], float]) -> None:
        self.preemption = Preemption(keeper)
        # Pods that were evicted, for metrics.
        self.evicted = 0
        self._api = api
        self._clock = clock

    async def run(self, leads: Callable[[], bool]) -> None:
        """Make room until cancelled, while this process leads."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not leads() or not self.preemption.has_candidates(self._clock()):
                continue

            with self._api.complaining("no pod is evicted: "):
                budgets = [
                    decode_budget(item)
                    async for item in list_objects(self._api, api_client.BUDGETS)
                ]
                eviction = self.preemption.plan(budgets, self._clock()) if leads() else None
                if eviction is not None:
                    await self._evict(eviction)

    async def _evict(self, eviction: Eviction) -> None:
        try:
            for victim in eviction.victims:
                pod = victim.pod
                await api_client.evict(self._api, pod.namespace, pod.name, pod.uid)
                self.evicted += 1
                await self._say(victim, eviction)
        except api_client.ApiError:
            self.preemption.failed(eviction, self._clock())
            raise

    async def _say(self, victim: WatchedPod, eviction: Eviction) -> None:
        """Say of a pod that was evicted for whom, where people look for it."""
        pod = victim.pod
        waiting = eviction.pod.watched
        message = (
            f"evicted from node {victim.node} for pod {waiting.pod.namespaced_name}, which has "
            f"the priority {waiting.priority}"
        )
        about = Metadata(name=pod.name, namespace=pod.namespace, uid=pod.uid)
        with self._api.complaining():
            await write_event(self._api, about, "Preempted", message, COMPONENT)


def _weight(rules: Rules, eviction: Eviction) -> tuple[object, ...]:
    """Return a key that is lower for the lesser loss, but for what tells equal pods apart."""
    violations, count, priorities, *_ = rules.loss(_pods(eviction))
    return violations, count, priorities


def _pods(eviction: Eviction) -> list[Pod]:
    return [victim.pod for victim in eviction.victims]
