"""Ranks the nodes of a cluster for a pod, and says why each other node refuses it.

It also counts the replicas that fit. `Cluster.evaluate` gives the kubelets' verdicts. A scheduler
must also know that the node has enough in total, and that a node without NUMA management aligns
nothing, whatever it admits: both are added here.

The words of refusals are few, and equal for nodes that refuse alike, since a scheduler counts
texts. Nodes are asked, and blame what `explain` blames. Where only amounts are known, or more nodes
refuse than may be asked, the words come from the free amounts by NUMA node, for all nodes at once,
and name the commonest causes only.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.cluster import REASONS, Cluster, Evaluation, Ints, request_of
from alignup.cluster.node_totals import Totals
from alignup.errors import ConfigError
from alignup.explanations.cause import MOST_CAUSES, without_requests
from alignup.koordinator.effective import pod_policy
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod import Container, Pod, is_pinned_memory
from alignup.machine.bits import bit_numbers
from alignup.providers.cpu.provider import SMT_ALIGNMENT_ERROR
from alignup.records import Record, field
from alignup.topology_manager.refusal_message import Offer, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.cluster.shortages import Fit, Shortage
    from alignup.node import Node
    from alignup.topology_manager.scope import Refusal

_NONE: Final = TOPOLOGY_POLICIES.index("none")

_PREFERENCE: Final = (True, None, False)

_MISALIGNED: Final = (
    "Unschedulable",
    (
        "the devices of the pod's claims are on other NUMA nodes than its CPUs and memory, or on "
        "unknown ones"
    ),
    "devices of claims elsewhere",
)

# The pods that a kubelet runs by default (`maxPods`), those that are on the node already included.
MOST_PODS: Final = 110

_AFFINITY: Final = REASONS.index("TopologyAffinityError")
_SINGLE: Final = TOPOLOGY_POLICIES.index("single-numa-node")
_OTHER_POLICY: Final = "the pod's policy is not the node's"
_WHOLE_CORES: Final = "cpu cannot be allocated as whole cores"

_OTHERS: Final = {
    "UnexpectedAdmissionError": "too little is left to allocate",
    "SMTAlignmentError": _WHOLE_CORES,
    "UnschedulableAndUnresolvable": _OTHER_POLICY,
    "Unschedulable": "its claims cannot be allocated",
}

_TOGETHER: Final = "the containers do not fit together"

# Causes that a sentence has.
_MOST_COMMON: Final = 4

# Nodes that are asked themselves why they refuse a pod.
MOST_ASKED: Final = 64

_PREFIX: Final = "NUMA: "

# By the kind of the cause, as `alignup.explanations.cause.Cause` has it.
_WORDS: Final = {
    "too little": "not enough {} is free on the node",
    "one node": "no NUMA node has enough {}",
    "spread": "{} would need more NUMA nodes than on an empty machine",
    "conflict": "no set of NUMA nodes suits {}",
}


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
        unmanaged: names of the nodes in `order` that align nothing: their policy is none, or
            nothing is known of them.
        refused: in the cluster's order.
        meets: by index of a node in `order`, whether the devices of the pod's claims would meet its
            CPUs and memory there; see `ClaimProvider.are_aligned` of `alignup.claims.on_node`.
            Empty: nothing is known of claims.
    """

    order: tuple[int, ...]
    unmanaged: tuple[str, ...]
    refused: tuple[Refused, ...]
    meets: Mapping[int, bool | None] = field(default_factory=dict)

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of nodes that would not take the pod, by reason."""
        return dict(sorted(Counter(node.reason for node in self.refused).items()))

    @property
    def groups(self) -> tuple[RefusalGroup, ...]:
        """The nodes that would not take the pod, by equal causes: those with most nodes first."""
        alike: dict[tuple[str, str], list[Refused]] = {}
        for node in self.refused:
            alike.setdefault((node.reason, node.cause), []).append(node)
        groups = [
            RefusalGroup(reason, cause, tuple(node.node for node in members), members[0].message)
            for (reason, cause), members in alike.items()
        ]
        return tuple(
            sorted(groups, key=lambda group: (-len(group.nodes), group.reason, group.cause))
        )


def rank(
    cluster: Cluster, pod: Pod, answer: Evaluation, fit: Fit, *, require_dra_alignment: bool = False
) -> Ranking:
    """Return the nodes that would admit a pod and have enough in total, best first.

    Args:
        cluster: the nodes.
        pod: the pod.
        answer: what `cluster.evaluate` returned for it.
        fit: what the nodes have in total.
        require_dra_alignment: refuse nodes where the devices of the pod's claims would not meet its
            CPUs and memory; else the others come first.
    """
    shortages = [
        node_shortages[0] if node_shortages else None for node_shortages in fit.shortages(pod)
    ]
    best = [index for index in answer.best().tolist() if shortages[index] is None]
    brings_policy = pod_policy(pod) is not None  # which a pod may bring to a node that has none

    unmanaged: dict[int, str] = {}
    for index in best:
        row = cluster.rows[index]
        is_managed = row.cpu or row.memory or row.devices
        if not is_managed or (row.policy == _NONE and not brings_policy):
            unmanaged[index] = cluster.names[index]

    order = tuple(sorted(best, key=unmanaged.__contains__))
    ranking = Ranking(order, tuple(unmanaged.values()), _refused(cluster, pod, answer, shortages))
    if not (pod.constraints.claims or pod.devices):
        return ranking
    return _by_claims(cluster, pod, ranking, require=require_dra_alignment)


def _by_claims(cluster: Cluster, pod: Pod, ranking: Ranking, *, require: bool) -> Ranking:
    """Return a ranking by claims.

    The nodes come first where the devices of the pod's claims meet its CPUs and memory.
    """
    from alignup.claims.preview import preview_claims  # noqa: PLC0415  # few pods have claims

    meets: dict[int, bool | None] = {}
    for index in ranking.order if cluster.nodes else ():
        preview = preview_claims(cluster.nodes[index], pod, suggest=False)
        if preview is not None:
            meets[index] = preview.meet

    order = sorted(ranking.order, key=lambda index: _PREFERENCE.index(meets.get(index)))
    kept = []
    refused = list(ranking.refused)
    for index in order:
        if meets.get(index) or not (require and meets):
            kept.append(index)
        else:
            refused.append(Refused(cluster.names[index], *_MISALIGNED))

    names = {cluster.names[index] for index in kept}
    unmanaged = tuple(name for name in ranking.unmanaged if name in names)
    return Ranking(tuple(kept), unmanaged, tuple(refused), meets)


def _refused(
    cluster: Cluster, pod: Pod, answer: Evaluation, shortages: Sequence[Shortage | None]
) -> tuple[Refused, ...]:
    """Return the nodes that refuse or have too little in total, with the reason and the cause."""
    indices = np.flatnonzero(~answer.admitted)
    causes = dict(zip(indices.tolist(), refusal_causes(cluster, pod, answer, indices), strict=True))

    refused = []
    for index, shortage in enumerate(shortages):
        name = cluster.names[index]
        if not answer.admitted[index]:
            if cluster.nodes:
                sentence = _sentence_of(cluster.nodes[index], pod)
            elif shortage is not None:
                sentence = f"{shortage.reason}: {shortage.message}"
            else:
                policy = TOPOLOGY_POLICIES[cluster.rows[index].policy]
                sentence = (
                    f"policy {policy!r}: enough in total, but not on NUMA nodes that the "
                    "policy allows"
                )

            refused.append(Refused(name, REASONS[answer.reason[index]], sentence, causes[index]))
        elif shortage is not None:
            refused.append(Refused(name, shortage.reason, shortage.message, shortage.cause))

    return tuple(refused)


def _sentence_of(node: Node, pod: Pod) -> str:
    """Return why a node refuses a pod, in its own words."""
    try:
        return node.try_admit(pod).message
    except ConfigError as error:  # the pod's own policy does not go with so many NUMA nodes
        return str(error)


def replicas_that_fit(nodes: Sequence[Node], pod: Pod) -> list[int]:
    """Return how many replicas of a pod each node could take, one after the other.

    The nodes stay as they are. No more than `MOST_PODS` pods are counted for a node, or fewer where
    its kubelet runs fewer. Pods do not wait for each other, so the sum over the nodes is what the
    cluster could take.

    Raises:
        TypeError: a provider of a user takes part that cannot be copied.
    """
    counts = []
    for node in nodes:
        copy = node.copy()
        totals = Totals([node])
        request = totals.request(pod)
        most_replicas = MOST_PODS - len(node.pods)

        count = 0
        while count < most_replicas and totals.fits(request)[0]:
            replica = pod.renamed(uid=f"{pod.uid}/{count}")
            if not _takes(copy, replica):
                break
            totals.add(0, request)
            count += 1

        counts.append(count)

    return counts


def _takes(node: Node, pod: Pod) -> bool:
    """Admit a pod, if the node takes it; return whether it does."""
    try:
        return node.admit(pod).admitted
    except ConfigError:  # as for `_sentence_of`
        return False


class Layout(Record):
    """The facts about a node that its words depend on, besides what is free.

    Attributes:
        policy: an index into `TOPOLOGY_POLICIES`.
        ids: the kernel's ids of the NUMA nodes; empty: their positions are all that is known.
        resources: the resources that its managers give out; nothing else is asked of it.
    """

    policy: int
    pod_scope: bool
    numa_nodes: int
    ids: tuple[int, ...]
    resources: frozenset[str]


class Layouts(Record, eq=False):
    """The layout of each node of a cluster; there are few that differ.

    Attributes:
        of: for each node, its place in `kinds`.
    """

    kinds: tuple[Layout, ...]
    of: Ints


def layouts_of(cluster: Cluster) -> Layouts:
    """Return the layout of each node."""
    kinds: dict[Layout, int] = {}
    nodes = cluster.nodes
    kind_of_node = np.empty(len(cluster), np.int64)
    for index, row in enumerate(cluster.rows):
        ids = nodes[index].machine.numa_node_ids if index < len(nodes) else ()

        resources = set(row.devices)
        if row.cpu:
            resources.add("cpu")
        if row.memory:
            resources.update(row.memory.free)

        layout = Layout(row.policy, row.pod_scope, row.numa_nodes, ids, frozenset(resources))
        kind_of_node[index] = kinds.setdefault(layout, len(kinds))

    return Layouts(tuple(kinds), kind_of_node)


def refusal_causes(cluster: Cluster, pod: Pod, answer: Evaluation, indices: Ints) -> list[str]:
    """Return why each of some nodes refuses a pod.

    Nodes are asked; where only amounts are known, these tell.
    """
    if cluster.nodes:
        return [short_cause(cluster.nodes[index], pod) for index in indices.tolist()]

    texts = refusal_texts(cluster, layouts_of(cluster), pod, answer, indices)
    return [text.removeprefix(_PREFIX) for text in texts]


def causes_in_words(causes: Counter[str]) -> str:
    """Return how many nodes refuse a pod for what, the commonest causes first.

    The sentence is in the form of kube-scheduler's, which people know.
    """
    if not causes:
        return "there is no node"

    common = ", ".join(
        f"{count} {text.removeprefix(_PREFIX)}" for text, count in causes.most_common(_MOST_COMMON)
    )
    return f"0/{causes.total()} nodes have a place: {common}"


def short_cause(
    node: Node,
    pod: Pod,
    refusal: Refusal | None = None,
    admits: Callable[[Pod], bool] | None = None,
) -> str:
    """Return why a node refuses a pod, in words without amounts: the causes that `explain` tells.

    Args:
        node: the node; it stays as it is.
        pod: the pod.
        refusal: that of the node, where it was asked already.
        admits: whether the node admits a pod, where that is known without asking it.
    """
    parts: list[str] = []
    asking_pod = pod
    where = None
    while len(parts) < MOST_CAUSES:
        try:
            refusal = refusal if refusal and not parts else node.try_admit(asking_pod).refusal
        except ConfigError:  # the pod's own policy does not go with so many NUMA nodes
            parts.append(_OTHER_POLICY)
            break

        if refusal is None or (parts and refusal.container != where):
            break

        where = refusal.container
        cause, resources = _brief(node, refusal)
        parts.append(cause)

        fewer = without_requests(asking_pod, where, resources)
        if not resources or fewer == asking_pod or (admits is not None and admits(fewer)):
            break

        asking_pod = fewer

    return "; ".join(dict.fromkeys(parts))


def _brief(node: Node, refusal: Refusal) -> tuple[str, Sequence[str]]:
    """Return one cause in a few words, and the resources that it blames."""
    if refusal.detail and not refusal.provider:
        if refusal.reason == REASONS[_AFFINITY]:
            return "exclusivity keeps the pod away from others", ()
        return _OTHER_POLICY, ()

    if refusal.reason == SMT_ALIGNMENT_ERROR:
        return _WHOLE_CORES, ("cpu",)

    if refusal.detail:
        blamed = refusal.resources
        names = f"{_and(_shorts(blamed))} " if blamed else ""
        return f"too little {names}is left to allocate", blamed

    kind, offers = kind_of(refusal)
    resources = [name for offer in offers for name in offer.resources]
    if kind == "conflict" and refusal.policy == TOPOLOGY_POLICIES[_SINGLE]:
        return _on_nodes(offers, node.machine.numa_node_ids), resources

    return _WORDS[kind].format(_and(_shorts(resources))), resources


def _on_nodes(offers: Sequence[Offer], ids: Sequence[int]) -> str:
    """Return on which single NUMA nodes each resource is."""
    policy = TOPOLOGY_POLICIES[_SINGLE]
    parts = []
    for offer in offers:
        masks = offer.good(policy)
        if masks is not None:
            places = sorted(position for mask in masks for position in bit_numbers(mask))
            parts.append(f"{_and(_shorts(offer.resources))} only on {_nodes(places, ids)}")
    return ", ".join(parts)


def refusal_texts(
    cluster: Cluster,
    layouts: Layouts,
    pod: Pod,
    answer: Evaluation,
    indices: Ints,
    own_policy: int = -1,
    cause_of: Callable[[int, Pod], str] | None = None,
) -> list[str]:
    """Return why each of some nodes refuses a pod, as a scheduler shows it.

    At most `MOST_ASKED` nodes are asked for their own reason. If more refuse, one of each group
    with equal free amounts is asked; beyond this number the reason follows from the amounts.

    Args:
        cluster: the nodes.
        layouts: of the nodes, from `layouts_of`.
        pod: the pod.
        answer: what the cluster answered.
        indices: the nodes that are asked for; all refuse it.
        own_policy: the policy that the pod brings, as an index into `TOPOLOGY_POLICIES`; -1: none.
        cause_of: `short_cause` of a node by its number, where that is kept; None: each is asked.
    """
    nodes = cluster.nodes
    cause_of = cause_of or (lambda number, pod: short_cause(nodes[number], pod))
    asked_all = np.count_nonzero(indices < len(nodes)) <= MOST_ASKED
    if asked_all and (indices < len(nodes)).all():
        return [_PREFIX + cause_of(index, pod) for index in indices.tolist()]

    units: list[Pod | Container] = [pod]
    if len(pod.all_containers) > 1:
        units += pod.all_containers

    requests_of_units = [_requests(cluster, unit) for unit in units]
    # each once, those of a resource together, in the order of the columns of facts
    amounts_of: dict[str, dict[int, None]] = {}
    for name, amount in chain.from_iterable(requests_of_units):
        amounts_of.setdefault(name, {})[amount] = None

    facts = _facts(cluster, layouts, answer, indices, amounts_of)
    requests = [(name, amount) for name, amounts in amounts_of.items() for amount in amounts]
    text_of: dict[bytes, str] = {}
    texts = []
    left_to_ask = MOST_ASKED
    # nodes of which all facts are equal are refused in the same words: their bytes tell, without a
    # tuple for each
    for index, key in enumerate(facts.view(f"V{facts.strides[0]}").ravel().tolist()):
        text = text_of.get(key)
        is_node = indices[index] < len(nodes)
        if is_node and (asked_all or (left_to_ask and text is None)):
            left_to_ask -= 1
            text = cause_of(int(indices[index]), pod)
            text_of[key] = text
        elif text is None:
            reason, kind, *columns = facts[index].tolist()
            layout = layouts.kinds[kind]
            masks = columns[: len(requests)]
            needs_more = columns[len(requests) :]
            about = dict(zip(requests, zip(masks, needs_more, strict=True), strict=True))
            facts_of_units = [
                [(name, *about[name, amount]) for name, amount in unit if name in layout.resources]
                for unit in requests_of_units
            ]
            text = _text(reason, layout, own_policy, facts_of_units)
            text_of[key] = text

        texts.append(_PREFIX + text)

    return texts


def _facts(
    cluster: Cluster,
    layouts: Layouts,
    answer: Evaluation,
    indices: Ints,
    amounts_of: Mapping[str, Mapping[int, None]],
) -> Ints:
    """Return what the words about some nodes depend on, a row for each node.

    The columns are the reason, the layout, for each requested amount the mask of the NUMA nodes
    that have enough, and for each whether it takes more of them now than if all that can be given
    were free.
    """
    facts = np.zeros((len(indices), 2 + 2 * sum(map(len, amounts_of.values()))), np.int64)
    facts[:, 0] = answer.reason[indices]
    facts[:, 1] = layouts.of[indices]

    column = 2
    for name, amounts in amounts_of.items():
        cluster.nodes_with(name, list(amounts), indices, facts[:, column : column + len(amounts)])
        column += len(amounts)

    for name, amounts in amounts_of.items():
        free = _largest_sums(cluster.free(name)[indices])
        allocatable = _largest_sums(cluster.allocatable(name)[indices])
        for amount in amounts:
            width = (free < amount).sum(axis=1)
            facts[:, column] = width > (allocatable < amount).sum(axis=1)
            column += 1

    return facts


def _largest_sums(amounts: Ints) -> Ints:
    """Return the largest sums of one NUMA node, of two and so on, by node."""
    sums: Ints = np.cumsum(-np.sort(-amounts, axis=1), axis=1)
    return sums


# A resource, the NUMA nodes that have enough of it (-1: all together have not), and whether it
# takes more of them.
_Fact = tuple[str, int, bool]


def _requests(cluster: Cluster, unit: Pod | Container) -> list[tuple[str, int]]:
    """Return what is asked for of the resources that any node has, devices first."""
    cpus, memory, devices, _ = request_of(unit)
    amounts = dict(devices)
    if cpus:
        amounts["cpu"] = cpus
    amounts.update(memory)

    counted_resources = cluster.resources
    return [
        (name, amount) for name, amount in amounts.items() if amount and name in counted_resources
    ]


def _text(reason: int, layout: Layout, own_policy: int, units: Sequence[Sequence[_Fact]]) -> str:
    """Return why a node refuses, by what its NUMA nodes have left.

    Args:
        reason: an index into `REASONS`.
        layout: of the node.
        own_policy: as for `refusal_texts`.
        units: the facts for the pod as a whole, and then for each of its containers if there are
            several.
    """
    policy = layout.policy if own_policy < 0 else own_policy
    several = len(units) > 1
    by_container = several and not layout.pod_scope and own_policy < 0
    judged_units = units[1:] if by_container else units[:1]

    for unit in judged_units:
        lacking = _shorts([name for name, mask, _ in unit if mask == -1])
        if lacking:
            return _WORDS["too little"].format(_and(lacking))

    if reason != _AFFINITY:
        return _OTHERS.get(REASONS[reason], REASONS[reason])

    for unit in judged_units:
        why = _why(unit, policy, layout)
        if why:
            return why

    if several:
        return _TOGETHER

    names = _shorts([name for name, _, _ in units[0]])
    return _WORDS["conflict"].format(_and(names or ["the pod"]))


def _why(unit: Sequence[_Fact], policy: int, layout: Layout) -> str:
    """Return why a pod or container finds no place by itself; empty: it does."""
    if policy == _SINGLE:
        spread = [name for name, mask, _ in unit if mask == 0]
        if spread:
            return _WORDS["one node"].format(_and(_shorts(spread)))

        common = -1
        for _, mask, _ in unit:
            common &= mask
        if common:
            return ""

        all_nodes = (1 << layout.numa_nodes) - 1
        return ", ".join(
            f"{_short(name)} only on {_nodes(bit_numbers(mask), layout.ids)}"
            for name, mask, _ in unit
            if mask != all_nodes
        )

    wider = [name for name, _, needs_more in unit if needs_more]
    if not wider:
        return ""
    return _WORDS["spread"].format(_and(_shorts(wider)))


def _nodes(positions: Iterable[int], ids: Sequence[int]) -> str:
    numbers = [str(ids[position] if ids else position) for position in positions]
    return f"NUMA node{'s' if len(numbers) > 1 else ''} {_and(numbers)}"


def _shorts(resources: Iterable[str]) -> list[str]:
    return [_short(name) for name in resources]


def _short(resource: str) -> str:
    """Return a resource without the domain of its vendor."""
    return resource if is_pinned_memory(resource) else resource.rpartition("/")[2]


def _and(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
