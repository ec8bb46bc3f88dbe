"""Makes room for pods that wait: evicts less important ones, and keeps what they free.

kube-scheduler preempts for no pod that has a gate. So this finds pods whose end lets a waiting pod
in, and evicts them by the Eviction API, which respects disruption budgets and lets each pod end in
its own time. The rules are kube-scheduler's but for the budgets, which it exceeds where nothing
else helps (`DefaultPreemption`, Kubernetes 1.37):

- Only pods of a strictly lower priority go, and never for a pod with `preemptionPolicy: Never`.
- No more go than have to: of two sets the smaller one, then the less important one. Among equals, a
  pod goes that finds another place at once (`plan_room`), then the youngest.
- Where pods that are leaving already make the room, it is waited for them.

The node is kept for the pod from then on (`KeptNodes.reserve`). Of pods with constraints that only
their scheduler sees nobody knows here whether an eviction helps: for them nobody goes. Nor does
anybody for a member of a group, and no member goes: the others would run for nothing.

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
from alignup.control_plane.gates.reasons import COMPONENT
from alignup.control_plane.gates.scheduler_rules import NodeLoad, refusal
from alignup.control_plane.gates.waiting_pods import OF_A_NODE
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.errors import AlignupError
from alignup.kubernetes.wire import Metadata
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from alignup.cluster.evictions import Rules
    from alignup.control_plane.api_server.objects import Budget, WatchedPod
    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod
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

# Kinds of pods for which room is looked for in one look.
_MOST_KINDS: Final = 4


class Eviction(Record):
    """How room is made for a pod.

    Attributes:
        pod: the pod that waits.
        node: where it is made.
        victims: who has to go; empty: those that are leaving are enough.
    """

    pod: WaitingPod
    node: str
    victims: tuple[WatchedPod, ...] = ()


class Preemption:
    """Plans evictions, from what a keeper knows of the cluster."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        # By uid of the pod that waits, what is done for it, and since when nobody is in its way.
        self.under_way: dict[str, tuple[Eviction, float | None]] = {}
        # By kind and priority, when room was looked for in vain.
        self._vain: dict[tuple[Kind, int], float] = {}

    def candidates(self, now: float) -> list[WaitingPod]:
        """Return the pods for which others may go, in their order; of equal ones the first."""
        self._vain = {key: at for key, at in self._vain.items() if at > now - _PAUSE}
        self._forget_what_is_over(now)
        pods: dict[tuple[Kind, int], WaitingPod] = {}
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

        lowest = min((bound.priority for bound in self._keeper.state.pods.values()), default=0)
        return [pod for pod in pods.values() if pod.watched.priority > lowest]

    def _forget_what_is_over(self, now: float) -> None:
        """Forget evictions whose pod has a place or is gone, and those that came to nothing."""
        for uid, (eviction, since) in list(self.under_way.items()):
            bound = self._keeper.state.pods
            if uid not in self._keeper.queue:
                del self.under_way[uid]
            elif any(victim.pod.uid in bound for victim in eviction.victims):
                continue
            elif since is None:
                self.under_way[uid] = eviction, now
            elif since < now - _LONGEST_REPORT:
                self.failed(eviction, now)

    def plan(self, budgets: Sequence[Budget], now: float) -> Eviction | None:
        """Return how room is made for the first pod for which that can be; None: for none.

        The node is kept for the pod from now on.
        """
        for pod in self.candidates(now)[:_MOST_KINDS]:
            eviction = self._plan_for(pod, budgets)
            if eviction is not None:
                self.under_way[pod.uid] = eviction, None
                self._keeper.kept.reserve(eviction.node, pod)
                return eviction

            self._vain[pod.kind, pod.watched.priority] = now

        return None

    def failed(self, eviction: Eviction, now: float) -> None:
        """Take in that room was not made: a pod did not go, or the node took another one."""
        pod = eviction.pod
        self.under_way.pop(pod.uid, None)
        self._vain[pod.kind, pod.watched.priority] = now
        self._keeper.kept.give_back(eviction.node)

    def _plan_for(self, pod: WaitingPod, budgets: Sequence[Budget]) -> Eviction | None:
        nodes = list(islice(self._nodes_for(pod), _MOST_NODES))
        by_uid = {watched.pod.uid: watched for _, going, _ in nodes for watched in going}
        rules = rules_of(by_uid.values(), budgets)

        best: Eviction | None = None
        for name, going, node in nodes:
            victims = fewest_victims(node, pod.watched.pod, [bound.pod for bound in going], rules)
            if victims is None or rules.violations(victims):
                continue

            eviction = Eviction(pod, name, tuple([by_uid[victim.uid] for victim in victims]))
            if not victims:
                return eviction
            if self._is_enough(eviction) and (
                best is None or rules.loss(victims) < rules.loss(_pods(best))
            ):
                best = eviction

        if best is None or len(best.victims) > 1:
            return best

        left = {best.node: next(node for name, _, node in nodes if name == best.node)}
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
            going = [
                bound
                for bound in member.pods.values()
                if bound.priority < priority
                and not bound.is_leaving
                and not bound.is_copy
                and bound.owner not in OF_A_NODE
                and bound.membership is None
            ]
            if refusal(pod.kind.constrained, node, _less(load, [*leaving, *going])):
                continue

            highest = max((bound.priority for bound in going), default=priority)
            copy = without(member.node, [bound.pod for bound in leaving])
            helpful.append(((highest, member.name), going, copy))

        helpful.sort(key=lambda entry: entry[0])
        for (_, name), going, copy in helpful:
            yield name, going, copy

    def _is_enough(self, eviction: Eviction) -> bool:
        """Return whether a scheduler would put the pod on the node, too, when the others went."""
        for member, node, load in self._keeper.kept.to_clear(eviction.pod, {eviction.node}):
            leaving = [bound for bound in member.pods.values() if bound.is_leaving]
            return not refusal(
                eviction.pod.kind.constrained, node, _less(load, [*leaving, *eviction.victims])
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
        eviction = Eviction(pod, plan.placements[0].node, victims)
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
            if not leads() or not self.preemption.candidates(self._clock()):
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
                await self._say(pod, eviction)
        except api_client.ApiError:
            self.preemption.failed(eviction, self._clock())
            raise

    async def _say(self, pod: Pod, eviction: Eviction) -> None:
        """Say of a pod that was evicted for whom, where people look for it."""
        waiting = eviction.pod.watched
        message = (
            f"evicted from node {eviction.node} for pod {waiting.pod.namespaced_name}, which has "
            f"the priority {waiting.priority}"
        )
        about = Metadata(name=pod.name, namespace=pod.namespace, uid=pod.uid)
        with self._api.complaining():
            await write_event(self._api, about, "Preempted", message, COMPONENT)


def _less(load: NodeLoad, pods: Iterable[WatchedPod]) -> NodeLoad:
    """Return the sums of a node without some of its pods."""
    less = NodeLoad()
    less.pods = load.pods
    less.amounts = load.amounts.copy()
    less.host_ports = load.host_ports.copy()
    for bound in pods:
        less.remove(bound.pod)
    return less


def _weight(rules: Rules, eviction: Eviction) -> tuple[object, ...]:
    """Return a key that is lower for the lesser loss, but for what tells equal pods apart."""
    violations, count, priorities, *_ = rules.loss(_pods(eviction))
    return violations, count, priorities


def _pods(eviction: Eviction) -> list[Pod]:
    return [victim.pod for victim in eviction.victims]
