"""Kubelets, an API server that repeats itself and forgets, and a state that watches them.

Everything that happens is drawn from a seed, and time goes on by as much as is drawn. Beside the
state stands what is true: which pods an API server has, and what kubelets hold. After each step

- nothing that a kubelet holds, and of which the state was told, is free in the state;
- what no kubelet holds and no API server has is free within `BOUND` seconds after the next list.

Pods come through the extender, through another scheduler, and as static pods. They end, are deleted
with and without patience, are refused, and static ones lose the copy that stands for them on the
API server, and get another one. Lists may be `OLDEST` seconds behind; events come twice, late, in
another order, and as if the pod had no node.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, deque
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import msgspec

from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.kubelet.node_resource_topology.report import (
    HOLDINGS,
    NODE,
    Description,
    Holdings,
    Report,
    decode_report,
    holdings_of,
)
from alignup.records import replace
from inputs.watched_objects import READER, description, pod_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.node import Node

OLDEST = 20.0
"""Seconds that a list may be behind."""
GRACE = 30
"""Seconds within which a kubelet has ended a pod that it is told to end."""
BOUND = 150.0
"""Seconds after a list within which everything is free that is gone."""
TICK = 5.0
MOST_PODS = 10

DESCRIPTION = json.dumps(description())
EMPTY = Description().template(DESCRIPTION, {})
SIZES = (
    {"cpu": 1},
    {"cpu": 2, "gpu": 1},
    {"cpu": 3, "memory": "3Gi"},
    {"cpu": 4},
    {"cpu": "500m", "memory": "0"},
)
GPU = "example.com/gpu"


def held_by(node: Node, uid: str) -> Counter[str]:
    """Return how much of each resource a pod holds."""
    amounts: Counter[str] = Counter()
    for holding in holdings_of(node).pods:
        if holding.uid == uid:
            amounts["cpu"] = len(node.cpu.cpus(uid, "main") or ())
            for container in holding.containers.values():
                for shares in container.memory.values():
                    amounts["memory"] += sum(shares.values())
                amounts["gpu"] += len(container.devices.get(GPU, ()))
    return amounts


def free_of(node: Node) -> Counter[str]:
    """Return how much of each resource is free."""
    memory = node.memory.free
    return Counter(
        cpu=len(node.cpu.free_cpus),
        gpu=len(node.devices.free[GPU]),
        memory=sum(map(sum, memory.values())),
    )


def is_routine(happen: partial[None]) -> bool:
    """Return whether an event comes again and again, whatever happens."""
    return happen.func.__name__ in {"_tick", "_decide"}


class WatchedKubelets:
    """One run.

    Args:
        seed: of everything that is drawn.
        names: of the nodes.
        sizes: what pods ask for.
        faults: whether lists are behind, and events repeated, mixed up and wrong.
        pace: seconds between what happens, on average.
        leaves: whether nodes leave and come back, and leaders are replaced.
        strangers: whether there are pods of another scheduler, and static ones.
    """

    def __init__(
        self,
        seed: int,
        names: tuple[str, ...] = ("a", "b", "c"),
        sizes: tuple[dict[str, object], ...] = SIZES,
        *,
        faults: bool = True,
        pace: float = 1.0,
        leaves: bool = False,
        strangers: bool = True,
    ) -> None:
        self.random = Random(seed)
        self.faults = faults
        self.pace = pace
        self.leaves = leaves
        self.strangers = strangers
        self.now = 0.0
        self.kubelets = {name: EMPTY.copy() for name in names}
        self.templates = [self._template(number, size) for number, size in enumerate(sizes)]

        # What the API server has: by uid, pods that are bound; and those that have ended.
        self.bound: dict[str, WatchedPod] = {}
        self.ended: set[str] = set()
        self.snapshots: deque[tuple[float, dict[str, WatchedPod]]] = deque([(0.0, {})])

        # Of pods that a kubelet holds: static ones, and those of which the state was told.
        self.static: dict[str, WatchedPod] = {}
        self.told: set[str] = set()
        # By uid, since when a pod is nowhere, and was not said to be somewhere either.
        self.nowhere: dict[str, float] = {}
        self.full_list = 0.0
        self.reported: dict[str, set[str]] = {name: set() for name in names}

        self.outcomes: Counter[str] = Counter()
        self._numbers = count()
        self._events: list[tuple[float, int, partial[None]]] = []
        self._last: dict[str, float] = {}
        self._to_report: set[str] = set()
        self._to_list = 30.0
        self.follow()

        for name in names:
            self._publish(name)
        self._later(TICK, TICK, self._tick)
        self._run_until(10.0)

    def follow(self) -> None:
        """Let another state follow, as a new leader does: it knows what is listed."""
        self.state = ClusterState()
        self.answers = Answers(self.state, fails_open=False)
        self.state.nodes_listed({name: {} for name in self.kubelets})
        self.told.clear()
        self._events = [
            event for event in self._events if not event[2].func.__name__.startswith("_learn")
        ]
        self.reported = {name: set() for name in self.kubelets}
        self._list(is_cached=False)
        for name in self.kubelets:
            self._learn_report(self._report(name), name)

    @staticmethod
    def _template(number: int, size: dict[str, object]) -> WatchedPod:
        made = pod_object(f"t{number}", **size)
        made["spec"]["terminationGracePeriodSeconds"] = GRACE
        return READER.read(decode_pod(json.dumps(made).encode()))

    # Time.

    def _later(
        self, least: float, most: float, happen: Callable[[], None], stream: str = ""
    ) -> None:
        """Let something happen soon, and after what came earlier in the same stream."""
        moment = self.now + self.random.uniform(least, most)
        if stream:
            moment = self._last[stream] = max(moment, self._last.get(stream, 0.0) + 1e-6)
        heapq.heappush(self._events, (moment, next(self._numbers), partial(happen)))

    def _run_until(self, moment: float) -> None:
        while self._events and self._events[0][0] <= moment:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
            self.check()
        self.now = moment

    def _actions(self) -> list[tuple[float, Callable[[], None]]]:
        """Return what may happen, and how often."""
        chosen: list[tuple[float, Callable[[], None]]] = [
            (8, self._schedule),
            (6, self._finish),
            (3, self._delete),
            (2, self._delete_by_force),
            (1, self._lose_report),
        ]
        if self.strangers:
            chosen += [
                (3, self._bind_elsewhere),
                (2, self._start_static),
                (1, self._end_static),
                (2, self._lose_copy),
            ]
        if self.faults:
            chosen += [(2, self._repeat), (2, self._lose_node), (1, self._list_behind)]
        if self.leaves:
            chosen += [(0.3, self._leave), (0.03, self.follow)]
        return chosen

    def step(self) -> None:
        """Let something happen, and some time pass."""
        chosen = self._actions()
        weights = [weight for weight, _ in chosen]
        (action,) = self.random.choices([action for _, action in chosen], weights)
        action()
        self.check()
        self._run_until(self.now + self.random.expovariate(1 / self.pace))

    @property
    def kept(self) -> int:
        """How many things the state keeps of pods and nodes."""
        state = self.state
        collections = (
            *(state.pods, state.by_node, state.assumed, state.uncertain, state.changed),
            *(state._vanished, state._unreported, state._unordered, state._silent, state._reports),
            *self._collections(),
        )
        members = [self._member(name) for name in state.members]
        return sum(map(len, collections)) + sum(
            len(kept)
            for member in members
            for kept in (
                *(member.pods, member.node.pods, member._leaving, member._ended),
                *(member._doubted, member._written_off),
            )
        )

    def _collections(self) -> tuple[Sized, ...]:
        """Return what is kept beside the state."""
        return self.answers.asked, self.answers.waiting, self.answers._kept

    def settle(self) -> None:
        """Let everything become known, and compare the state with the kubelets."""
        self.faults = False
        # nodes that have left come back first
        while changes := [moment for moment, _, happen in self._events if not is_routine(happen)]:
            self._run_until(max(changes))
        self._run_until(self.now + 2 * BOUND)
        assert not self.state.uncertain
        for name, kubelet in self.kubelets.items():
            held = {pod.uid: pod for pod in holdings_of(kubelet).pods if pod.containers}
            member = self._member(name)
            assert {pod.uid: pod for pod in holdings_of(member.node).pods if pod.containers} == held

    # What is checked after each step.

    def _member(self, name: str) -> ExactMember:
        member = self.state.members[name]
        assert isinstance(member, ExactMember)
        return member

    def check(self) -> None:
        """Check what always holds."""
        for name, kubelet in self.kubelets.items():
            if name in self.state.members:
                self._check_node(self._member(name), kubelet)

    def _check_node(self, member: ExactMember, kubelet: Node) -> None:
        name = member.name
        running = {pod.uid for pod in kubelet.pods}

        # what the node has said is held is held, CPU by CPU
        free = member.node.cpu.free_cpus
        for uid in self.reported[name] & running:
            cpus = kubelet.cpu.cpus(uid, "main")
            assert not cpus or not set(cpus) & set(free), (self.now, name, uid)

        # of what it has not said yet the place is not known, but how much it is
        if name not in self.state.uncertain:
            most = free_of(kubelet)
            for uid in running - self.told:
                most += held_by(kubelet, uid)
            for resource, amount in free_of(member.node).items():
                assert amount <= most[resource], (self.now, name, resource, amount, most)

        for pod in member.node.pods:
            since = self.nowhere.get(pod.uid)
            if since is not None and pod.uid not in running and pod.uid not in self.bound:
                is_late = self.full_list > since and self.now > self.full_list + BOUND
                assert not is_late or not held_by(member.node, pod.uid), (self.now, name, pod.uid)

    # What the state learns.

    def _learn(self, kind: str, pod: WatchedPod) -> None:
        """Take in an event about a pod, as the extender does."""
        uid = pod.pod.uid
        self.answers.forget(uid)
        if kind == "seen":
            self.state.pod_seen(pod, self.now)
            self._tell(uid, pod)
        elif pod.has_ended:
            self.state.pod_gone(uid, self.now)
        else:
            self.state.pod_vanished(uid, self.now)
            if self.state.is_vanished(uid):
                self._later(0.0, 1.0, partial(self._learn_lookup, uid))

    def _learn_lookup(self, uid: str) -> None:
        if uid in self.bound:
            if self.state.is_vanished(uid):
                self.state.pod_seen(self.bound[uid], self.now)
                self._tell(uid, self.bound[uid])
        elif uid in self.ended:
            self.state.pod_gone(uid, self.now)
        else:
            self.state.pod_missing(uid, self.now)

    def _runs(self, pod: WatchedPod) -> bool:
        kubelet = self.kubelets.get(pod.node)
        return kubelet is not None and kubelet.manager.has_pod(pod.pod.uid)

    def _tell(self, uid: str, pod: WatchedPod) -> None:
        if self._runs(pod):
            self.told.add(uid)
        if uid in self.nowhere:
            self.nowhere[uid] = self.now

    def _learn_report(self, report: Report, name: str) -> None:
        if name not in self.kubelets:
            return
        self.state.report_seen(report, self.now)
        holdings = msgspec.json.decode(report.holdings or "", type=Holdings)
        self.reported[name] = {pod.uid for pod in holdings.pods}
        running = {pod.uid for pod in self.kubelets[name].pods}
        self.told |= self.reported[name] & running

    def _untell(self, uid: str) -> None:
        """Note that a kubelet holds nothing for a pod any more."""
        self.told.discard(uid)

    def _learn_no_report(self, name: str) -> None:
        self.state.report_gone(name)

    def _event(self, kind: str, pod: WatchedPod, name: str = "pods") -> None:
        """Let the state learn of a change soon, in order unless there are faults."""
        learn = partial(self._learn, kind, pod)
        self._push(0.0, 1.0, learn, name)
        if self.faults and self.random.random() < 0.1:
            self._push(0.0, 5.0, learn)

    def _push(self, least: float, most: float, learn: partial[None], stream: str = "") -> None:
        if self.faults and self.random.random() < 0.1:
            stream = ""
        self._later(least, most, learn, stream)

    def _list(self, *, is_cached: bool) -> None:
        """List all bound pods, in full or from what the server remembers."""
        pods = self.bound
        if is_cached and self.faults:
            pods = self._recent()
        if not is_cached:
            self.full_list = self.now
        self.state.pods_listed(list(pods.values()), self.now, self.now, is_cached=is_cached)
        for uid, pod in pods.items():
            self._tell(uid, pod)

    def _tick(self) -> None:
        self._later(TICK, TICK, self._tick)
        self.state.tick(self.now)
        if self.state.is_overdue(self.now):
            self._list(is_cached=False)
        if self.now > self._to_list:
            self._to_list = self.now + self.random.uniform(20.0, 40.0)
            if self.state.has_unreported(self.now):
                self._list(is_cached=True)
            elif self.random.random() < 0.2:
                self._list(is_cached=False)

    # What happens.

    def _recent(self) -> dict[str, WatchedPod]:
        """Return the bound pods of some moment that is not too long ago."""
        self._prune()
        return self.random.choice(self.snapshots)[1]

    def _prune(self) -> None:
        while len(self.snapshots) > 1 and self.snapshots[1][0] < self.now - OLDEST:
            self.snapshots.popleft()

    def _changed_bound(self) -> None:
        self.snapshots.append((self.now, dict(self.bound)))
        self._prune()
        oldest = next(iter(self.nowhere), None)
        if oldest is not None and self.nowhere[oldest] < self.now - 4 * BOUND:
            del self.nowhere[oldest]
            self.ended.discard(oldest)

    def _put(self, pod: WatchedPod) -> None:
        self.bound[pod.pod.uid] = pod
        self.nowhere.pop(pod.pod.uid, None)
        self._changed_bound()
        self._event("seen", pod)

    def _drop(self, uid: str, *, has_ended: bool = False) -> None:
        pod = self.bound.pop(uid, None)
        if pod is None:
            return
        if has_ended:
            self.ended.add(uid)
        self._changed_bound()
        self._event("gone", pod)
        self._note_nowhere(pod)

    def _note_nowhere(self, pod: WatchedPod) -> None:
        uid = pod.pod.uid
        if uid not in self.bound and not self._runs(pod):
            self.nowhere[uid] = self.now

    def _new(self, name: str = "", prefix: str = "p") -> WatchedPod:
        template = self.random.choice(self.templates)
        uid = f"{prefix}{next(self._numbers)}"
        return replace(template, pod=template.pod.renamed(uid=uid, name=uid), node=name)

    def _with_few_pods(self) -> list[str]:
        """Return the nodes that may have more pods; of those that hold nothing any number fits."""
        numbers = Counter(pod.node for pod in self.bound.values())
        return [name for name in self.kubelets if numbers[name] < MOST_PODS]

    def _schedule(self) -> None:
        """Ask the extender for a node, and bind a pod there."""
        pod = self._new()
        passed = self.answers.filter(pod, self._with_few_pods(), self.now).passed
        if not passed:
            self.outcomes["no room"] += 1
            self.answers.forget(pod.pod.uid)  # of those that are asked for once, it keeps so many
            return

        placed = replace(pod, node=self.random.choice(passed))
        assert self.answers.admits(pod, placed.node)
        uid = pod.pod.uid
        self.state.assume(placed, self.now)
        if self.random.random() < 0.05:
            self.state.pod_gone(uid, self.now)  # the server refuses
            return

        self.outcomes["bound"] += 1
        self._put(placed)
        self.state.assumed_rightly(uid, self.now)
        self._later(0.0, 3.0, partial(self._admit, placed), placed.node)

    def _bind_elsewhere(self) -> None:
        """Let another scheduler bind a pod, which looks at what kubelets have free."""
        names = self._with_few_pods()
        if not names:
            return
        name = self.random.choice(names)
        pod = self._new(name, "other")
        self._put(pod)
        self._later(0.0, 3.0, partial(self._admit, pod), name)

    def _start_static(self) -> None:
        names = self._with_few_pods()
        if not names:
            return
        name = self.random.choice(names)
        pod = replace(self._new(name, "static"), is_copy=True)
        if self.kubelets[name].admit(pod.pod):
            self.static[pod.pod.uid] = pod
            self._changed(name)
            self._later(0.0, 5.0, partial(self._copy, pod))

    def _copy(self, pod: WatchedPod) -> None:
        """Let a kubelet make the copy of a static pod."""
        if pod.pod.uid in self.static and pod.pod.uid not in self.bound:
            self._put(pod)

    def _lose_copy(self) -> None:
        """Delete the copy of a static pod, as a drain does."""
        copies = [uid for uid in self.bound if uid in self.static]
        if copies:
            uid = self.random.choice(copies)
            self._drop(uid)
            # another one comes soon, unless the API server does not take it for a while
            longest = 10.0 if self.random.random() < 0.9 else 3 * BOUND
            self._later(0.0, longest, partial(self._copy, self.static[uid]))

    def _end_static(self) -> None:
        if self.static:
            uid = self.random.choice(list(self.static))
            pod = self.static.pop(uid)
            self._end(pod)
            self._later(0.0, 2.0, partial(self._drop, uid))
            if self.random.random() < 0.3:
                self._later(30.0, 60.0, partial(self._restart_static, pod))

    def _restart_static(self, pod: WatchedPod) -> None:
        """Put the manifest back: the pod has the same uid."""
        kubelet = self.kubelets.get(pod.node)
        uid = pod.pod.uid
        if kubelet is None or uid in self.bound or uid in self.static:
            return
        if kubelet.admit(pod.pod):
            self.static[uid] = pod
            self.nowhere.pop(uid, None)
            self._changed(pod.node)
            self._later(0.0, 5.0, partial(self._copy, pod))

    def _admit(self, pod: WatchedPod) -> None:
        uid = pod.pod.uid
        if uid not in self.bound or pod.node not in self.kubelets:
            return
        if not self.kubelets[pod.node].admit(pod.pod):
            self.outcomes["refused" if uid.startswith("p") else "refused others"] += 1
            self._drop(uid, has_ended=True)
            return

        if uid in self.state.pods:
            self.told.add(uid)
        self._changed(pod.node)

    def _end(self, pod: WatchedPod, *, has_ended: bool = False) -> None:
        """Let a kubelet end a pod, and then say so."""
        uid = pod.pod.uid
        if self._runs(pod):
            self.kubelets[pod.node].remove(uid)
            self._untell(uid)
            self._changed(pod.node)
            self._note_nowhere(pod)
        if has_ended:
            self._drop(uid, has_ended=True)

    def _some(self) -> WatchedPod | None:
        """Return a bound pod that is not static."""
        pods = [
            pod for uid, pod in self.bound.items() if uid not in self.static and not pod.is_copy
        ]
        return self.random.choice(pods) if pods else None

    def _finish(self) -> None:
        pod = self._some()
        if pod is not None and self._runs(pod):
            self._end(pod, has_ended=True)

    def _delete(self) -> None:
        """Delete a pod with patience: its object goes when the kubelet has ended it."""
        pod = self._some()
        if pod is not None and not pod.is_leaving:
            self._put(replace(pod, is_leaving=True))
            self._later(0.0, GRACE, partial(self._end_deleted, pod))

    def _end_deleted(self, pod: WatchedPod) -> None:
        self._end(pod)
        self._drop(pod.pod.uid)

    def _delete_by_force(self) -> None:
        """Delete the object of a pod that a kubelet ends only later."""
        pod = self._some()
        if pod is not None:
            self._drop(pod.pod.uid)
            self._later(0.0, GRACE, partial(self._end, pod))

    def _lose_report(self) -> None:
        """Delete the object of a node, which is written again."""
        name = self.random.choice(sorted(self.kubelets))
        self._learn_no_report(name)
        self._changed(name)

    def _leave(self) -> None:
        """Let a node leave with its pods, and come back empty."""
        if len(self.kubelets) < 2:
            return
        name = self.random.choice(sorted(self.kubelets))
        for uid in [uid for uid, pod in self.static.items() if pod.node == name]:
            del self.static[uid]
        for pod in self.kubelets.pop(name).pods:
            self._untell(pod.uid)
        self._learn_node(name, is_there=False)
        self._learn_no_report(name)
        self.reported.pop(name)
        self._to_report.discard(name)
        for uid in [uid for uid, pod in self.bound.items() if pod.node == name]:
            self._drop(uid)
        self._later(60.0, 600.0, partial(self._join, name))

    def _join(self, name: str) -> None:
        self.kubelets[name] = EMPTY.copy()
        self.reported[name] = set()
        self._learn_node(name, is_there=True)
        self._publish(name)

    def _learn_node(self, name: str, *, is_there: bool) -> None:
        if is_there:
            self.state.node_seen(name, {})
        else:
            self.state.node_gone(name)

    # Faults.

    def _repeat(self) -> None:
        """Tell of a pod as it was a while ago."""
        pods = self._recent()
        if pods:
            self._later(
                0.0, 2.0, partial(self._learn, "seen", self.random.choice(list(pods.values())))
            )

    def _lose_node(self) -> None:
        """Tell of a pod as if it had no node any more, and perhaps as it is."""
        if self.bound:
            pod = self.random.choice(list(self.bound.values()))
            self._learn("gone", replace(pod, is_leaving=False))
            if self.random.random() < 0.8:
                self._later(0.0, 5.0, partial(self._learn_again, pod.pod.uid))

    def _learn_again(self, uid: str) -> None:
        if uid in self.bound:
            self._learn("seen", self.bound[uid])

    def _list_behind(self) -> None:
        self._list(is_cached=True)

    # Reports.

    def _changed(self, name: str) -> None:
        if name not in self._to_report:
            self._to_report.add(name)
            self._later(0.0, 3.0, partial(self._publish, name))

    def _publish(self, name: str) -> None:
        self._to_report.discard(name)
        if name in self.kubelets:
            learn = partial(self._learn_report, self._report(name), name)
            self._later(0.0, 3.0, learn, f"reports of {name}")

    def _report(self, name: str) -> Report:
        holdings = [pod for pod in holdings_of(self.kubelets[name]).pods if pod.containers]
        annotations = {
            NODE: DESCRIPTION,
            HOLDINGS: msgspec.json.encode(Holdings(holdings)).decode(),
        }
        return decode_report(
            json.dumps({"metadata": {"name": name, "annotations": annotations}}).encode()
        )
