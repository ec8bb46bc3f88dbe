"""Plays a trace of pods over a cluster: a scheduler chooses nodes, and the nodes themselves admit or refuse.

What a scheduler thinks of the nodes is kept in `alignup.cluster.candidates`: one that sees topology has asked them, a
blind one sees node totals only, as the default scheduler does. The difference in what the nodes refuse is what
topology-blind scheduling costs.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from alignup.cluster.candidates import Candidates, Demand
from alignup.cluster.evaluation import REASONS, Evaluation
from alignup.cluster.meter import Meter
from alignup.cluster.node_totals import BLIND_STRATEGIES, Totals
from alignup.cluster.reasons import refusal_causes
from alignup.cluster.trace import Arrival, Event, Removal
from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from alignup.cluster.cluster import Cluster
    from alignup.kubernetes.pod import Pod

__all__ = ["Report", "Simulation"]

_SAMPLES: Final = 100
"""At how many arrivals stranded capacity is measured."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a trace."""

    arrivals: int
    placed: int
    no_room: int
    """Pods for which no node had enough of everything in sum."""
    no_alignment: int
    """Pods for which nodes had room, and the scheduler saw that none could align them; a blind one never does."""
    refused: int
    """Pods that every node refused on which they were tried, which the scheduler had not foreseen."""
    refusals: Mapping[str, int]
    """The number of times that a node refused a pod, by the kubelet's reason; a pod can be tried on several nodes."""
    utilisation: Mapping[str, float]
    """By resource, the mean part of what there is that was requested by running pods, weighted with time."""
    peak: Mapping[str, float]
    """The largest such part."""
    stranded: Mapping[str, float]
    """By resource, the mean part of what was free that lay on nodes which had room for the pod at hand in sum and would
    have refused it; over arrivals spread evenly over the trace."""

    causes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By reason and cause, equal for nodes that refuse a pod alike, how often a node refused: one on which a pod was
    tried, or, of a pod that no node could align, one that had enough in sum."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON can hold it."""
        return {
            "arrivals": self.arrivals,
            "placed": self.placed,
            "noRoom": self.no_room,
            "noAlignment": self.no_alignment,
            "refused": self.refused,
            "refusals": dict(self.refusals),
            "causes": [
                {"reason": reason, "cause": cause, "count": count}
                for (reason, cause), count in sorted(self.causes.items(), key=lambda one: (-one[1], one[0]))
            ],
            "utilisation": _rounded(self.utilisation),
            "peak": _rounded(self.peak),
            "stranded": _rounded(self.stranded),
        }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


