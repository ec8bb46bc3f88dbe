"""Counts how many replicas of a pod the nodes of a cluster could take, by admitting them on copies of the nodes.

A replica counts if the kubelet admits it and the node has enough of everything in sum, as `alignup.cluster.ranking`
asks of one pod.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from alignup.cluster.node_totals import Totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

__all__ = ["MOST_PODS", "replicas_that_fit"]

MOST_PODS: Final = 110
"""The pods that a kubelet runs by default (`maxPods`), those that are on the node already included."""


def replicas_that_fit(nodes: Sequence[Node], pod: Pod) -> list[int]:
    """Return how many replicas of a pod each node could take, one after the other; the nodes stay as they are.

    No more than `MOST_PODS` pods are counted for a node. Pods do not wait for each other, so the sum over the nodes is
    what the cluster could take.

    Raises:
        TypeError: a provider of a user takes part that cannot be copied.
    """
    return [_on_one(node, pod) for node in nodes]


def _on_one(node: Node, pod: Pod) -> int:
    """Return how many replicas one node could take."""
    copy, totals = node.copy(), Totals([node])
    request, count = totals.request(pod), 0
    for replica in _replicas(pod, MOST_PODS - len(node.pods)):
        if not totals.fits(request)[0] or not copy.admit(replica).admitted:
            break
        totals.add(0, request)
        count += 1
    return count


def _replicas(pod: Pod, most: int) -> Iterator[Pod]:
    """Yield equal pods with uids of their own."""
    for number in range(most):
        uid = f"{pod.uid}/{number}"
        readings = {reading: replace(other, uid=uid) for reading, other in pod.readings.items()}
        yield replace(pod, uid=uid, readings=readings)
