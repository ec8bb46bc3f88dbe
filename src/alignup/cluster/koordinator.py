"""Judges each node of a cluster as Koordinator's scheduler would, or as its design document asks.

Reads from nodes, or from the amounts of NodeResourceTopology objects, what
`alignup.koordinator.scheduling` needs to know. CPUs and memory count as taken where the node's
managers gave them out; what shares CPUs takes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.cluster.shortages import Fit
from alignup.errors import InputError
from alignup.koordinator.effective import (
    KUBELET_NAMES,
    NODE_LABEL,
    NOTHING_HELD,
    Status,
    StatusCode,
)
from alignup.koordinator.scheduling import (
    Demand,
    NodeView,
    PlacedPod,
    Profile,
    Verdict,
    evaluate,
    make_profile,
)
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod import (
    Pod,
    peak,  # the rule of KEP-753, as for totals
)
from alignup.machine.bits import ids_of, overlapping
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.cluster.cluster import Cluster
    from alignup.node import Node

_NAMES: Final = {kubelets: name for name, kubelets in KUBELET_NAMES.items()}
_THOUSANDTHS: Final = 1000


class NodeVerdict(Record):
    """The verdict and score of a scheduler for one node.

    Attributes:
        score: the score of the placement's NUMA nodes under the profile; 0 where none was decided.
        numa_nodes: the kernel's ids of the placement's NUMA nodes; None: any, or refused.
    """

    node: str
    verdict: Verdict
    score: float
    numa_nodes: tuple[int, ...] | None

    @property
    def admitted(self) -> bool:
        """Whether the node passes every step."""
        return self.verdict.status.code is StatusCode.SUCCESS

    @property
    def message(self) -> str:
        """Why the node is refused, in the profile's words; empty if it is not."""
        return "; ".join(self.verdict.status.reasons)


def judge_nodes(
    cluster: Cluster, pod: Pod, profile: str = "document", *only: str
) -> tuple[NodeVerdict, ...]:
    """Return what the scheduler says of each node, in the cluster's order.

    A node whose totals do not suffice is refused before any NUMA node is looked at, as by the
    scheduler's NodeResourcesFit. Of a cluster that was not made from nodes the pods are not known,
    so exclusivity keeps the pod away from nobody.

    Args:
        cluster: the nodes.
        pod: the pod; it is placed nowhere.
        profile: `document` or `scheduler`; see `alignup.koordinator.scheduling`.
        only: the names of nodes of the cluster; none: all.

    Raises:
        InputError: there is no such profile.
    """
    rules = make_profile(profile)
    requests = peak(
        pod.init_containers, pod.containers, lambda container: container.requests.items()
    )
    requested_amounts = {name: amount for name, amount in requests.items() if amount}
    shortages = Fit(cluster).shortages(pod)

    verdicts = []
    for index in sorted(map(cluster.index, only or cluster.names)):
        name = cluster.names[index]
        if shortages[index]:
            reasons = tuple(shortage.reason for shortage in shortages[index])
            refusal = Verdict(Status(StatusCode.UNSCHEDULABLE, reasons))
            verdicts.append(NodeVerdict(name, refusal, 0.0, None))
            continue

        numa_ids: Sequence[int] = range(cluster.rows[index].numa_nodes)
        if index < len(cluster.nodes):
            numa_ids = cluster.nodes[index].machine.numa_node_ids

        try:
            verdict = _verdict(cluster, index, pod, requested_amounts, rules)
        except InputError as error:
            verdict = Verdict(Status(StatusCode.ERROR, (str(error),)))

        verdicts.append(_node_verdict(name, verdict, numa_ids))

    return tuple(verdicts)


def _verdict(
    cluster: Cluster, index: int, pod: Pod, requested_amounts: Mapping[str, int], rules: Profile
) -> Verdict:
    """Return the verdict on one node whose totals suffice."""
    if index >= len(cluster.nodes):  # those known by amounts come last
        return _verdict_on_amounts(cluster, index, pod, requested_amounts, rules)

    node = cluster.nodes[index]
    config = node.config
    kubelet_policy = _policy(config.topology_manager_policy, config.topology_manager_scope, rules)
    policy = node.labels.get(NODE_LABEL) or kubelet_policy

    holders = {
        placed_pod.namespaced_name: rules.holds(_placed(node, placed_pod, policy, rules))
        for placed_pod in node.pods
    }
    occupancy = NOTHING_HELD
    for pod_occupancy in holders.values():
        occupancy |= pod_occupancy

    numa_ids = node.machine.numa_node_ids
    view = NodeView(policy, len(numa_ids), occupancy, holders, numa_ids)

    demands = [
        _cpus(node, requested_amounts.get("cpu", 0)),
        _memory(node, "memory", requested_amounts.get("memory", 0)),
    ]
    for name, amount in requested_amounts.items():
        if node.memory is not None and name in node.memory.allocatable:
            demands.append(_memory(node, name, amount))
        elif node.devices is not None and name in node.devices.free:
            demands.append(_counted(cluster, index, name, amount))

    return evaluate(pod.annotations, _once(demands), view, rules, node.single_numa_node_exclusive)


