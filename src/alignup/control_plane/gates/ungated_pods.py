"""Pods with something exclusive that were bound without the keeper's gate, beside gated ones.

What they take is known only once they are bound: where one of them and a pod with a place come to a
node at the same moment, its kubelet rejects the second one.

Pure: no clock is read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.control_plane.gates.node_affinity import GATE, LABEL_VALUE, NAMESPACE_LABEL
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.control_plane.api_server.objects import WatchedPod

# Seconds between two warnings.
_BETWEEN: Final = 60.0


class UngatedPods:
    """Those that are bound now, and when it was warned of them."""

    def __init__(self) -> None:
        # By uid, in the order in which they were seen.
        self._pods: dict[str, WatchedPod] = {}
        # The uids of those of which nobody was told.
        self._new: dict[str, None] = {}
        self._warned = float("-inf")

    def __len__(self) -> int:
        return len(self._pods)

    def seen(self, pod: WatchedPod) -> None:
        """Take in a pod that is bound, or has ended."""
        uid = pod.pod.uid
        if not (pod.is_ungated and pod.node):
            self.gone(uid)
            return

        if uid not in self._pods:
            self._new[uid] = None
        self._pods[uid] = pod

    def gone(self, uid: str) -> None:
        """Take in that a pod is not there any more; another one is no error."""
        self._pods.pop(uid, None)
        self._new.pop(uid, None)

    def forget_all_but(self, uids: Iterable[str]) -> None:
        """Forget pods that are not among some."""
        for uid in self._pods.keys() - set(uids):
            self.gone(uid)

    def warning(self, now: float) -> str:
        """Return what to say of those that came since the last warning; empty: nothing now.

        Something is said once a minute at most, with the pod that came last as an example.
        """
        if not self._new or now < self._warned + _BETWEEN:
            return ""

        self._warned = now
        pod = self._pods[next(reversed(self._new))]
        self._new.clear()
        return (
            f"{counted(len(self._pods), 'pod')} with exclusive CPUs, memory or devices came to "
            f"nodes without the gate {GATE}, such as {pod.pod.namespaced_name} on node {pod.node}: "
            f"{remedy(pod.pod.namespace)}"
        )


def remedy(namespace: str) -> str:
    """Return what such pods do, and what to do about those of a namespace."""
    return (
        "where one comes at the same moment as a pod with a place, the kubelet rejects the second; "
        "new pods get the gate by `alignup gates --install` and `kubectl label namespace "
        f"{namespace} {NAMESPACE_LABEL}={LABEL_VALUE}`"
    )
