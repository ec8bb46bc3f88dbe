"""Plans which pods have to go so that waiting pods find a place.

These are as few and as unimportant ones as possible. Every step of a plan was tried on copies of
the nodes, whose own decisions it shows. `plan_room` is for a cluster, and `fewest_victims` for one
node.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations
from math import comb
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from alignup.cluster.cluster import AMOUNTS_ONLY, Cluster, Evaluation
from alignup.cluster.node_totals import Totals, demand_key
from alignup.errors import AlignupError, InputError
from alignup.machine.bits import union
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node
    from alignup.topology_manager.admission import Admission

# Evictions up to which all sets of pods are looked at.
MOST_PROVEN: Final = 3
# Evictions beyond which no proof is tried.
_MOST_DOUBTED: Final = 8
# Sets of one size that are looked at for a proof.
_MOST_SETS: Final = 20_000
# Trials of pods on nodes for a proof.
_MOST_TRIALS: Final = 4000
# Sets of one size that are tried for a pod where nothing is proven.
_MOST_ATTEMPTS: Final = 50
_STRATEGY: Final = "most-allocated"

# Nodes on which a pod is tried where nothing is proven.
_MOST_NODES: Final = 24


class Standing(Record):
    """The facts about a pod that decide whether it may go for others.

    Attributes:
        since: when it began to run, in seconds: of pods that are equal otherwise the youngest goes.
        budgets: the disruption budgets that protect it.
        comes_back: whether a controller makes another one in its place; a pod that would be lost is
            never evicted.

    Examples:
        >>> Standing(priority=100, comes_back=False).priority
        100
    """

    priority: int = 0
    since: float = 0.0
    budgets: tuple[str, ...] = ()
    comes_back: bool = True


class Step(Record):
    """One step of a plan.

    Attributes:
        action: `evict`, `place` (a pod that waits), or `move` (the place of a pod that was
            evicted).
        numa_nodes: the kernel's ids of the NUMA nodes that the pod gets; empty: any, or it goes.
    """

    action: str
    pod: Pod
    node: str
    numa_nodes: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the step as JSON can hold it."""
        pod = self.pod
        step: dict[str, Any] = {
            "action": self.action,
            "pod": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "node": self.node,
        }
        if self.action != "evict":
            step["numaNodes"] = list(self.numa_nodes) or None
        return step