def _verdict_on_amounts(
    cluster: Cluster, index: int, pod: Pod, requested_amounts: Mapping[str, int], rules: Profile
) -> Verdict:
    """Return the verdict on one node of which only amounts are known, and whose totals suffice."""
    row = cluster.rows[index]
    scope = "pod" if row.pod_scope else "container"
    policy = _policy(TOPOLOGY_POLICIES[row.policy], scope, rules)
    demands = [
        _counted(cluster, index, name, requested_amounts.get(name, 0))
        for name in ("cpu", "memory", *requested_amounts)
    ]
    view = NodeView(policy, row.numa_nodes, NOTHING_HELD)
    return evaluate(pod.annotations, _once(demands), view, rules)


def _policy(policy: str, scope: str, rules: Profile) -> str:
    """Return a kubelet's policy in Koordinator's words.

    The scheduler knows single-numa-node in pod scope only.
    """
    is_known = policy != "single-numa-node" or scope == "pod" or rules.knows_container_scope
    return _NAMES[policy] if is_known else ""


def _placed(node: Node, pod: Pod, policy: str, rules: Profile) -> PlacedPod:
    """Return a pod on a node by the NUMA nodes that it is in.

    One whose annotation cannot be read names no policy.
    """
    cpu_bits = 0
    nodes = 0
    for container in pod.all_containers:
        if node.cpu is not None:
            cpu_bits |= int(node.cpu.cpus(pod.uid, container.name) or 0)
        nodes |= node.numa_nodes(pod.uid, container.name)

    try:
        pod_policy = rules.spec(pod.annotations).policy
    except InputError:
        pod_policy = ""

    return PlacedPod(overlapping(node.machine.node_cpus, cpu_bits), nodes, pod_policy or policy)


def _cpus(node: Node, request: int) -> Demand:
    """Return the CPUs of a node, in thousandths; those that pods hold for themselves are taken."""
    if node.cpu is None:
        allocatable = ~int(node.config.reserved_system_cpus)
        free = allocatable
    else:
        allocatable = int(node.cpu.allocatable_cpus)
        free = int(node.cpu.free_cpus)

    node_cpus = node.machine.node_cpus
    capacities = tuple(_THOUSANDTHS * (bits & allocatable).bit_count() for bits in node_cpus)
    free_amounts = tuple(_THOUSANDTHS * (bits & free).bit_count() for bits in node_cpus)
    return Demand("cpu", capacities, free_amounts, request)


def _memory(node: Node, kind: str, request: int) -> Demand:
    """Return the memory of a type on a node, in bytes.

    Without a Static memory manager nothing of it is taken.
    """
    if node.memory is None or kind not in node.memory.allocatable:
        capacities = tuple(numa_node.memory for numa_node in node.machine.numa_nodes)
        return Demand(kind, capacities, capacities, request)
    return Demand(kind, node.memory.allocatable[kind], node.memory.free[kind], request)


def _counted(cluster: Cluster, index: int, name: str, request: int) -> Demand:
    """Return a resource as the cluster counts it.

    A device counts at each NUMA node that it is near to.
    """
    width = cluster.rows[index].numa_nodes
    if name not in cluster.resources:
        return Demand(name, (0,) * width, (0,) * width, request)

    unit = _THOUSANDTHS if name == "cpu" else 1
    capacities = tuple(unit * int(amount) for amount in cluster.allocatable(name)[index, :width])
    free_amounts = tuple(unit * int(amount) for amount in cluster.free(name)[index, :width])
    return Demand(name, capacities, free_amounts, request)


def _once(demands: Sequence[Demand]) -> list[Demand]:
    """Return the demands without those of a resource that comes a second time."""
    return list({demand.resource: demand for demand in reversed(demands)}.values())[::-1]


def _node_verdict(name: str, verdict: Verdict, numa_ids: Sequence[int]) -> NodeVerdict:
    """Return a verdict with the placement's worth, by the hints that were offered for it."""
    affinity = verdict.affinity
    if affinity is None:
        return NodeVerdict(name, verdict, 0.0, None)

    mask = affinity.mask
    if mask is None and len(numa_ids) == 1:
        mask = 1

    offers = (hint for hints in verdict.hints.values() for hint in hints if hint.mask == mask)
    score = next((float(hint.score) for hint in offers), 0.0)
    return NodeVerdict(name, verdict, score, None if mask is None else ids_of(mask, numa_ids))
