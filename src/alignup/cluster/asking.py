"""Asks nodes themselves for the answers that their amounts cannot give: `Node.try_admit` has the last word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.evaluation import REASONS, STRATEGIES
from alignup.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from alignup.cluster.evaluation import Evaluation
    from alignup.core.amounts.board import Board, Job
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import VersionProfile
    from alignup.node import Node

__all__ = ["ask_nodes", "doubt_other_readings", "other_readings"]

_MISMATCHED: Final = len(REASONS) - 1
_OTHER: Final = REASONS.index("UnexpectedAdmissionError")


def ask_nodes(
    nodes: Sequence[Node],
    board: Board,
    job: Job,
    pod: Pod,
    strategy: str,
    answer: Evaluation,
    indices: npt.NDArray[np.int64],
) -> None:
    """Replace each answer that is not exact by the node's own.

    Where pods bring policies of their own, nodes know who shares a NUMA node with whom, and amounts do not: then every
    node that has pods is asked.

    Args:
        nodes: the nodes of the cluster.
        board: judged the others, and scores what the nodes choose.
        job: the pod, prepared for the board.
        pod: the pod itself.
        strategy: how placements are scored.
        answer: where to write.
        indices: which nodes are concerned.
    """
    number = STRATEGIES.index(strategy)
    unsure = indices[~answer.exact[indices]].tolist()
    if job.policy >= 0:
        unsure = sorted({*unsure, *(index for index in indices.tolist() if nodes[index].manager.has_pods)})
    for index in unsure:
        try:
            admission = nodes[index].try_admit(pod)
        except ConfigError:  # the pod's own policy does not go with so many NUMA nodes
            answer.exact[index] = True
            _write_refusal(answer, index, _MISMATCHED)
            continue
        answer.exact[index] = admission.exact
        if not admission.admitted:
            # a user's provider may refuse with a word of its own
            known = admission.reason in REASONS
            _write_refusal(answer, index, REASONS.index(admission.reason) if known else _OTHER)
            continue
        hints = [admission.containers[one.name].affinity for one in pod.all_containers]
        masks = [None if hint is None or hint.affinity is None else int(hint.affinity) for hint in hints]
        answer.admitted[index], answer.reason[index] = True, 0
        answer.affinity[index] = _union(masks)
        answer.preferred[index] = bool(hints) and all(hint is not None and hint.preferred for hint in hints)
        answer.score[index] = board.score(job, index, number, masks or [None])


def doubt_other_readings(nodes: Sequence[Node], pod: Pod, answer: Evaluation, indices: Iterable[int]) -> None:
    """Mark the answers as not exact that were given for a pod as other kubelets than the node's read it.

    Few pods are read in several ways: those with resources of their own, or with a status.
    """
    if not pod.readings:
        return
    differs = {reading: other != pod for reading, other in pod.readings.items()}
    for index in indices:
        if differs[nodes[index].config.profile.pods]:
            answer.exact[index] = False


def other_readings(
    profiles: Sequence[VersionProfile], pod: Pod, indices: Iterable[int]
) -> Iterator[tuple[Pod, npt.NDArray[np.int64]]]:
    """Yield a pod as kubelets read it that read it otherwise than the first one of a cluster, with their indices.

    Args:
        profiles: of the kubelets of all nodes.
        pod: as it was given.
        indices: which nodes are concerned.
    """
    if not pod.readings or not profiles:
        return
    groups: dict[Pod, list[int]] = {}
    first = pod.read_as(profiles[0].pods)
    for index in indices:
        read = pod.read_as(profiles[index].pods)
        if read is not first:
            groups.setdefault(read, []).append(index)
    for read, where in groups.items():
        if read != first:
            yield read, np.array(where, np.int64)


def _write_refusal(answer: Evaluation, index: int, reason: int) -> None:
    """Write that a node refuses."""
    answer.admitted[index] = answer.preferred[index] = False
    answer.reason[index], answer.affinity[index], answer.score[index] = reason, 0, -np.inf


def _union(masks: Iterable[int | None]) -> np.uint64:
    """Return all nodes of some masks."""
    union = 0
    for mask in masks:
        union |= mask or 0
    return np.uint64(union)