class RoomPlan(Record):
    """How waiting pods find a place.

    Attributes:
        steps: in the order in which they were tried, and work.
        left_out: the pods for which no place was found.
        proven: no plan with fewer evictions gives all pods a place.

    Examples:
        >>> container = {"name": "c", "image": "i"}
        >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
        >>> plan = plan_room(Cluster.from_nodes({"a": Node(read_machine("xeon-2s"))}), [pod])
        >>> [step.action for step in plan.steps], plan.left_out
        (['place'], ())
    """

    steps: tuple[Step, ...]
    left_out: tuple[Pod, ...]
    proven: bool

    def _of(self, action: str) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action == action)

    @property
    def evictions(self) -> tuple[Step, ...]:
        """The pods that go."""
        return self._of("evict")

    @property
    def moves(self) -> tuple[Step, ...]:
        """The places that these find."""
        return self._of("move")

    @property
    def placements(self) -> tuple[Step, ...]:
        """The places of the pods that wait."""
        return self._of("place")

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it."""
        return {
            "steps": [step.to_dict() for step in self.steps],
            "evictions": len(self.evictions),
            "placed": len(self.placements),
            "leftOut": [
                {"pod": pod.name, "namespace": pod.namespace, "uid": pod.uid}
                for pod in self.left_out
            ],
            "proven": self.proven,
        }


class Rules(Record):
    """Who may go, and which sets of pods are the lesser loss.

    Attributes:
        standings: by uid; a pod that is not there is as `Standing()` says.
        budgets: how many disruptions each budget still allows.
    """

    standings: Mapping[str, Standing] = field(default_factory=dict)
    budgets: Mapping[str, int] = field(default_factory=dict)

    def of(self, pod: Pod) -> Standing:
        """Return the standing of a pod."""
        return self.standings.get(pod.uid, _NOBODY)

    def may_be_evicted_for(self, pod: Pod, waiting_pod: Pod) -> bool:
        """Return whether a pod may go for another one: it comes back, and is not more important."""
        standing = self.of(pod)
        return standing.comes_back and standing.priority <= self.of(waiting_pod).priority

    def violations(self, pods: Iterable[Pod], spent: Mapping[str, int] | None = None) -> int:
        """Return by how many disruptions the eviction of these pods exceeds the budgets.

        Args:
            pods: those that would go.
            spent: by name, the disruptions that budgets allowed already.
        """
        spent = spent or {}
        disruptions = Counter(name for pod in pods for name in self.of(pod).budgets)
        return sum(
            max(0, count - (self.budgets.get(name, 0) - spent.get(name, 0)))
            for name, count in disruptions.items()
        )

    def loss(self, pods: Sequence[Pod]) -> tuple[Any, ...]:
        """Return a key that is lower for the lesser loss.

        What counts is first the number, then priority, disruption budgets, and age.
        """
        standings = [self.of(pod) for pod in pods]
        return (
            self.violations(pods),
            len(pods),
            sorted((standing.priority for standing in standings), reverse=True),
            sum(len(standing.budgets) for standing in standings),
            sorted(-standing.since for standing in standings),
        )


_NOBODY: Final = Standing()


def admits(node: Node, pod: Pod) -> bool:
    """Return whether a node would admit a pod without preempting others by itself."""
    try:
        admission = node.try_admit(pod)
    except AlignupError:  # its own policy does not go with the node, or it is there already
        return False
    return admission.admitted and not admission.preempted


def without(node: Node, pods: Iterable[Pod]) -> Node:
    """Return a copy of a node without some of its pods.

    It also looks at the sums over all pods, as a kubelet does.
    """
    copy = node.copy()
    copy.whole_verdict = True
    uids = {pod.uid for pod in copy.pods}
    for pod in pods:
        if pod.uid in uids:
            copy.remove(pod.uid)
    return copy


def fewest_victims(
    node: Node, pod: Pod, candidates: Sequence[Pod], rules: Rules
) -> list[Pod] | None:
    """Return the pods whose end lets a node admit a pod; None: not even the end of all does.

    Of sets of up to three it is the least loss. Sets that exceed no budget go before others. More
    than three are found greedily, none of which can be spared.
    """
    if admits(without(node, ()), pod):
        return []
    if not admits(without(node, candidates), pod):
        return None

    for victims in sorted(_small_sets(candidates), key=rules.loss):
        if admits(without(node, victims), pod):
            return list(victims)

    evicted: list[Pod] = []
    for candidate in sorted(candidates, key=lambda candidate: rules.loss([candidate])):
        evicted.append(candidate)
        if admits(without(node, evicted), pod):
            break

    for spared in sorted(evicted, key=lambda victim: rules.loss([victim]), reverse=True):
        fewer = [victim for victim in evicted if victim is not spared]
        if admits(without(node, fewer), pod):
            evicted = fewer

    return evicted


def _small_sets(candidates: Sequence[Pod]) -> list[tuple[Pod, ...]]:
    """Return all sets of a few candidates, of each size that makes not too many."""
    sets: list[tuple[Pod, ...]] = []
    for size in range(1, min(MOST_PROVEN, len(candidates)) + 1):
        if comb(len(candidates), size) <= _MOST_SETS:
            sets += combinations(candidates, size)

    return sets


def plan_room(
    cluster: Cluster,
    pods: Sequence[Pod],
    *,
    standings: Mapping[str, Standing] | None = None,
    budgets: Mapping[str, int] | None = None,
) -> RoomPlan:
    """Return the fewest evictions after which these pods are admitted.

    Every evicted pod is admitted again somewhere.

    A pod is evicted only if a controller replaces it, if the replacement is aligned as well as
    before, if the waiting pod is at least as important, and if disruption budgets allow it. For up
    to three evictions in a small cluster, all sets of pods are tried, the least loss first: by
    number, priority, disruption budgets, age. Beyond that, pods are placed one by one, the most
    important first.

    Args:
        cluster: made from nodes; it stays as it is.
        pods: those that wait.
        standings: by uid, facts about pods; others have the priority of their manifest and come
            back.
        budgets: by name, how many disruptions each disruption budget allows.

    Raises:
        InputError: the cluster knows amounts only, or a pod is there already.

    Examples:
        >>> container = {"name": "c", "image": "i"}
        >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
        >>> plan_room(Cluster.from_nodes({"a": Node(read_machine("xeon-2s"))}), [pod]).evictions
        ()
    """
    if not cluster.nodes:
        raise InputError(AMOUNTS_ONLY)

    bound = [bound_pod for node in cluster.nodes for bound_pod in node.pods]
    uids = {bound_pod.uid for bound_pod in bound}
    for pod in pods:
        if pod.uid in uids:
            raise InputError.at("the waiting pods", "a pod that is on no node", pod.namespaced_name)
        uids.add(pod.uid)

    default_standings = {
        pod.uid: Standing(pod.constraints.priority or 0) for pod in (*bound, *pods)
    }
    rules = Rules({**default_standings, **(standings or {})}, budgets or {})
    waiting = sorted(pods, key=lambda pod: -rules.of(pod).priority)
    nodes = dict(zip(cluster.names, cluster.nodes, strict=True))

    greedy = _Greedy(nodes, rules)
    left_out = tuple([pod for pod in waiting if not greedy.serve(pod)])
    steps = tuple(greedy.steps)
    evictions = len(greedy.evicted)
    proven = not left_out and evictions == 0

    if not proven and evictions + len(left_out) <= _MOST_DOUBTED:
        most_evictions = MOST_PROVEN if left_out else min(MOST_PROVEN, evictions)
        proof = _Proof(nodes, waiting, rules)
        for size in range(most_evictions + 1):
            proven = proof.is_whole and (size == evictions or proven) and not left_out
            proven_steps = proof.plan_of(size)
            if proven_steps is not None:
                steps = proven_steps
                left_out = ()
                proven = size == 0 or proof.was_whole
                break

    _replay(nodes, steps)
    return RoomPlan(steps, left_out, proven)


def _answers(cluster: Cluster, pod: Pod) -> Evaluation:
    """Return what the nodes say to a pod: all say no where it asks for more than can be judged."""
    # a node that is asked itself may have the pod, which is to go
    asked = pod.renamed(uid=f"{pod.uid}/asked")
    try:
        return cluster.evaluate(asked, _STRATEGY)
    except InputError:
        return Evaluation.empty(len(cluster))


def _replay(nodes: Mapping[str, Node], steps: Iterable[Step]) -> None:
    """Check a plan on fresh copies of the nodes.

    Raises:
        InputError: a step does not work, as where a provider of a user decides by chance.
    """
    copies = {name: without(nodes[name], ()) for name in {step.node for step in steps}}
    for step in steps:
        node = copies[step.node]
        if step.action == "evict":
            node.remove(step.pod.uid)
            continue

        admission = node.admit(step.pod)
        if not admission or admitted_numa_nodes(node, admission) != step.numa_nodes:
            raise InputError(
                f"node {step.node} decides otherwise on {step.pod.name} when it is asked again"
            )


def admitted_numa_nodes(node: Node, admission: Admission) -> tuple[int, ...]:
    """Return the kernel's ids of the NUMA nodes that the containers of a pod got."""
    positions: set[int] = set()
    for container in admission.containers.values():
        hint = container.affinity
        if hint is not None and hint.affinity is not None:
            positions.update(hint.affinity)

    numa_ids = node.machine.numa_node_ids
    return tuple([numa_id for place, numa_id in enumerate(numa_ids) if place in positions])


