"""Says in a few words why nodes refuse a pod, equal for nodes that refuse it alike, since a scheduler counts texts.

The words come from the free amounts of the nodes, for all nodes at once, and name the commonest causes only.
`Node.explain` and `Admission.message` say more of one node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.evaluation import REASONS
from alignup.cluster.requests import request_of
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod_requests import is_pinned_memory
from alignup.machine.bits import bit_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from alignup.cluster.cluster import Cluster
    from alignup.cluster.evaluation import Evaluation
    from alignup.kubernetes.pod import Container, Pod

__all__ = ["refusal_causes", "refusal_texts"]

_AFFINITY: Final = REASONS.index("TopologyAffinityError")
_SINGLE: Final = TOPOLOGY_POLICIES.index("single-numa-node")
_OTHERS: Final = {
    "UnexpectedAdmissionError": "NUMA: too little is left on the node",
    "SMTAlignmentError": "NUMA: cpu asks for no whole number of cores",
    "UnschedulableAndUnresolvable": "NUMA: the pod's policy is not the node's",
}
_TOGETHER: Final = "NUMA: the containers do not fit together"
_MOST_NUMA_NODES: Final = 63


def refusal_texts(
    cluster: Cluster, pod: Pod, answer: Evaluation, indices: npt.NDArray[np.int64], default_policy: int = -1
) -> list[str]:
    """Return why each of some nodes refuses a pod.

    Args:
        cluster: the nodes.
        pod: the pod.
        answer: what the cluster answered.
        indices: the nodes that are asked for; all refuse it.
        default_policy: the policy that the pod brings, as an index into `TOPOLOGY_POLICIES`; -1: none.
    """
    wholes = [_masks(cluster, pod, indices)]
    several = len(pod.all_containers) > 1
    parts = [_masks(cluster, one, indices) for one in pod.all_containers] if several else wholes
    said: dict[object, str] = {}
    texts = []
    rows = cluster.rows
    for place, index in enumerate(indices.tolist()):
        row = rows[index]
        ids = cluster.nodes[index].machine.numa_node_ids if cluster.nodes else ()
        own = default_policy if default_policy >= 0 else row.policy
        as_whole = row.pod_scope or default_policy >= 0
        units = wholes if as_whole else parts
        facts = tuple([tuple([(name, masks[place]) for name, masks in unit.items()]) for unit in units])
        key = (int(answer.reason[index]), own, row.numa_nodes, ids, facts)
        if key not in said:
            said[key] = _text(*key, several=several)
        texts.append(said[key])
    return texts


def refusal_causes(
    cluster: Cluster, pod: Pod, answer: Evaluation, indices: npt.NDArray[np.int64]
) -> list[str]:
    """Return the same for readers who know that it is about NUMA nodes."""
    return [text.removeprefix("NUMA: ") for text in refusal_texts(cluster, pod, answer, indices)]


def _masks(cluster: Cluster, one: Pod | Container, indices: npt.NDArray[np.int64]) -> dict[str, list[int]]:
    """Return for each resource asked for, and each node, the NUMA nodes that have enough of it by themselves.

    Minus 1 means that the node has too little of it altogether.
    """
    cpus, memory, devices, _ = request_of(one)
    wanted = {**dict(devices), **({"cpu": cpus} if cpus else {}), **dict(memory)}
    found: dict[str, list[int]] = {}
    for name, amount in wanted.items():
        if name not in cluster.resources or not amount:
            continue
        free = cluster.free(name)[indices][:, :_MOST_NUMA_NODES]
        bits = (free >= amount) @ (np.int64(1) << np.arange(free.shape[1], dtype=np.int64))
        found[name] = np.where(free.sum(axis=1) < amount, -1, bits).tolist()
    return found


def _text(
    reason: int,
    policy: int,
    numa_nodes: int,
    ids: tuple[int, ...],
    units: tuple[tuple[tuple[str, int], ...], ...],
    *,
    several: bool,
) -> str:
    """Return why a node refuses, by what its NUMA nodes have left."""
    for unit in units:
        lacking = [_short(name) for name, mask in unit if mask == -1]
        if lacking:
            return f"NUMA: too little {_and(lacking)} is left on the node"
    if reason != _AFFINITY:
        return _OTHERS.get(REASONS[reason], f"NUMA: {REASONS[reason]}")
    for unit in units:
        spread = [_short(name) for name, mask in unit if mask == 0]
        if spread and policy == _SINGLE:
            return f"NUMA: no node has enough {_and(spread)}"
        if spread:
            return f"NUMA: {_and(spread)} only on more nodes than needed"
        if not _common(mask for _, mask in unit):
            return f"NUMA: {_apart(unit, numa_nodes, ids)}"
    return _TOGETHER if several else f"NUMA: no set of nodes is best for {_and(_names(units))}"


def _common(masks: Iterable[int]) -> int:
    """Return the NUMA nodes that all masks have; all bits if there is no mask."""
    common = -1
    for mask in masks:
        common &= mask
    return common


def _names(units: tuple[tuple[tuple[str, int], ...], ...]) -> list[str]:
    return [_short(name) for name, _ in units[0]] if units and units[0] else ["the pod"]


def _apart(unit: tuple[tuple[str, int], ...], numa_nodes: int, ids: tuple[int, ...]) -> str:
    """Return on which nodes each resource is, those that are everywhere left out."""
    everywhere = (1 << numa_nodes) - 1
    return ", ".join(
        f"{_short(name)} only on {_nodes(mask, ids)}" for name, mask in unit if mask != everywhere
    )


def _nodes(mask: int, ids: tuple[int, ...]) -> str:
    numbers = [ids[position] if ids else position for position in bit_numbers(mask)]
    return f"node{'s' if len(numbers) > 1 else ''} {_and([str(number) for number in numbers])}"


def _short(resource: str) -> str:
    """Return a resource without the domain of its vendor."""
    return resource if is_pinned_memory(resource) else resource.rpartition("/")[2]


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
