"""Says in a few words why nodes refuse a pod, equal for nodes that refuse it alike, since a scheduler counts texts.

The words come from the free amounts of the nodes, for all nodes at once, and name the commonest causes only.
`Node.explain` and `Admission.message` say more of one node.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.evaluation import REASONS
from alignup.cluster.rows import request_of
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod_requests import is_pinned_memory
from alignup.machine.bits import bit_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from alignup.cluster.cluster import Cluster
    from alignup.cluster.evaluation import Evaluation
    from alignup.kubernetes.pod import Container, Pod

__all__ = ["Layout", "Layouts", "layouts_of", "refusal_causes", "refusal_texts"]

_AFFINITY: Final = REASONS.index("TopologyAffinityError")
_SINGLE: Final = TOPOLOGY_POLICIES.index("single-numa-node")
_OTHERS: Final = {
    "UnexpectedAdmissionError": "NUMA: too little is left on the node",
    "SMTAlignmentError": "NUMA: cpu asks for no whole number of cores",
    "UnschedulableAndUnresolvable": "NUMA: the pod's policy is not the node's",
}
_TOGETHER: Final = "NUMA: the containers do not fit together"


@dataclass(frozen=True, slots=True)
class Layout:
    """The facts about a node that its words depend on, besides what is free."""

    policy: int
    """An index into `TOPOLOGY_POLICIES`."""
    pod_scope: bool
    numa_nodes: int
    ids: tuple[int, ...]
    """The kernel's ids of the NUMA nodes; empty: their positions are all that is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """The layout of each node of a cluster; there are few that differ."""

    kinds: tuple[Layout, ...]
    of: npt.NDArray[np.int64]
    """For each node, its place in `kinds`."""


def layouts_of(cluster: Cluster | None) -> Layouts:
    """Return the layout of each node; of no cluster, none."""
    kinds: dict[Layout, int] = {}
    if cluster is None:
        return Layouts((), np.zeros(0, np.int64))
    nodes = cluster.nodes
    of = np.empty(len(cluster), np.int64)
    for index, row in enumerate(cluster.rows):
        ids = nodes[index].machine.numa_node_ids if nodes else ()
        of[index] = kinds.setdefault(Layout(row.policy, row.pod_scope, row.numa_nodes, ids), len(kinds))
    return Layouts(tuple(kinds), of)


def refusal_texts(
    cluster: Cluster,
    layouts: Layouts,
    pod: Pod,
    answer: Evaluation,
    indices: npt.NDArray[np.int64],
    own_policy: int = -1,
) -> list[str]:
    """Return why each of some nodes refuses a pod.

    Args:
        cluster: the nodes.
        layouts: of the nodes, from `layouts_of`.
        pod: the pod.
        answer: what the cluster answered.
        indices: the nodes that are asked for; all refuse it.
        own_policy: the policy that the pod brings, as an index into `TOPOLOGY_POLICIES`; -1: none.
    """
    units: list[Pod | Container] = [pod]
    if len(pod.all_containers) > 1:
        units += pod.all_containers
    wanted = [_wanted(cluster, one) for one in units]
    columns: dict[str, dict[int, None]] = {}
    for name, amount in chain.from_iterable(wanted):
        columns.setdefault(name, {})[amount] = None
    facts = np.empty((len(indices), 2 + sum(map(len, columns.values()))), np.int64)
    facts[:, 0], facts[:, 1] = answer.reason[indices], layouts.of[indices]
    place = 2
    for name, amounts in columns.items():
        cluster.nodes_with(name, list(amounts), indices, facts[:, place : place + len(amounts)])
        place += len(amounts)
    asked = [(name, amount) for name, amounts in columns.items() for amount in amounts]
    said: dict[bytes, str] = {}
    texts = []
    # nodes of which all facts are equal are refused in the same words: their bytes tell, without a tuple for each
    for index, key in enumerate(facts.view(f"V{facts.strides[0]}").ravel().tolist()):
        text = said.get(key)
        if text is None:
            reason, layout, *masks = facts[index].tolist()
            found = dict(zip(asked, masks, strict=True))
            by_unit = [[(one[0], found[one]) for one in unit] for unit in wanted]
            text = said[key] = _text(reason, layouts.kinds[layout], own_policy, by_unit)
        texts.append(text)
    return texts