def _width(node: Node, pod: Pod) -> int:
    """Return on how many NUMA nodes a pod holds what it has; all where it holds nothing."""
    mask = union(node.numa_nodes(pod.uid, container.name) for container in pod.all_containers)
    return mask.bit_count() or len(node.machine.numa_nodes)


# Pods that go, each with its node.
_Victims: TypeAlias = "tuple[tuple[str, Pod], ...]"
# Steps, and by name the nodes that are others after them.
_Plan: TypeAlias = "tuple[tuple[Step, ...], dict[str, Node]]"


class _Search:
    """Finds places for pods on copies of nodes.

    Args:
        nodes: by name.
        rules: who may go.
    """

    def __init__(self, nodes: Mapping[str, Node], rules: Rules) -> None:
        self._rules = rules
        self._nodes = {name: without(node, ()) for name, node in nodes.items()}
        self._cluster = Cluster.from_nodes(self._nodes)
        self._totals = Totals(self._cluster.nodes)
        # Of pods on nodes that are left; below zero: there were too many.
        self._trials = 0

    def _takers(self, pod: Pod) -> Iterable[str]:
        """Return the nodes that may take a pod as they are, by the compiled core."""
        raise NotImplementedError

    def _large_enough(self, pod: Pod) -> npt.NDArray[np.bool_]:
        """Return which nodes have as much in total as a pod requests, by number.

        A kubelet admits a pod whose devices its node lacks altogether; a scheduler does not send it
        there.
        """
        return self._totals.could_fit(self._totals.request(pod))

    def _plan(self, waiting: Sequence[Pod], going: Sequence[tuple[str, Pod]]) -> _Plan | None:
        """Return how pods find a place if others go, and the nodes that change.

        There is a place too for those that go.
        """
        pods_going: dict[str, list[Pod]] = {}
        for name, pod in going:
            pods_going.setdefault(name, []).append(pod)
        changed = {name: without(self._nodes[name], pods) for name, pods in pods_going.items()}

        moved = sorted(going, key=lambda victim: -self._rules.of(victim[1]).priority)
        pods_and_widths = [(pod, 0) for pod in waiting]
        pods_and_widths += [(pod, _width(self._nodes[name], pod)) for name, pod in moved]

        plan = self._places(changed, pods_and_widths)
        if plan is None:
            return None

        steps, nodes = plan
        evictions = [Step("evict", pod, name) for name, pod in going]
        return (*evictions, *steps), nodes

    def _places(
        self, changed: dict[str, Node], pods_and_widths: Sequence[tuple[Pod, int]]
    ) -> _Plan | None:
        """Return places for pods, one after the other; None: there are none.

        Args:
            changed: by name, the nodes that are others by then.
            pods_and_widths: pods, each with the most NUMA nodes that it may get; 0: any number.
        """
        if not pods_and_widths:
            return (), changed

        pod, width = pods_and_widths[0]
        is_large_enough = self._large_enough(pod)
        for name in dict.fromkeys((*changed, *self._takers(pod))):
            if not is_large_enough[self._cluster.index(name)]:
                continue

            self._trials -= 1
            if self._trials < 0:
                return None

            node = changed.get(name) or self._nodes[name]
            if not admits(node, pod):
                continue

            after = node.copy()
            numa_nodes = admitted_numa_nodes(after, after.admit(pod))
            if width and len(numa_nodes) > width:
                continue

            later_plan = self._places({**changed, name: after}, pods_and_widths[1:])
            if later_plan:
                steps, nodes = later_plan
                action = "move" if width else "place"
                return (Step(action, pod, name, numa_nodes), *steps), nodes

        return None


