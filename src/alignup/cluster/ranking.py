"""Ranks the nodes of a cluster for a pod, says why each other node refuses it, and counts the replicas that fit.

`Cluster.evaluate` gives the kubelets' verdicts. A scheduler must also know that the node has enough in total, and that
a node without NUMA management aligns nothing, whatever it admits: both are added here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.cluster import REASONS, Cluster, Evaluation
from alignup.cluster.node_totals import Fit, Shortage, Totals
from alignup.cluster.reasons import refusal_causes
from alignup.koordinator.effective import pod_policy
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

_NONE: Final = TOPOLOGY_POLICIES.index("none")


class Refused(Record):
    """A node that would not take the pod.

    Attributes:
        reason: the kubelet's word, or the default scheduler's, such as `Insufficient cpu`.
        message: a sentence, of the node itself or, where only amounts are known, about these.
        cause: a few words without amounts, equal for nodes that refuse the pod alike.
    """

    node: str
    reason: str
    message: str
    cause: str = ""


class RefusalGroup(Record):
    """Nodes that would not take the pod for equal causes.

    Attributes:
        nodes: their names, in the cluster's order.
        message: the sentence of the first of them.
    """

    reason: str
    cause: str
    nodes: tuple[str, ...]
    message: str


class Ranking(Record):
    """The nodes that would take a pod, the best first, and the others.

    Attributes:
        order: indices of nodes: those that manage NUMA nodes by score, then those that do not.
        unmanaged: names of the nodes in `order` that align nothing: their policy is none, or nothing is known of them.
        refused: in the cluster's order.
        meets: by index of a node in `order`, whether the devices of the pod's claims would meet its CPUs and memory
            there; see `ClaimProvider.are_aligned` of `alignup.claims.on_node`. Empty: nothing is known of claims.
    """

    order: tuple[int, ...]
    unmanaged: tuple[str, ...]
    refused: tuple[Refused, ...]
    meets: Mapping[int, bool | None] = field(default_factory=dict)

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of nodes that would not take the pod, by reason."""
        return dict(sorted(Counter(one.reason for one in self.refused).items()))

    @property
    def groups(self) -> tuple[RefusalGroup, ...]:
        """The nodes that would not take the pod, by equal causes: those with most nodes first."""
        alike: dict[tuple[str, str], list[Refused]] = {}
        for one in self.refused:
            alike.setdefault((one.reason, one.cause), []).append(one)
        found = [
            RefusalGroup(reason, cause, tuple(one.node for one in members), members[0].message)
            for (reason, cause), members in alike.items()
        ]
        return tuple(sorted(found, key=lambda group: (-len(group.nodes), group.reason, group.cause)))


def rank(cluster: Cluster, pod: Pod, answer: Evaluation, fit: Fit, *, require_dra_alignment: bool = False) -> Ranking:
    """Return the nodes that would admit a pod and have enough in total, best first.

    Args:
        cluster: the nodes.
        pod: the pod.
        answer: what `cluster.evaluate` returned for it.
        fit: what the nodes have in total.
        require_dra_alignment: refuse nodes where the devices of the pod's claims would not meet its CPUs and memory;
            else the others come first.
    """
    shortages = [found[0] if found else None for found in fit.shortages(pod)]
    best = [index for index in answer.best().tolist() if shortages[index] is None]
    rows = cluster.rows
    own = pod_policy(pod) is not None  # which a pod may bring to a node that has none
    unmanaged: dict[int, str] = {}
    for index in best:
        row = rows[index]
        if not (row.cpu or row.memory or row.devices) or (row.policy == _NONE and not own):
            unmanaged[index] = cluster.names[index]
    order = tuple(sorted(best, key=unmanaged.__contains__))
    ranking = Ranking(order, tuple(unmanaged.values()), _refused(cluster, pod, answer, shortages))
    return _by_claims(cluster, pod, ranking, require=require_dra_alignment) if pod.constraints.claims else ranking


def _by_claims(cluster: Cluster, pod: Pod, ranking: Ranking, *, require: bool) -> Ranking:
    """Return a ranking with the nodes first where the devices of the pod's claims meet its CPUs and memory."""
    from alignup.claims.on_node import preview_claims  # noqa: PLC0415  # few pods have claims

    nodes = cluster.nodes
    found = {index: preview_claims(nodes[index], pod, suggest=False) for index in ranking.order} if nodes else {}
    meets = {index: one.meet for index, one in found.items() if one is not None}
    order = sorted(ranking.order, key=lambda index: _PREFERENCE.index(meets.get(index)))
    kept = [index for index in order if meets.get(index) or not (require and meets)]
    refused = [Refused(cluster.names[index], *_MISALIGNED) for index in order if index not in set(kept)]
    names = {cluster.names[index] for index in kept}
    return Ranking(
        tuple(kept), tuple(name for name in ranking.unmanaged if name in names), (*ranking.refused, *refused), meets
    )


_PREFERENCE: Final = (True, None, False)
_MISALIGNED: Final = (
    "Unschedulable",
    "the devices of the pod's claims are on other NUMA nodes than its CPUs and memory, or on unknown ones",
    "devices of claims elsewhere",
)


def _refused(
    cluster: Cluster, pod: Pod, answer: Evaluation, shortages: Sequence[Shortage | None]
) -> tuple[Refused, ...]:
    """Return the nodes that refuse, or have too little in total, each with the reason and the cause."""
    indices = np.flatnonzero(~answer.admitted)
    causes = dict(zip(indices.tolist(), refusal_causes(cluster, pod, answer, indices), strict=True))
    refused = []
    for index, shortage in enumerate(shortages):
        name = cluster.names[index]
        if not answer.admitted[index]:
            if cluster.nodes:
                sentence = cluster.nodes[index].try_admit(pod).message
            elif shortage is not None:
                sentence = f"{shortage.reason}: {shortage.message}"
            else:
                policy = TOPOLOGY_POLICIES[cluster.rows[index].policy]
                sentence = f"policy {policy!r}: enough in total, but not on NUMA nodes that the policy allows"
            refused.append(Refused(name, REASONS[answer.reason[index]], sentence, causes[index]))
        elif shortage is not None:
            words = f"too little {shortage.resource} in total"
            refused.append(Refused(name, shortage.reason, shortage.message, words))
    return tuple(refused)


# The pods that a kubelet runs by default (`maxPods`), those that are on the node already included.
MOST_PODS: Final = 110


def replicas_that_fit(nodes: Sequence[Node], pod: Pod) -> list[int]:
    """Return how many replicas of a pod each node could take, one after the other; the nodes stay as they are.

    No more than `MOST_PODS` pods are counted for a node. Pods do not wait for each other, so the sum over the nodes is
    what the cluster could take.

    Raises:
        TypeError: a provider of a user takes part that cannot be copied.
    """
    found = []
    for node in nodes:
        copy, totals = node.copy(), Totals([node])
        request, most, count = totals.request(pod), MOST_PODS - len(node.pods), 0
        while count < most and totals.fits(request)[0] and copy.admit(pod.renamed(uid=f"{pod.uid}/{count}")).admitted:
            totals.add(0, request)
            count += 1
        found.append(count)
    return found