def refusal_causes(
    cluster: Cluster, pod: Pod, answer: Evaluation, indices: npt.NDArray[np.int64]
) -> list[str]:
    """Return the same for readers who know that it is about NUMA nodes."""
    texts = refusal_texts(cluster, layouts_of(cluster), pod, answer, indices)
    return [text.removeprefix("NUMA: ") for text in texts]


def _wanted(cluster: Cluster, one: Pod | Container) -> list[tuple[str, int]]:
    """Return what is asked for of the resources that any node has, devices first."""
    cpus, memory, devices, _ = request_of(one)
    wanted = {**dict(devices), **({"cpu": cpus} if cpus else {}), **dict(memory)}
    known = cluster.resources
    return [(name, amount) for name, amount in wanted.items() if amount and name in known]


def _text(reason: int, layout: Layout, own_policy: int, units: Sequence[Sequence[tuple[str, int]]]) -> str:
    """Return why a node refuses, by what its NUMA nodes have left.

    Args:
        reason: an index into `REASONS`.
        layout: of the node.
        own_policy: as for `refusal_texts`.
        units: the masks for the pod as a whole, and then for each of its containers if there are several.
    """
    policy = layout.policy if own_policy < 0 else own_policy
    several = len(units) > 1
    asked = units[1:] if several and not layout.pod_scope and own_policy < 0 else units[:1]
    for unit in asked:
        lacking = [_short(name) for name, mask in unit if mask == -1]
        if lacking:
            return f"NUMA: too little {_and(lacking)} is left on the node"
    if reason != _AFFINITY:
        return _OTHERS.get(REASONS[reason], f"NUMA: {REASONS[reason]}")
    return next(
        filter(None, (_why(unit, policy, layout) for unit in asked)),
        _TOGETHER if several else _best(units[0]),
    )


def _why(unit: Sequence[tuple[str, int]], policy: int, layout: Layout) -> str:
    """Return why a pod or container finds no place by itself; empty: it does."""
    spread = [_short(name) for name, mask in unit if mask == 0]
    if spread and policy == _SINGLE:
        return f"NUMA: no node has enough {_and(spread)}"
    if spread:
        return f"NUMA: {_and(spread)} only on more nodes than needed"
    return "" if _common(mask for _, mask in unit) else f"NUMA: {_apart(unit, layout)}"


def _best(unit: Sequence[tuple[str, int]]) -> str:
    return f"NUMA: no set of nodes is best for {_and([_short(name) for name, _ in unit] or ['the pod'])}"


def _common(masks: Iterable[int]) -> int:
    """Return the NUMA nodes that all masks have; all bits if there is no mask."""
    common = -1
    for mask in masks:
        common &= mask
    return common


def _apart(unit: Sequence[tuple[str, int]], layout: Layout) -> str:
    """Return on which nodes each resource is, those that are everywhere left out."""
    everywhere = (1 << layout.numa_nodes) - 1
    return ", ".join(
        f"{_short(name)} only on {_nodes(mask, layout.ids)}" for name, mask in unit if mask != everywhere
    )


def _nodes(mask: int, ids: tuple[int, ...]) -> str:
    numbers = [ids[position] if ids else position for position in bit_numbers(mask)]
    return f"node{'s' if len(numbers) > 1 else ''} {_and([str(number) for number in numbers])}"


def _short(resource: str) -> str:
    """Return a resource without the domain of its vendor."""
    return resource if is_pinned_memory(resource) else resource.rpartition("/")[2]


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