class _Greedy(_Search):
    """Serves pods one after the other; the nodes change as plans are kept."""

    def __init__(self, nodes: Mapping[str, Node], rules: Rules) -> None:
        super().__init__(nodes, rules)
        self.steps: list[Step] = []

        # each node without one of its pods, judged like a node of its own
        self._less: dict[tuple[str, str], Pod] = {}
        for name, node in nodes.items():
            for pod in node.pods:
                if rules.of(pod).comes_back:
                    self._less[name, pod.uid] = pod

        variants = {
            f"{name}/{uid}": without(nodes[name], [pod]) for (name, uid), pod in self._less.items()
        }
        self._variants = Cluster.from_nodes(variants)
        self._keys = list(self._less)
        emptied = {name: without(node, self._going(name)) for name, node in nodes.items()}
        self._empty = Cluster.from_nodes(emptied)

    @property
    def evicted(self) -> list[Pod]:
        """The pods that go."""
        return [step.pod for step in self.steps if step.action == "evict"]

    def serve(self, pod: Pod) -> bool:
        """Find a place for a pod, with evictions if it takes them; return whether there is one."""
        for going in chain([()], self._candidates(pod)):
            self._trials = _MOST_NODES * (1 + len(going))
            plan = self._plan([pod], going)
            if plan:
                self._keep(*plan)
                return True

        return False

    def _going(self, name: str) -> list[Pod]:
        """Return the pods of a node that come back elsewhere and were not moved yet."""
        return [pod for pod in self._nodes[name].pods if (name, pod.uid) in self._less]

    def _takers(self, pod: Pod) -> Iterable[str]:
        best = _answers(self._cluster, pod).best()
        fits = self._totals.fits(self._totals.request(pod))
        return [self._cluster.names[index] for index in best[fits[best]][:_MOST_NODES].tolist()]

    def _candidates(self, pod: Pod) -> Iterator[_Victims]:
        """Yield pods whose end may let the pod in, each with its node.

        Single ones come first, and of these the lesser losses.
        """
        is_large_enough = self._large_enough(pod)
        admitting_variants: list[int] = []
        if self._keys:
            admitting_variants = _answers(self._variants, pod).admitted.nonzero()[0].tolist()

        single_victims: list[_Victims] = []
        for index in admitting_variants:
            name, uid = self._keys[index]
            victim = self._less.get((name, uid))
            if victim is not None and is_large_enough[self._cluster.index(name)]:
                single_victims.append(((name, victim),))

        yield from self._in_order(pod, single_victims)

        victim_sets: list[_Victims] = []
        admitted = _answers(self._empty, pod).admitted & is_large_enough
        for index in admitted.nonzero()[0][:_MOST_NODES].tolist():
            name = self._cluster.names[index]
            candidates = [
                candidate
                for candidate in self._going(name)
                if self._rules.may_be_evicted_for(candidate, pod)
            ]
            if len(candidates) <= 1:
                continue

            victims = fewest_victims(self._nodes[name], pod, candidates, self._rules)
            if victims is not None and len(victims) > 1:
                victim_sets.append(tuple([(name, victim) for victim in victims]))

        yield from self._in_order(pod, victim_sets)

    def _in_order(self, pod: Pod, victim_sets: Iterable[_Victims]) -> Iterator[_Victims]:
        """Yield sets of pods that may go, the lesser losses first.

        Those come last that no other node takes.
        """
        rules = self._rules
        spent = Counter(
            name for evicted_pod in self.evicted for name in rules.of(evicted_pod).budgets
        )
        moves_elsewhere: dict[object, bool] = {}
        staying: list[_Victims] = []
        for going in sorted(
            victim_sets, key=lambda going: rules.loss([victim for _, victim in going])
        ):
            victims = [victim for _, victim in going]
            if rules.violations(victims, spent) or not all(
                rules.may_be_evicted_for(victim, pod) for victim in victims
            ):
                continue

            for victim in victims:
                kind = demand_key(victim)
                if kind not in moves_elsewhere:
                    admitted = _answers(self._cluster, victim).admitted
                    takers = admitted & self._large_enough(victim)
                    moves_elsewhere[kind] = bool(takers.any())

            if all(moves_elsewhere[demand_key(victim)] for victim in victims):
                yield going
            else:  # one would have to come back to its node, where there is less room now
                staying.append(going)

        yield from staying[:_MOST_ATTEMPTS]

    def _keep(self, steps: Sequence[Step], changed: Mapping[str, Node]) -> None:
        """Make steps a part of the plan, and judge nodes as they are after these."""
        self.steps += steps
        for step in steps:
            count = self._totals.remove if step.action == "evict" else self._totals.add
            count(self._cluster.index(step.node), self._totals.held(step.pod))
            self._less.pop((step.node, step.pod.uid), None)

        for name, node in changed.items():
            self._nodes[name] = node
            self._cluster.update(name, node)
            going = self._going(name)
            self._empty.update(name, without(node, going))
            for pod in going:
                self._variants.update(f"{name}/{pod.uid}", without(node, [pod]))