class Simulation:
    """A scheduler and a cluster that it places pods on. The nodes change; pods that they hold stay until removed.

    Args:
        cluster: A cluster made from nodes.
        strategy: How nodes are ranked; None: `least-numa-nodes`, or `least-allocated` for a blind scheduler.
        blind: The scheduler sees node totals only.
        seed: Decides between nodes of equal score.
        attempts: On how many nodes a pod is tried until it is given up.

    Raises:
        InputError: The cluster has no nodes to admit pods, or the strategy is not for such a scheduler.
    """

    def __init__(
        self,
        cluster: Cluster,
        strategy: str | None = None,
        *,
        blind: bool = False,
        seed: int = 0,
        attempts: int = 1,
    ) -> None:
        if not cluster.nodes:
            raise InputError("expected a cluster made from nodes, got one of amounts only")
        if attempts < 1:
            raise InputError.at("attempts", "at least one attempt", attempts)
        self.cluster = cluster
        self.totals = Totals(cluster.nodes)
        self.strategy = strategy or ("least-allocated" if blind else "least-numa-nodes")
        if blind and self.strategy not in BLIND_STRATEGIES:
            expected = f"one of {', '.join(BLIND_STRATEGIES)} for a scheduler that sees totals only"
            raise InputError.at("the strategy", expected, self.strategy)
        self._random = Random(seed)  # noqa: S311  # ties, not secrets
        self._attempts = attempts
        self._candidates = Candidates(cluster, self.totals, self.strategy, blind=blind)
        self._where = {
            pod.uid: (index, self.totals.request(pod))
            for index, node in enumerate(cluster.nodes)
            for pod in node.pods
        }
        self._nodes = cluster.nodes
        self._counts: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._causes: Counter[tuple[str, str]] = Counter()
        self._told = Evaluation.empty(len(cluster))
        self._meter = Meter(self.totals)

    def run(self, events: Sequence[Event]) -> Report:
        """Play a trace and return what came of it.

        Raises:
            InputError: A pod is removed that never came, or comes although it is there.
        """
        for _ in self.steps(events):
            pass
        return self.report

    def steps(self, events: Sequence[Event]) -> Iterator[int]:
        """Play a trace, yielding the number of its events that are done; the report is ready after the last.

        Raises:
            InputError: A pod is removed that never came, or comes although it is there.
        """
        arrivals = sum(isinstance(event, Arrival) for event in events)
        every = -(-arrivals // _SAMPLES)
        meter = self._meter = Meter(self.totals)
        self._counts.clear()
        self._refusals.clear()
        self._causes.clear()
        known = set(self._where)
        ends: list[tuple[float, int, str]] = []
        for number, event in enumerate(events, 1):
            self._end_pods(ends, event.time, meter)
            meter.advance(event.time)
            if isinstance(event, Removal):
                self._remove(event.uid, known)
            else:
                self._check_new(event.pod, known)
                demand = self._candidates.of(event.pod)
                if self._counts["arrivals"] % every == 0:
                    meter.strand(demand.fits, self._candidates.admitted(demand))
                if self._arrive(event.pod, demand) and event.duration is not None:
                    heapq.heappush(ends, (event.time + event.duration, number, event.pod.uid))
            meter.note()
            yield number

    @property
    def report(self) -> Report:
        """The outcome of the trace that was played last, as far as it was played."""
        counts, totals, meter = self._counts, self.totals, self._meter
        return Report(
            arrivals=counts["arrivals"],
            placed=counts["placed"],
            no_room=counts["no room"],
            no_alignment=counts["no alignment"],
            refused=counts["refused"],
            refusals=dict(sorted(self._refusals.items())),
            utilisation=totals.by_name(meter.mean),
            peak=totals.by_name(meter.peak),
            stranded=totals.by_name(meter.stranded),
            causes=dict(self._causes),
        )

    def _end_pods(self, ends: list[tuple[float, int, str]], time: float, meter: Meter) -> None:
        """Remove the pods whose time is over."""
        while ends and ends[0][0] <= time:
            end, _, uid = heapq.heappop(ends)
            meter.advance(end)
            if uid in self._where:
                self._take_away(uid)
                meter.note()

    def _check_new(self, pod: Pod, known: set[str]) -> None:
        if pod.uid in self._where:
            raise InputError.at("the trace", "a pod that is not there yet", pod.uid)
        known.add(pod.uid)

    def _remove(self, uid: str, known: set[str]) -> None:
        """Remove a pod; one that was not placed has nothing to take away."""
        if uid in self._where:
            self._take_away(uid)
        elif uid not in known:
            raise InputError.at("the trace", "the uid of a pod that has come", uid)

    def _take_away(self, uid: str) -> None:
        index, request = self._where.pop(uid)
        self._nodes[index].remove(uid)
        self.totals.remove(index, request)
        self._candidates.changed(index)

    def _arrive(self, pod: Pod, demand: Demand) -> bool:
        """Place a pod, or count why not."""
        self._counts["arrivals"] += 1
        scores, tried = demand.scores, 0
        while tried < self._attempts and (index := self._choose(scores)) is not None:
            if self._try(pod, index, demand):
                self._counts["placed"] += 1
                return True
            if not tried:
                scores = scores.copy()
            scores[index] = -np.inf
            tried += 1
        if tried:
            self._counts["refused"] += 1
        else:
            self._counts["no alignment" if demand.fits.any() else "no room"] += 1
            self._note_causes(pod, demand.answer, np.flatnonzero(demand.fits))
        return False

    def _choose(self, scores: npt.NDArray[np.float64]) -> int | None:
        """Return one of the best nodes; None if there is no candidate."""
        best = scores.max()
        if best == -np.inf:
            return None
        equal = (scores == best).nonzero()[0]
        return int(equal[0 if len(equal) == 1 else self._random.randrange(len(equal))])

    def _note_causes(self, pod: Pod, answer: Evaluation, indices: npt.NDArray[np.int64]) -> None:
        """Count why these nodes refuse a pod."""
        causes = refusal_causes(self.cluster, pod, answer, indices)
        for index, cause in zip(indices.tolist(), causes, strict=True):
            self._causes[REASONS[answer.reason[index]], cause] += 1

    def _try(self, pod: Pod, index: int, demand: Demand) -> bool:
        """Let a node admit the pod."""
        admission = self._nodes[index].admit(pod)
        self._candidates.changed(index)
        if not admission.admitted:
            self._refusals[admission.reason] += 1
            self._told.reason[index] = REASONS.index(admission.reason)
            self._note_causes(pod, self._told, np.array([index]))
            return False
        self._where[pod.uid] = (index, demand.request)
        self.totals.add(index, demand.request)
        return True
