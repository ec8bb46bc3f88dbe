"""What kube-scheduler's own filters say of a pod on a node.

A pod that is let go with one node named to it has to pass them there. They are those of the
plugins NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts and NodeResourcesFit of
Kubernetes 1.37, with their words (pkg/scheduler/framework/plugins). Spread constraints, affinity to
pods, volumes and claims are not looked at.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from alignup.kubernetes.node_fit import collide, requests_of, selects, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubernetes.node_fit import NodeObject
    from alignup.kubernetes.pod import Pod

CORDONED: Final = "node(s) were unschedulable"
TAINTED: Final = "node(s) had untolerated taint(s)"
UNSELECTED: Final = "node(s) didn't match Pod's node affinity/selector"
PORTS_TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS: Final = "Too many pods"

# What a cordoned node counts as having: who tolerates it may go there.
_CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_HINDERING: Final = frozenset({"NoSchedule", "NoExecute"})


class NodeLoad:
    """The sums of the pods that are bound to a node, or count as bound to it.

    The scheduler counts all of them, also those that hold nothing exclusive.

    Attributes:
        pods: how many there are.
        amounts: what they request, in the units of `requests_of`.
        host_ports: how many of them have each port (protocol, IP address, port).
    """

    __slots__ = ("amounts", "host_ports", "pods")

    def __init__(self) -> None:
        self.pods = 0
        self.amounts: Counter[str] = Counter()
        self.host_ports: Counter[tuple[str, str, int]] = Counter()

    def add(self, pod: Pod) -> None:
        """Count a pod."""
        self.pods += 1
        self.amounts.update(requests_of(pod))
        self.host_ports.update(pod.constraints.host_ports)

    def remove(self, pod: Pod) -> None:
        """Count a pod no more, that was counted with the same requests."""
        self.pods -= 1
        requests = requests_of(pod)
        self.amounts.subtract(requests)
        for resource in requests:
            if not self.amounts[resource]:
                del self.amounts[resource]

        # whoever makes pods may choose among 2^128 addresses
        for port in pod.constraints.host_ports:
            self.host_ports[port] -= 1
            if not self.host_ports[port]:
                del self.host_ports[port]


def refusal(pod: Pod, node: NodeObject, load: NodeLoad) -> str:
    """Return the scheduler's first reason not to put a pod on a node; empty: it would.

    Args:
        pod: the pod.
        node: the node; a resource that is not among its allocatable amounts counts as 0.
        load: the pods that are there.
    """
    return next(refusals(pod, node, load), "")


def refusals(pod: Pod, node: NodeObject, load: NodeLoad) -> Iterator[str]:
    """Yield the scheduler's reasons not to put a pod on a node, in the order of its plugins."""
    tolerations = pod.constraints.tolerations
    if node.is_unschedulable and not tolerates(tolerations, _CORDON):
        yield CORDONED

    hindering = [taint for taint in node.taints if taint.get("effect") in _HINDERING]
    if not all(tolerates(tolerations, taint) for taint in hindering):
        yield TAINTED

    if not selects(pod, node):
        yield UNSELECTED

    ports = pod.constraints.host_ports
    if ports:
        used_ports = [port for port, count in load.host_ports.items() if count]
        if any(collide(port, used) for port in ports for used in used_ports):
            yield PORTS_TAKEN

    if load.pods + 1 > node.allocatable.get("pods", 0):
        yield TOO_MANY_PODS

    for name, amount in requests_of(pod).items():
        if amount > node.allocatable.get(name, 0) - load.amounts[name]:
            yield f"Insufficient {name}"
