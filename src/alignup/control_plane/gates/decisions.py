"""What a keeper decides: records that others carry out.

A decision names the version of the pod, or of the node, about which it was made, so that the API
server refuses it where that has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.control_plane.api_server.objects import PLACE
from alignup.control_plane.gates.node_affinity import pinned, required_terms
from alignup.records import Record

if TYPE_CHECKING:
    from alignup.control_plane.gates.waiting_pods import WaitingPod


class Release(Record):
    """Take the gate off a pod, and require its nodes in the same patch.

    Attributes:
        nodes: where it has a place, one or several to choose from; empty: it needs none.
        label: the key of the label that gives it another node later; empty: there will be none.
    """

    pod: WaitingPod
    nodes: tuple[str, ...] = ()
    label: str = ""


class Label(Record):
    """Set, or take away, the label by which a node is a place of one pod.

    Attributes:
        version: the resourceVersion of the node.
    """

    node: str
    key: str
    is_set: bool
    version: str = ""


class Plan(Record):
    """Write into a pod that keeps its gate which node it is to get with its group.

    Attributes:
        node: its name; empty: the group waits, and what was written is taken away.
    """

    pod: WaitingPod
    node: str


Decision = Release | Label | Plan


class Counts:
    """How often something was done, for metrics."""

    __slots__ = ("judged", "mended", "placed", "refused", "released")

    def __init__(self) -> None:
        self.placed = 0
        self.released = 0
        self.mended = 0
        self.refused = 0
        self.judged = 0


def patch_of(decision: Decision) -> dict[str, Any]:
    """Return the merge patch that carries a decision out.

    It names the version of the object that was read, so that it is refused where that has changed.
    """
    if isinstance(decision, Label):
        labels = {decision.key: "true" if decision.is_set else None}
        return {"metadata": {"resourceVersion": decision.version, "labels": labels}}

    pod = decision.pod
    metadata: dict[str, Any] = {"uid": pod.uid, "resourceVersion": pod.version}
    if isinstance(decision, Plan):
        metadata["annotations"] = {PLACE: decision.node or None}
        return {"metadata": metadata}

    spec: dict[str, Any] = {"schedulingGates": None}  # a pod with other gates does not wait
    if decision.nodes:
        metadata["annotations"] = {PLACE: ",".join(decision.nodes)}
        names = decision.nodes
        if required_terms(pod.affinity) and decision.label:
            names = ()
        spec["affinity"] = pinned(pod.affinity, names, decision.label)

    return {"metadata": metadata, "spec": spec}