class _Proof(_Search):
    """Looks at all sets of so many pods, the lesser losses first.

    Args:
        nodes: by name.
        waiting: the pods that wait, in the order in which they are placed.
        rules: who may go.
    """

    def __init__(self, nodes: Mapping[str, Node], waiting: Sequence[Pod], rules: Rules) -> None:
        super().__init__(nodes, rules)
        self._waiting = waiting
        self._trials = _MOST_TRIALS
        # By uid of a pod, the nodes that would take it as they are.
        self._takers_of: dict[str, list[str]] = {}
        # Pods that may go, each with its node.
        self._candidates: list[tuple[str, Pod]] = []
        # Nodes that would take a waiting pod if all of their candidates went.
        self._helpful: set[str] = set()

        large_enough = [(pod, self._large_enough(pod)) for pod in waiting]
        for index, (name, node) in enumerate(nodes.items()):
            going = [
                pod
                for pod in node.pods
                if any(rules.may_be_evicted_for(pod, waiting_pod) for waiting_pod in waiting)
            ]
            self._candidates += [(name, pod) for pod in going]
            for pod, is_large_enough in large_enough:
                if is_large_enough[index] and admits(without(node, going), pod):
                    self._helpful.add(name)
                    break

        # Nothing was left out so far; and not before the last size.
        self.was_whole = self.is_whole = True

    def plan_of(self, size: int) -> tuple[Step, ...] | None:
        """Return the plan of so many evictions with the least loss.

        None: there is none, or there is too much to look at.
        """
        self.was_whole = self.is_whole
        if size == 0 and not all(map(self._takers, self._waiting)):  # more pods make no room
            return None

        self.is_whole = self.is_whole and comb(len(self._candidates), size) <= _MOST_SETS
        if not self.is_whole:
            return None

        sets = combinations(self._candidates, size)
        for going in sorted(sets, key=lambda going: self._rules.loss([pod for _, pod in going])):
            if size > 0 and all(name not in self._helpful for name, _ in going):
                continue
            if self._rules.violations([pod for _, pod in going]):
                continue

            plan = self._plan(self._waiting, going)
            self.is_whole = self._trials >= 0
            if plan is not None:
                return plan[0]
            if not self.is_whole:
                return None

        return None

    def _takers(self, pod: Pod) -> Iterable[str]:
        if pod.uid not in self._takers_of:
            takers = _answers(self._cluster, pod).admitted & self._large_enough(pod)
            names = [self._cluster.names[index] for index in takers.nonzero()[0].tolist()]
            self._takers_of[pod.uid] = names
        return self._takers_of[pod.uid]
