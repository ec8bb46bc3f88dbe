"""Answers a scheduler's questions about one pod.

They are which nodes can align it, how well, and whether evictions would help. The state is kept by
`cluster_state` beside this module; the wire format is that of `extender_wire`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import suppress
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from alignup.claims.question import MOST_COST, MOST_STEPS, Effort
from alignup.cluster.evictions import fewest_victims, without
from alignup.cluster.node_totals import demand_key
from alignup.control_plane.api_server.objects import Budget, WatchedPod, rules_of
from alignup.control_plane.scheduler.group_holds import GroupHolds
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.errors import AlignupError, InputError
from alignup.machine.bits import bit_numbers
from alignup.records import Record, field, replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.control_plane.scheduler.cluster_state import ClusterState
    from alignup.kubernetes.pod import Pod

HIGHEST_SCORE: Final = 10
UNKNOWN: Final = "NUMA: the topology of the node is unknown"
FAR: Final = (
    "NUMA: the devices of its claims are on other NUMA nodes than its CPUs and memory, "
    "or on unknown ones"
)
UNCERTAIN: Final = "NUMA: the node has not yet reported the pods bound to it last"
_REMEMBERED: Final = 10_000
_HUNDRED: Final = 100.0
# Of a node for a pod with claims, by whether their devices meet its CPUs and memory; strategies add
# up to 2.
_FIRST_SCORE: Final = {True: 8, None: 4, False: 0}
_ASKED_WITHIN: Final = 600.0
_MOST_KINDS: Final = 100
_MOST_KEPT: Final = 64
_MOST_TOLD: Final = 3


class Filtered(Record):
    """The nodes that can take a pod, and why each other node cannot.

    Attributes:
        failed: nodes that could take it if other pods were not there.
        unresolvable: nodes that could not take it even if they were empty, or of which that is not
            known.
    """

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """Return why no node takes the pod, in a sentence with the commonest causes."""
        counts = Counter((*self.failed.values(), *self.unresolvable.values()))
        causes = "; ".join(
            f"{count} {text.removeprefix('NUMA: ')}"
            for text, count in counts.most_common(_MOST_TOLD)
        )
        return f"none of {counts.total()} nodes can take the pod: {causes}"


class _Meets:
    """What nodes say to the claims of a kind of pods, and what may still be spent on asking them.

    Whoever writes a claim shall not keep everybody waiting: once that is spent, it cannot be told
    of further nodes whether they would place these pods near their devices.
    """

    __slots__ = ("by_node", "effort", "key")

    def __init__(self, key: object) -> None:
        self.key = key
        self.by_node: dict[str, bool | None] = {}
        self.effort = Effort(MOST_COST, MOST_STEPS)


class Answers:
    """Answers for a state that changes between the questions.

    Args:
        state: the cluster.
        fails_open: let nodes pass of which nothing is known.
        requires_near: refuse nodes where the devices of a pod's claims would not be near its CPUs
            and memory, or where that cannot be told; else these come last.
    """

    def __init__(
        self, state: ClusterState, *, fails_open: bool = True, requires_near: bool = False
    ) -> None:
        self.state = state
        self.fails_open = fails_open
        self.requires_near = requires_near
        # What members of groups were offered, who are asked for one after another.
        self.holds = GroupHolds(state)
        self._met = _Meets(())
        # What equal pods were told, and when: most pods of a cluster are copies, and those that
        # wait ask often.
        self._kept: OrderedDict[object, tuple[object, Filtered]] = OrderedDict()
        # By uid, pods that no node could take, and when they were asked for last.
        self.waiting: OrderedDict[str, tuple[WatchedPod, float]] = OrderedDict()
        # By uid, pods that were asked for lately: a binding names a pod and does not describe it.
        self.asked: OrderedDict[str, WatchedPod] = OrderedDict()

    def filter(self, pod: WatchedPod, names: Sequence[str], now: float) -> Filtered:
        """Return which of some nodes can take a pod.

        Raises:
            InputError: the pod asks for too many resources, or its annotation of a NUMA policy
                cannot be read.
        """
        self.holds.begin(pod, now)
        filtered = self._filter(pod, names, now)
        if pod.pod.uid in self.state.pods:  # a hold in its place would end, and free what it has
            return filtered

        refused = self.holds.offer(pod, filtered.passed, self.prioritize, now)
        if not refused:
            return filtered

        passed = [name for name in filtered.passed if name not in refused]
        return replace(filtered, passed=passed, failed={**filtered.failed, **refused})

    def _filter(self, pod: WatchedPod, names: Sequence[str], now: float) -> Filtered:
        """Return which of some nodes can take a pod, whatever its group was offered."""
        uid = pod.pod.uid
        kind = demand_key(pod.pod)
        self.waiting.pop(uid, None)
        keep_newest(self.asked, uid, pod)

        # the scheduler has no answer, yet the server has bound it, or may do so later
        if uid in self.state.pods:
            node = self.state.pods[uid].node
            is_or_may_be = "may be" if uid in self.state.assumed else "is"
            why = f"NUMA: the pod {is_or_may_be} bound to node {node}"
            others = [name for name in names if name != node]
            passed = [name for name in names if name == node]
            return Filtered(passed, unresolvable=dict.fromkeys(others, why))

        claims = self.state.claims.version if self.state.claims.concern(pod.pod) else ()
        state = self.state.view.version, claims, self.fails_open, list(self.state.uncertain), names
        state_before, filtered = self._kept.get(kind, (None, None))
        if filtered is None or state_before != state:
            filtered = self._filtered(pod, names)
            keep_newest(self._kept, kind, (state, filtered), _MOST_KEPT)

        if not filtered.passed:
            keep_newest(self.waiting, uid, (pod, now))

        return filtered

    def _filtered(self, pod: WatchedPod, names: Sequence[str]) -> Filtered:
        """Return which of some nodes can take a pod."""
        view = self.state.view
        numbers = view.numbers(names)
        judged = view.verdicts(pod.pod, self.state.strategy)
        # that of a node that is not known, -1, is the last place
        takes = np.append(judged.admitted, self.fails_open)[numbers]
        filtered = Filtered(list(compress(names, takes.tolist())))

        unknown = compress(names, (~takes & (numbers < 0)).tolist())
        filtered.unresolvable.update(dict.fromkeys(unknown, UNKNOWN))

        refuses = ~takes & (numbers >= 0)
        if refuses.any():
            places = numbers[refuses]
            helps = view.empty_admits(pod.pod, self.state.strategy)[places]  # evictions could help
            # a scheduler drops the words where a node takes the pod
            texts = view.texts(pod.pod, judged, places, asks_nodes=not filtered.passed)
            pairs = list(zip(compress(names, refuses.tolist()), texts, strict=True))
            filtered.failed.update(compress(pairs, helps.tolist()))
            filtered.unresolvable.update(compress(pairs, (~helps).tolist()))

        excluded: dict[str, str] = {}
        if self.state.uncertain:
            uncertain = self.state.uncertain.intersection(filtered.passed)
            excluded.update(dict.fromkeys(uncertain, UNCERTAIN))

        meets = self._meets(pod.pod)
        far = [
            name
            for name in filtered.passed
            if name not in excluded and not self._is_near_enough(pod.pod, name, meets)
        ]
        excluded.update(dict.fromkeys(far, FAR))
        if excluded:
            filtered.passed[:] = [name for name in filtered.passed if name not in excluded]
            filtered.unresolvable.update(excluded)

        return filtered

    def _meets(self, pod: Pod) -> _Meets:
        """Return what was found for pods of this kind since the last change.

        A scheduler asks twice for each pod, mostly with no change between. The key of a kind is
        made once a question, and not for each node.
        """
        if not self.state.claims.concern(pod):
            return _Meets(())

        key = self.state.view.version, self.state.claims.version, demand_key(pod)
        if self._met.key != key:
            self._met = _Meets(key)
        return self._met

    def _meet(self, pod: Pod, name: str, meets: _Meets) -> bool | None:
        """Return what `ClusterState.meet` does, and keep it in what `_meets` returned."""
        if name not in meets.by_node:
            meets.by_node[name] = self.state.meet(pod, name, meets.effort)
        return meets.by_node[name]

    def _is_near_enough(self, pod: Pod, name: str, meets: _Meets) -> bool:
        if not self.requires_near or not self.state.claims.concern(pod):
            return True
        return self._meet(pod, name, meets) is True

    def prioritize(self, pod: WatchedPod, names: Sequence[str]) -> list[int]:
        """Return a whole number from 0 to `HIGHEST_SCORE` for each name, higher for better.

        Strategies score to a hundred, of which every full ten are worth one here. For a pod with
        claims nodes come first where its devices would be near its CPUs and memory.

        Raises:
            InputError: as `filter`.
        """
        numbers = self.state.view.numbers(names)
        judged = self.state.view.verdicts(pod.pod, self.state.strategy)
        # as in `filter`; minus infinity counts as nothing
        scores = np.append(np.clip(judged.score, 0.0, _HUNDRED), 0.0)[numbers]
        has_claims = self.state.claims.concern(pod.pod)
        highest = HIGHEST_SCORE
        if has_claims:
            highest -= _FIRST_SCORE[True]

        whole: list[int] = np.floor(scores * (highest / _HUNDRED)).astype(np.int64).tolist()
        if not has_claims:
            return whole

        meets = self._meets(pod.pod)
        return [
            score + _FIRST_SCORE[self._meet(pod.pod, name, meets)]
            for score, name in zip(whole, names, strict=True)
        ]

    def known_nodes(self) -> dict[str, Any]:
        """Return which nodes are known, how well, and which have not reported their last pods."""
        names = self.state.view.names
        exact = [isinstance(self.state.members[name], ExactMember) for name in names]
        return {"nodes": list(names), "exact": exact, "uncertain": sorted(self.state.uncertain)}

    def evaluate(self, pod: Pod, names: Sequence[str]) -> dict[str, Any]:
        """Return what each of some nodes says to a pod, for schedulers of other kinds.

        A node that is gone refuses it.

        Raises:
            InputError: as `filter`.
        """
        judged = self.state.view.judge(pod, self.state.strategy)
        numbers = self.state.view.numbers(names)  # -1 of a node that is gone: the last element
        masks = np.append(judged.affinity, np.uint64(0))[numbers].tolist()
        numa_nodes = {mask: list(bit_numbers(mask)) for mask in set(masks)}
        return {
            "uid": pod.uid,
            "admitted": np.append(judged.admitted, False)[numbers].tolist(),
            "score": np.append(np.nan_to_num(judged.score, neginf=0.0), 0.0)[numbers].tolist(),
            "numaNodes": [numa_nodes[mask] for mask in masks],
        }

    def preempt(
        self, pod: WatchedPod, victims: Mapping[str, Sequence[str]], budgets: Sequence[Budget] = ()
    ) -> dict[str, tuple[list[str], int | None]]:
        """Return the pods to evict from each node so that it can take a pod.

        Nodes that never could are left out. Of a node that is known exactly these are as few and
        unimportant ones as possible: see `fewest_victims`.

        Args:
            pod: the pod that needs room.
            victims: by node, the uids of the pods that the scheduler would evict.
            budgets: the disruption budgets.

        Returns:
            By node, uids, and by how many disruptions they exceed the budgets; None: as the
            scheduler said.

        Raises:
            InputError: as `filter`.
        """
        victims_of_nodes: dict[str, tuple[list[str], int | None]] = {}
        for name, chosen in victims.items():
            member = self.state.members.get(name)
            if isinstance(member, ExactMember):
                needed = self._victims(pod, member, chosen, budgets)
                if needed is not None:
                    victims_of_nodes[name] = needed
            elif member is not None or self.fails_open:
                # which amounts an eviction frees, and where, is unknown
                victims_of_nodes[name] = list(chosen), None

        return victims_of_nodes

    def admits(self, pod: WatchedPod, name: str) -> bool:
        """Return whether one node can take a pod now."""
        if not self._is_near_enough(pod.pod, name, self._meets(pod.pod)):
            return False

        member = self.state.members.get(name)
        if member is None:
            return self.fails_open
        if not isinstance(member, ExactMember):
            return bool(self.state.view.admitting(pod.pod, [name], self.state.strategy))
        if name in self.state.uncertain:
            return False

        with suppress(AlignupError):
            if not self.state.view.refusals(pod.pod, [name]):
                return bool(member.node.try_admit(pod.pod))

        return False

    def woken(self, now: float) -> str:
        """Return a node whose change lets a waiting pod in, and forget the changes.

        Empty: there is none.
        """
        self.holds.end_old(now)
        changed = sorted(self.state.changed & (self.state.members.keys() - self.state.uncertain))
        self.state.changed.clear()
        if not changed or not self.waiting:
            return ""

        # a scheduler asks for every pod again within minutes; one that it does not ask for is gone
        for uid in [uid for uid, (_, since) in self.waiting.items() if since < now - _ASKED_WITHIN]:
            del self.waiting[uid]

        kinds = {
            _copies_key(waiting_pod.pod): waiting_pod for waiting_pod, _ in self.waiting.values()
        }
        for pod in list(kinds.values())[:_MOST_KINDS]:
            with suppress(InputError):
                admitting = self.state.view.admitting(pod.pod, changed, self.state.strategy)
                meets = self._meets(pod.pod)
                for name in admitting:
                    if self._is_near_enough(pod.pod, name, meets):
                        return name

        return ""

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self.waiting.pop(uid, None)
        self.asked.pop(uid, None)
        self.holds.end(uid)

    def _victims(
        self, pod: WatchedPod, member: ExactMember, chosen: Sequence[str], budgets: Sequence[Budget]
    ) -> tuple[list[str], int | None] | None:
        """Return the pods to evict from a node, and the violations of budgets.

        None: evictions do not help. What the scheduler has chosen stays where a pod asks for more
        than resources, or more than these is in its way.
        """
        bound_pods = {bound.pod.uid: bound for bound in member.pods.values()}
        rules = rules_of(bound_pods.values(), budgets)

        chosen_pods: list[Pod] = []
        if pod.is_particular:
            chosen_pods = [bound_pods[uid].pod for uid in chosen if uid in bound_pods]

        candidates = [
            bound.pod
            for bound in bound_pods.values()
            if bound.priority < pod.priority and bound.pod not in chosen_pods
        ]
        victims = fewest_victims(without(member.node, chosen_pods), pod.pod, candidates, rules)
        if victims is None:
            return None

        going = [*chosen_pods, *victims]
        if not going:
            return list(chosen), None
        return [victim.uid for victim in going], rules.violations(going)


def _copies_key(pod: Pod) -> object:
    """Return what is equal for copies: what lets one in lets in the others.

    They share their containers, which tells them apart sooner than `demand_key`; annotations may
    name other policies, and claims are their own.
    """
    claims = pod.constraints.claims
    namespace = pod.namespace if claims else ""
    return (id(pod.all_containers), namespace, claims, *pod.annotations.items())


def keep_newest(
    newest: OrderedDict[Any, Any], key: object, value: object, limit: int = _REMEMBERED
) -> None:
    """Keep something as the newest, and forget the oldest beyond so many."""
    newest[key] = value
    newest.move_to_end(key)
    while len(newest) > limit:
        newest.popitem(last=False)
