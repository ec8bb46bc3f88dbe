"""The answer of a whole cluster to one pod, as arrays with one element a node, and the names of its codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

STRATEGIES: Final = ("least-numa-nodes", "least-allocated", "most-allocated", "balanced-allocation", "document")
"""The ways to score placements; see `Cluster.evaluate`."""

REASONS: Final = (
    "",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "SMTAlignmentError",
    "UnschedulableAndUnresolvable",
    "EmptyPodSharedPoolError",
)
"""The meaning of the codes in `Evaluation.reason`: the words that a kubelet puts into a pod's status, and Koordinator's
for a pod that brings another policy than the node has."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The answer of each node of a cluster to a pod."""

    admitted: npt.NDArray[np.bool_]
    reason: npt.NDArray[np.uint8]
    """An index into `REASONS`; 0 where the pod is admitted."""
    affinity: npt.NDArray[np.uint64]
    """The NUMA nodes of all containers together, bit i for position i; 0: none was decided, or refused."""
    preferred: npt.NDArray[np.bool_]
    """Whether every container's affinity is preferred; False where refused, and under policy none."""
    score: npt.NDArray[np.float64]
    """Higher is better; minus infinity where refused."""
    exact: npt.NDArray[np.bool_]
    """False where amounts could not tell: the node may refuse the pod all the same. Refusals are certain."""

    @classmethod
    def empty(cls, count: int) -> Evaluation:
        """Return an answer of so many nodes that says no everywhere."""
        return cls(
            admitted=np.zeros(count, np.bool_),
            reason=np.zeros(count, np.uint8),
            affinity=np.zeros(count, np.uint64),
            preferred=np.zeros(count, np.bool_),
            score=np.full(count, -np.inf),
            exact=np.ones(count, np.bool_),
        )

    def __len__(self) -> int:
        return len(self.admitted)

    def best(self, count: int | None = None) -> npt.NDArray[np.intp]:
        """Return the indices of the nodes that admit the pod, best score first, then in the cluster's order.

        Args:
            count: At most so many; None: all.
        """
        found = np.flatnonzero(self.admitted)
        scores = self.score[found]
        if count is not None and count < len(found):
            # no node below the score of the last one wanted can be among them
            least = np.partition(scores, len(found) - count)[len(found) - count] if count else np.inf
            found, scores = found[scores >= least], scores[scores >= least]
        order: npt.NDArray[Any] = np.argsort(-scores, kind="stable")
        best: npt.NDArray[np.intp] = found[order[:count]]
        return best

    def refusals(self) -> dict[str, int]:
        """Return how many nodes refuse the pod for each reason that occurs."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {name: int(count) for name, count in zip(REASONS, counts, strict=True) if name and count}


def flat_views(answer: Evaluation) -> list[npt.NDArray[Any]]:
    """Return the arrays of an answer as the compiled board writes them: whole numbers for truth values."""
    arrays = (answer.admitted, answer.reason, answer.affinity, answer.preferred, answer.score, answer.exact)
    return [array.view(np.uint8) if array.dtype == np.bool_ else array for array in arrays]
