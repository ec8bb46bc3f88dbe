"""Ranks the nodes of a cluster for a pod, and says why each other node would not take it.

`Cluster.evaluate` gives the kubelets' verdicts. A scheduler must also know that the node has enough in sum, and that a
node without NUMA management aligns nothing, whatever it admits; both are added here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from alignup.cluster.evaluation import REASONS, Evaluation
from alignup.koordinator.effective import pod_policy
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from alignup.cluster.cluster import Cluster
    from alignup.cluster.fit import Fit, Shortage
    from alignup.core.amounts.row import Row
    from alignup.kubernetes.pod import Pod

__all__ = ["Ranking", "Refused", "rank"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A node that would not take the pod."""

    node: str
    reason: str
    """The kubelet's word, or the default scheduler's, such as `Insufficient cpu`."""
    message: str
    """A sentence, of the node itself or, where only amounts are known, about these."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The nodes that would take a pod, the best first, and the others."""

    order: npt.NDArray[np.intp]
    """Indices of nodes: those that manage NUMA nodes by score, then those that do not."""
    unmanaged: tuple[str, ...]
    """Names of the nodes in `order` that align nothing: their policy is none, or nothing is known of them."""
    refused: tuple[Refused, ...]
    """In the cluster's order."""

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of nodes that would not take the pod, by reason."""
        return dict(sorted(Counter(one.reason for one in self.refused).items()))


def rank(cluster: Cluster, pod: Pod, answer: Evaluation, fit: Fit) -> Ranking:
    """Return the nodes that would admit a pod and have enough in sum, best first.

    Args:
        cluster: the nodes.
        pod: the pod.
        answer: what `cluster.evaluate` returned for it.
        fit: what the nodes have in sum.
    """
    shortages = fit.shortages(pod, len(cluster))
    is_short = np.array([shortage is not None for shortage in shortages], np.bool_)
    best = answer.best()
    best = best[~is_short[best]]
    rows = cluster.rows
    own = pod_policy(pod) is not None
    managed = np.array([_is_managed(rows[index], own) for index in best.tolist()], np.bool_)
    order = np.concatenate([best[managed], best[~managed]]) if len(best) else best
    refused = []
    for index, shortage in enumerate(shortages):
        if not answer.admitted[index]:
            reason = REASONS[answer.reason[index]]
            message = _sentence(cluster, index, pod, shortage)
            refused.append(Refused(cluster.names[index], reason, message))
        elif shortage is not None:
            refused.append(Refused(cluster.names[index], shortage.reason, shortage.message))
    unmanaged = tuple(cluster.names[index] for index in order[int(managed.sum()) :].tolist())
    return Ranking(order, unmanaged, tuple(refused))


def _is_managed(row: Row, has_own_policy: bool) -> bool:
    """Return whether the node aligns something; a pod may bring a policy to a node that has none."""
    if row.policy == TOPOLOGY_POLICIES.index("none") and not has_own_policy:
        return False
    return bool(row.cpu or row.memory or row.devices)


def _sentence(cluster: Cluster, index: int, pod: Pod, shortage: Shortage | None) -> str:
    """Return why a node refuses: in its own words, or as far as amounts tell."""
    if cluster.nodes:
        return cluster.nodes[index].try_admit(pod).message
    if shortage is not None:
        return f"{shortage.reason}: {shortage.message}"
    policy = TOPOLOGY_POLICIES[cluster.rows[index].policy]
    return f"policy {policy!r}: enough in sum, but not on NUMA nodes that the policy allows"
