"""A cluster with the extender in events instead of processes.

Each delay is drawn, so that a seed says what happens.

Pods come, the extender is asked as a scheduler asks it, simulated kubelets admit them and end them.
What happens on a node becomes known to the extender some time later: pods in the order in which
they changed, reports likewise.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.control_plane.api_server.objects import PodReader, WatchedPod, decode_pod
from alignup.control_plane.publishers.fleet import read_fleet
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.kubelet.node_resource_topology.report import Report, decode_report
from alignup.kubernetes.node_fit import requests_of
from rig.outcome import seconds_of
from rig.workload import span_for, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.control_plane.publishers.fleet import FleetNode, Rejection

READER = PodReader()
NODES, PODS = 24, 150
LOAD = 0.7
"""The part of all CPUs that pods ask for."""
SECONDS = 8.0
"""For which pods run, on average."""
RETRY = 1.0
"""Seconds after which a scheduler asks for a refused pod again."""


@dataclass(frozen=True)
class Delays:
    """Seconds, on average; they are spread exponentially."""

    admission: float
    """From the binding of a pod to its admission."""
    report: float
    """From a change on a node to its report, which has all changes until then."""
    watch: float
    """From a change of a pod, or a report, to the moment in which the extender knows of it."""


@dataclass(frozen=True)
class Miss:
    """A pod that the extender let pass, and its kubelet did not."""

    pod: str
    node: str
    rejection: Rejection
    overtaken: bool
    """Whether another pod had ended there.

    The extender did not know of that yet when it bound this one.
    """


class ModelCluster:
    """One run.

    Args:
        seed: of everything that is drawn.
        delays: how late everybody is.
        with_holdings: let nodes publish what pods hold, and not only amounts.
    """

    def __init__(self, seed: int, delays: Delays, *, with_holdings: bool) -> None:
        self.delays, self.with_holdings = delays, with_holdings
        self.random = Random(seed)
        described, self.pods = workload(NODES, PODS, SECONDS, seed)
        lines = "\n".join(map(json.dumps, described)).encode()
        self.nodes = {node.name: node for node in read_fleet(lines, "the workload")}
        self.span = span_for(described, self.pods, SECONDS, LOAD)
        self.ran = 0
        self.misses: list[Miss] = []
        self.state = ClusterState()
        self.answers = Answers(self.state)
        self.bound: dict[str, list[WatchedPod]] = {name: [] for name in self.nodes}
        self.ended: dict[str, dict[str, float]] = defaultdict(dict)
        """By node and uid, when the extender learned of the end of a pod that had run there.

        Infinite before.
        """
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._last: dict[str, float] = defaultdict(float)
        self._to_report: set[str] = set()

    def run(self) -> ModelCluster:
        """Let everything happen; return the cluster, for its numbers."""
        for node in self.nodes.values():
            self.state.node_seen(node.name, {})
            self.state.report_seen(self._report(node), 0.0)
        moments = sorted(self.random.uniform(0, self.span) for _ in self.pods)
        for moment, pod in zip(moments, self.pods, strict=True):
            self._at(moment, partial(self._ask, pod))
        while self._events:
            now, _, happen = heapq.heappop(self._events)
            self.state.tick(now)
            happen(now)
        return self

    def _at(self, moment: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), happen))

    def _later(
        self, now: float, delay: float, happen: Callable[[float], None], stream: str = ""
    ) -> None:
        """Let something happen after a delay, and after what came earlier in the same stream."""
        moment = now + self.random.expovariate(1 / delay)
        if stream:
            moment = self._last[stream] = max(moment, self._last[stream] + 1e-6)
        self._at(moment, happen)

    # The scheduler.

    def _ask(self, manifest: dict[str, Any], now: float) -> None:
        """Ask for a pod as a scheduler does.

        Of the nodes with enough in total, the best that passes.
        """
        metadata = {**manifest["metadata"], "uid": manifest["metadata"]["name"]}
        pod = READER.read(decode_pod(msgspec.json.encode({**manifest, "metadata": metadata})))
        passed = self.answers.filter(
            pod, [name for name in self.nodes if self._fits(pod, name)], now
        ).passed
        if not passed:
            self._at(now + RETRY * (1 + self.random.random()), partial(self._ask, manifest))
            return

        scores = self.answers.prioritize(pod, passed)
        highest = max(scores)
        best = [name for name, score in zip(passed, scores, strict=True) if score == highest]
        placed = replace(pod, node=self.random.choice(best))
        self.state.assume(placed, now)
        self.answers.forget(pod.pod.uid)
        self.bound[placed.node].append(placed)
        admit = partial(self._admit, placed, now, seconds_of(manifest))
        self._later(now, self.delays.admission, admit, placed.node)
        self._later(now, self.delays.watch, partial(self._seen, placed), "pods")

    def _fits(self, pod: WatchedPod, name: str) -> bool:
        bound_requests = [requests_of(bound.pod) for bound in self.bound[name]]
        return all(
            amount + sum(requests.get(resource, 0) for requests in bound_requests)
            <= self.nodes[name].allocatable.get(resource, 0)
            for resource, amount in requests_of(pod.pod).items()
        )

    def _seen(self, pod: WatchedPod, now: float) -> None:
        if pod in self.bound[pod.node]:
            self.state.pod_seen(pod, now)

    def _gone(self, pod: WatchedPod, now: float) -> None:
        self.bound[pod.node].remove(pod)
        self.state.pod_gone(pod.pod.uid, now)
        if pod.pod.uid in self.ended[pod.node]:
            self.ended[pod.node][pod.pod.uid] = now

    # The kubelets.

    def _admit(self, pod: WatchedPod, bound: float, seconds: float, now: float) -> None:
        node = self.nodes[pod.node]
        rejection = node.admit(pod.pod)
        if rejection is None:
            self.ran += 1
            self._at(now + seconds, partial(self._end, pod))
            self._changed(node, now)
        else:
            overtaken = any(learned > bound for learned in self.ended[node.name].values())
            self.misses.append(Miss(pod.pod.name, node.name, rejection, overtaken))
            self._later(now, self.delays.watch, partial(self._gone, pod), "pods")

    def _end(self, pod: WatchedPod, now: float) -> None:
        node = self.nodes[pod.node]
        node.end(pod.pod.uid)
        self.ended[node.name][pod.pod.uid] = inf
        self._changed(node, now)
        self._later(now, self.delays.watch, partial(self._gone, pod), "pods")

    def _changed(self, node: FleetNode, now: float) -> None:
        if node.name not in self._to_report:
            self._to_report.add(node.name)
            self._later(now, self.delays.report, partial(self._publish, node))

    def _publish(self, node: FleetNode, now: float) -> None:
        self._to_report.discard(node.name)
        self._later(
            now, self.delays.watch, partial(self.state.report_seen, self._report(node)), "reports"
        )

    def _report(self, node: FleetNode) -> Report:
        return decode_report(msgspec.json.encode(node.report(with_holdings=self.with_holdings)))
