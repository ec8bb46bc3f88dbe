"""Keeps for each demand what a scheduler thinks of every node: only nodes that changed are looked at again.

A scheduler that sees topology asks `Cluster.judge`, a blind one `alignup.cluster.node_totals`. Which node is taken is
decided in `alignup.cluster.simulation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from alignup.cluster.evaluation import Evaluation, flat_views

if TYPE_CHECKING:
    import numpy.typing as npt

    from alignup.cluster.cluster import Cluster
    from alignup.cluster.node_totals import Totals
    from alignup.core.amounts.board import Job
    from alignup.kubernetes.pod import Pod

__all__ = ["Candidates", "Demand"]

_DEMANDS_KEPT: Final = 256
"""Different demands that are kept up to date; forgotten together when there are more."""

_CHANGES_KEPT: Final = 1 << 20
"""Changes of nodes that are remembered until all demands are forgotten."""


@dataclass(slots=True)
class Demand:
    """What pods that ask for the same are told by every node."""

    pod: Pod
    """The first of them."""
    request: npt.NDArray[np.int64] | None
    """In the order of `Totals.resources`; None: something that no node has."""
    fits: npt.NDArray[np.bool_]
    """Whether a node has as much left in sum."""
    scores: npt.NDArray[np.float64]
    """How much a node is worth; minus infinity: it is no candidate."""
    seen: int
    """The number of changes of nodes that these two take into account."""
    job: Job
    answer: Evaluation
    """The verdicts of the nodes; those of nodes where the pod does not fit are not kept up to date."""
    views: list[npt.NDArray[Any]]
    """The arrays of the answer as the compiled board writes them."""
    judged: int
    """The number of changes that the answer takes into account; -1: none was given yet."""


class Candidates:
    """What every node of a cluster says to each demand, kept up to date.

    Args:
        cluster: the nodes.
        totals: their sums.
        strategy: how nodes are ranked.
        blind: the scheduler sees sums only.
    """

    __slots__ = ("_blind", "_changes", "_cluster", "_demands", "_judging", "_strategy", "_totals")

    def __init__(self, cluster: Cluster, totals: Totals, strategy: str, *, blind: bool) -> None:
        self._cluster, self._totals = cluster, totals
        self._strategy, self._blind = strategy, blind
        self._judging = "least-numa-nodes" if blind else strategy
        self._demands: dict[object, Demand] = {}
        self._changes: list[int] = []

    def changed(self, index: int) -> None:
        """Note that a pod came to a node or left it."""
        self._changes.append(index)

    def of(self, pod: Pod) -> Demand:
        """Return what each node is worth to the pod now."""
        demand = self._demands.get(key := _key(pod))
        if demand is None:
            if len(self._demands) >= _DEMANDS_KEPT or len(self._changes) > _CHANGES_KEPT:
                self._demands.clear()
                self._changes.clear()
            demand = self._demands[key] = self._new(pod)
            self._look_at(demand, None)
        elif demand.seen < len(self._changes):
            self._look_at(demand, self._changed_since(demand.seen))
        demand.seen = len(self._changes)
        return demand

    def admitted(self, demand: Demand) -> npt.NDArray[np.bool_]:
        """Return which nodes would admit the pod, of those where it fits."""
        if self._blind and demand.judged < len(self._changes):
            self._judge(demand, None if demand.judged < 0 else self._changed_since(demand.judged))
        return demand.answer.admitted

    def _new(self, pod: Pod) -> Demand:
        cluster, count = self._cluster, len(self._cluster)
        answer = Evaluation.empty(len(cluster))
        return Demand(
            pod,
            self._totals.request(pod),
            np.zeros(count, np.bool_),
            np.full(count, -np.inf),
            0,
            cluster.job(pod),
            answer,
            flat_views(answer),
            -1,
        )

    def _changed_since(self, seen: int) -> npt.NDArray[np.int64] | None:
        """Return the indices of nodes that changed since then; None: it is as well to look at all."""
        if len(self._changes) - seen > len(self._cluster):
            return None
        changed = set(self._changes[seen:])
        return np.fromiter(changed, np.int64, len(changed))

    def _look_at(self, demand: Demand, nodes: npt.NDArray[np.int64] | None) -> None:
        """Look at some nodes again, None: at all of them."""
        where = slice(None) if nodes is None else nodes
        fits = self._totals.fits(demand.request, nodes)
        demand.fits[where] = fits
        if self._blind:
            scores = self._totals.score(demand.request, self._strategy, nodes)
        else:
            self._judge(demand, nodes)
            scores = demand.answer.score[where]
        demand.scores[where] = np.where(fits, scores, -np.inf)

    def _judge(self, demand: Demand, nodes: npt.NDArray[np.int64] | None) -> None:
        """Ask some nodes for their verdict, None: all of them."""
        count = len(self._cluster) if nodes is None else len(nodes)
        self._cluster.judge(
            demand.job, demand.pod, self._judging, demand.answer, 0, count, nodes, views=demand.views
        )
        demand.judged = len(self._changes)


def _key(pod: Pod) -> object:
    """Return the same for pods that ask for the same."""
    return (
        tuple(pod.annotations.items()),
        tuple(
            [
                (
                    one.exclusive_cpus,
                    one.memory,
                    one.fractional_memory,
                    one.devices,
                    one.is_init,
                    one.is_sidecar,
                    tuple(one.requests.items()),
                )
                for one in pod.all_containers
            ]
        ),
    )
