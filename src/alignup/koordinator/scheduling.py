"""Takes one pod past one node as a scheduler plugin would: PreFilter, Filter, Reserve.

The two readings of pod-level policies: Koordinator's released scheduler, and its design document.

`SchedulerProfile` decides as the scheduler does, `DocumentProfile` as the design document asks.
They differ in nine answers, and these two classes are nothing but the answers; what both share, the
steps among them, is below. The caller says what a node has and which pods are on it.

| question                    | scheduler                   | document                    |
|-----------------------------|-----------------------------|-----------------------------|
| which annotation is read?   | numa-topology-spec          | that, or else resource-spec |
| unknown values?             | kept while they do no harm  | an error                    |
| who holds a NUMA node?      | pods with a CPU set         | SingleNUMANode pods; pods   |
|                             |                             | across nodes                |
| which hints are not         | none                        | Required: mixed ones        |
| offered?                    |                             |                             |
| which results are demoted?  | Required: mixed ones, and   | none                        |
|                             | single nodes held by a pod  |                             |
|                             | across nodes                |                             |
| which results are refused?  | none for exclusivity        | Required: mixed ones, under |
|                             |                             | BestEffort too              |
| what is a hint worth?       | mean percentage left free   | 100 - 10 x nodes + 10 x     |
|                             |                             | mean use; Preferred: 0 if   |
|                             |                             | mixed                       |
| which of equals comes last, | the last in lexicographic   | the one that is worth most  |
| where the last may win?     | order                       |                             |
| what does a mismatch say?   | one fixed sentence          | both policies               |

Mixed, for the document: a pod under SingleNUMANode on a node that a pod across NUMA nodes holds, or
a pod across NUMA nodes of which a pod under SingleNUMANode holds one. For the scheduler policies do
not matter: one NUMA node alone is what a "single" pod has, and a node with pods of both kinds
counts as shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeAlias

from alignup.errors import InputError
from alignup.koordinator import effective
from alignup.koordinator.effective import (
    Occupancy,
    document_score,
    exclusivity_sentence,
    holding_words,
    mixes,
)
from alignup.koordinator.merging import ScoredHint, merge
from alignup.machine.bits import bit_numbers, bit_set
from alignup.records import Record, field, replace

# (requested including the new pod, capacity) of each resource on one set of nodes.
Utilisations: TypeAlias = "Sequence[tuple[int, int]]"

# Every set of NUMA nodes is looked at, in the order of the definition. More would take too long.
MAX_NODES: Final = 16


class PlacedPod(Record):
    """A pod on a node.

    Attributes:
        cpu_nodes: the mask of the NUMA nodes of its CPU set.
        nodes: the mask of those of all its resources.
        policy: the policy that it runs under.
    """

    cpu_nodes: int
    nodes: int
    policy: str


class Exclusivity(Record):
    """The exclusivity of the new pod, and what the other pods hold.

    Attributes:
        exclusive: `Required`, `Preferred`, anything else: none.
        single: the new pod runs under SingleNUMANode.
    """

    exclusive: str
    occupancy: Occupancy
    single: bool = False

    def mixes(self, mask: int) -> bool:
        """Return what `effective.mixes` does of this pod on these NUMA nodes."""
        return mixes(mask, self.occupancy, single=self.single)


class SchedulerProfile:
    """The released scheduler's answers to the nine questions.

    They are those of its `topologymanager` and `nodenumaresource`.

    Attributes:
        knows_container_scope: True if a kubelet's single-numa-node in container scope is a policy
            of the node.
    """

    knows_container_scope = False

    def spec(self, annotations: Mapping[str, str]) -> effective.NumaTopologySpec:
        """Return what a pod asks for; values may be anything.

        Raises:
            InputError: the annotation that runs cannot be read.
        """
        return effective.decode_spec(annotations, (effective.NUMA_TOPOLOGY_SPEC,))

    def node_policy(self, declared: str) -> str:
        """Return a node's policy; any word is one."""
        return declared

    def mismatch(self, pod: str, node: str) -> str:  # noqa: ARG002  # the original names neither
        """Return why a pod's policy keeps it from a node."""
        return "node(s) NUMA Topology policy not match"

    def holds(self, pod: PlacedPod) -> Occupancy:
        """Return the NUMA nodes that a pod holds, and as what: CPU sets count, policies do not."""
        nodes = pod.cpu_nodes
        if nodes.bit_count() == 1:
            return Occupancy(single=nodes)
        return Occupancy(multi=nodes)

    # a demotion is all there is
    def excludes(self, mask: int, exclusivity: Exclusivity) -> bool:  # noqa: ARG002
        """Return whether a set of NUMA nodes is never offered.

        As a result it is refused even under BestEffort.
        """
        return False

    def violates(self, mask: int, exclusivity: Exclusivity) -> bool:
        """Return whether a merged set loses its preference.

        Under Required single and multi stay apart, both ways.
        """
        if exclusivity.exclusive != effective.REQUIRED:
            return False

        occupancy = exclusivity.occupancy
        if mask.bit_count() == 1:
            return bool(mask & occupancy.multi)
        return bool(mask & occupancy.single & ~occupancy.multi)

    def score(
        self,
        mask: int,  # noqa: ARG002
        used: Utilisations,
        exclusivity: Exclusivity,  # noqa: ARG002
    ) -> float:
        """Return the weight of a set of NUMA nodes: the mean free percentage, rounded down."""
        if not used:
            return 0

        free = [max(0, capacity - amount) * 100 // capacity for amount, capacity in used]
        return sum(free) // len(free)

    def rank(self, hint: ScoredHint) -> tuple[float, ...]:  # noqa: ARG002  # all equal
        """Return the key by which to offer a resource's hints.

        Equal ones stay by size, then lexicographic. A merge takes the narrowest hints, and of these
        a later one if its score is higher *or* its mask smaller (`alignup.koordinator.merging`). So
        their order counts.
        """
        return ()


class DocumentProfile(SchedulerProfile):
    """The answers that the design document asks for."""

    knows_container_scope = True

    def spec(self, annotations: Mapping[str, str]) -> effective.NumaTopologySpec:
        """Read either annotation; refuse unknown values."""
        return effective.checked_spec(annotations)

    def node_policy(self, declared: str) -> str:
        """Refuse unknown policies."""
        return effective.check_policy(declared, f'metadata.labels["{effective.NODE_LABEL}"]')

    def mismatch(self, pod: str, node: str) -> str:
        """Name both policies."""
        return effective.mismatch_sentence(pod, node)

    def holds(self, pod: PlacedPod) -> Occupancy:
        """Count SingleNUMANode pods, and pods that span NUMA nodes."""
        if pod.policy == effective.SINGLE_NUMA_NODE:
            return Occupancy(single=pod.nodes)
        if pod.nodes.bit_count() > 1:
            return Occupancy(multi=pod.nodes)
        return Occupancy()

    def excludes(self, mask: int, exclusivity: Exclusivity) -> bool:
        """Under Required, exclude what mixes.

        BestEffort may end with all nodes when nothing else is left.
        """
        return exclusivity.exclusive == effective.REQUIRED and exclusivity.mixes(mask)

    # what would violate was not offered
    def violates(self, mask: int, exclusivity: Exclusivity) -> bool:  # noqa: ARG002
        """Let everything that was offered stand."""
        return False

    def score(self, mask: int, used: Utilisations, exclusivity: Exclusivity) -> float:
        """Weigh by few NUMA nodes, then high use; under Preferred, mixed sets count 0."""
        if exclusivity.exclusive == effective.PREFERRED and exclusivity.mixes(mask):
            return 0.0
        # of several resources the mean: the sum of their shares over how many they are
        shares = sum(amount / capacity for amount, capacity in used)
        return document_score(mask.bit_count(), shares, len(used))

    def rank(self, hint: ScoredHint) -> tuple[float, ...]:
        """Offer the best last, so that a score decides.

        Without it, a mixed set could still win as later.
        """
        mask = hint.mask or 0
        return mask.bit_count(), hint.score, -mask


Profile: TypeAlias = SchedulerProfile

# The profiles, by name.
PROFILES: Final[Mapping[str, type[Profile]]] = {
    "document": DocumentProfile,
    "scheduler": SchedulerProfile,
}


def make_profile(name: str) -> Profile:
    """Return the profile of that name.

    Raises:
        InputError: there is no such profile.
    """
    if name not in PROFILES:
        raise InputError.at("the profile", f"one of {', '.join(PROFILES)}", name)
    return PROFILES[name]()


class NodeView(Record):
    """A node as a scheduler sees it, with the pods that hold its NUMA nodes.

    Attributes:
        policy: the policy that it declares.
        numa_nodes: how many there are.
        holders: the NUMA nodes that each pod holds, by the name that a refusal gives it; empty: not
            known.
        numa_ids: the kernel's ids of the NUMA nodes; empty: their positions.
    """

    policy: str
    numa_nodes: int
    occupancy: Occupancy
    holders: Mapping[str, Occupancy] = field(default_factory=dict)
    numa_ids: Sequence[int] = ()


class Verdict(Record):
    """How far a pod came. None: not reached, or refused there.

    Attributes:
        policy: the effective policy.
        allocation: by NUMA node and resource; empty if no NUMA node is charged.
    """

    prefilter: effective.Status
    filter: effective.Status | None = None
    reserve: effective.Status | None = None
    policy: str | None = None
    hints: Mapping[str, Sequence[ScoredHint]] = field(default_factory=dict)
    affinity: ScoredHint | None = None
    allocation: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def status(self) -> effective.Status:
        """The first step's status that is not Success or Skip; Success if there is none."""
        for status in (self.prefilter, self.filter, self.reserve):
            if status is not None and status.code not in (
                effective.StatusCode.SUCCESS,
                effective.StatusCode.SKIP,
            ):
                return status
        return effective.SUCCESS


def evaluate(
    annotations: Mapping[str, str],
    demands: Sequence[Demand],
    node: NodeView,
    profile: Profile,
    exclusive: str = effective.REQUIRED,
) -> Verdict:
    """Return what becomes of a pod on a node.

    Args:
        annotations: the pod's annotations.
        demands: for each resource what the node's NUMA nodes have, and the pod's request (0: none).
        node: the node.
        profile: the rules to follow.
        exclusive: the exclusivity of pods that name a policy and no exclusivity: the scheduler's
            argument `singleNUMANodeExclusive`.

    Raises:
        InputError: the effective policy does not exist, the node's policy is one that the profile
            does not know, or the node has more NUMA nodes than can be looked at
            (`alignup.koordinator.scheduling`).
    """
    try:
        spec = profile.spec(annotations)
    except InputError as error:
        return Verdict(effective.Status(effective.StatusCode.ERROR, (str(error),)))

    if not any(demand.request for demand in demands):
        return Verdict(effective.Status(effective.StatusCode.SKIP))

    node_policy = profile.node_policy(node.policy)
    policy = effective.joined_policy(spec.policy, node_policy)
    if policy is None:
        reason = profile.mismatch(spec.policy, node_policy)
        return Verdict(
            effective.SUCCESS, effective.Status(effective.StatusCode.UNRESOLVABLE, (reason,))
        )

    if not policy:
        return Verdict(effective.SUCCESS, effective.SUCCESS, effective.SUCCESS, policy)

    pod_exclusive = effective.default_exclusive(spec.policy, spec.exclusive, exclusive)
    exclusivity = Exclusivity(pod_exclusive, node.occupancy, policy == effective.SINGLE_NUMA_NODE)
    return _Alignment(demands, node, profile, policy, exclusivity).verdict()


class _Alignment(Record):
    """One pod, one node, and a policy that is not empty."""

    demands: Sequence[Demand]
    node: NodeView
    profile: Profile
    policy: str
    exclusivity: Exclusivity

    def verdict(self) -> Verdict:
        """Return the outcome: BestEffort aligns in Reserve, the others in Filter."""
        aligned, status = self.aligned()
        if status is not effective.SUCCESS:
            status = self._named(status)

        if self.policy == effective.BEST_EFFORT or status is effective.SUCCESS:
            return replace(aligned, reserve=status)
        return replace(aligned, filter=status)

    def aligned(self) -> tuple[Verdict, effective.Status]:
        """Return the verdict with hints, and the status of the alignment.

        The verdict has affinity and allocation if all goes well.
        """
        reached = Verdict(effective.SUCCESS, effective.SUCCESS, policy=self.policy)
        nodes = self.node.numa_nodes
        exclusivity = self.exclusivity
        if not nodes:
            reasons: tuple[str, ...] = ("node(s) missing NUMA resources",)
            return reached, effective.Status(effective.StatusCode.UNRESOLVABLE, reasons)

        is_restricted = self.policy == effective.RESTRICTED
        hints = offered_hints(
            self.demands, nodes, self.profile, exclusivity, all_preferred=is_restricted
        )
        hints = {
            resource: sorted(offers, key=self.profile.rank) for resource, offers in hints.items()
        }
        offered = replace(reached, hints=hints)
        all_nodes = (1 << nodes) - 1
        merged = merge(
            self.policy, [hints], all_nodes, lambda mask: self.profile.violates(mask, exclusivity)
        )
        if not merged.admitted:
            return offered, effective.Status(effective.StatusCode.UNSCHEDULABLE, merged.reasons)

        spread = Split({}, ())
        if merged.hint.mask is not None:
            spread = split(self.demands, merged.hint.mask)

        reasons = tuple(f"Insufficient NUMA {resource}" for resource in spread.insufficient)
        if not reasons and self.profile.excludes(merged.hint.mask or 0, exclusivity):
            reasons = (self._sentence(merged.hint.mask or 0),)
        if reasons:
            return offered, effective.Status(effective.StatusCode.UNSCHEDULABLE, reasons)

        placed = replace(offered, affinity=merged.hint, allocation=spread.amounts)
        return placed, effective.SUCCESS

    def _named(self, status: effective.Status) -> effective.Status:
        """Return the refusal that names exclusivity if the pod would come in without it."""
        if self.exclusivity.exclusive != effective.REQUIRED:
            return status

        unrestrained = replace(self, exclusivity=replace(self.exclusivity, exclusive=""))
        verdict, unrestrained_status = unrestrained.aligned()
        if unrestrained_status is not effective.SUCCESS:
            return status

        mask = 0
        if verdict.affinity is not None:
            mask = verdict.affinity.mask or 0
        if not self.profile.excludes(mask, self.exclusivity):
            return status

        return effective.Status(status.code, (self._sentence(mask),))

    def _sentence(self, mask: int) -> str:
        """Return why a pod must not have these NUMA nodes, with the pods that hold them."""
        single = not self.exclusivity.single
        numa_ids = self.node.numa_ids or range(self.node.numa_nodes)
        holders = {}
        for name, occupancy in self.node.holders.items():
            pod_nodes = occupancy.single if single else occupancy.multi
            if mask & pod_nodes:
                holders[name] = holding_words(occupancy, numa_ids, single=single)

        return exclusivity_sentence(holders)


class Demand(Record):
    """One resource on one machine, and how much of it a pod requests.

    Attributes:
        capacity: how much there is, per NUMA node.
        free: how much of it is free, per NUMA node.
    """

    resource: str
    capacity: tuple[int, ...]
    free: tuple[int, ...]
    request: int


class Split(Record):
    """How requests are spread over NUMA nodes.

    Attributes:
        amounts: what each NUMA node gives, by position and resource.
        insufficient: the resources of which a rest is left, sorted.
    """

    amounts: Mapping[int, Mapping[str, int]]
    insufficient: tuple[str, ...]


def masks_by_size(nodes: int) -> Iterator[int]:
    """Yield all sets of `nodes` positions, as masks: smallest first, then in lexicographic order.

    Raises:
        InputError: there are more than `MAX_NODES`.
    """
    if nodes > MAX_NODES:
        raise InputError.at("numa", f"at most {MAX_NODES} NUMA nodes", nodes)
    for size in range(1, nodes + 1):
        for positions in combinations(range(nodes), size):
            yield bit_set(positions)


def split(demands: Sequence[Demand], mask: int) -> Split:
    """Return how requests are spread over the nodes of `mask`.

    Each resource goes to its nodes from the least free to the most, ties by position; each node
    takes an even share of what remains (rounded down), or all that it has. A resource of which a
    rest remains is insufficient.
    """
    nodes = list(bit_numbers(mask))
    amounts: dict[int, dict[str, int]] = {}
    insufficient = []
    for demand in demands:
        remaining = demand.request
        for place, node in enumerate(sorted(nodes, key=demand.free.__getitem__)):
            share = min(demand.free[node], remaining // (len(nodes) - place))
            if share:
                amounts.setdefault(node, {})[demand.resource] = share
                remaining -= share

        if remaining:
            insufficient.append(demand.resource)

    return Split(dict(sorted(amounts.items())), tuple(sorted(insufficient)))


def utilisations(demands: Sequence[Demand], mask: int) -> Utilisations:
    """Return how full the nodes of `mask` would be, for each resource that they have."""
    nodes = list(bit_numbers(mask))
    amounts = []
    for demand in demands:
        capacity = sum(demand.capacity[node] for node in nodes)
        if capacity:
            free = sum(demand.free[node] for node in nodes)
            amounts.append((capacity - free + demand.request, capacity))

    return amounts


def offered_hints(
    demands: Sequence[Demand],
    nodes: int,
    profile: Profile,
    exclusivity: Exclusivity,
    *,
    all_preferred: bool,
) -> dict[str, list[ScoredHint]]:
    """Return the hints of each requested resource, by name of the resource.

    A set of nodes is offered if all requests split over it and none of its nodes is without the
    resource. Its hint is preferred if it has the smallest size of those that the resource offers.

    Args:
        demands: all resources; those without a request take part in the score, and in nothing else.
        nodes: how many NUMA nodes there are.
        profile: says which sets of nodes are not offered, and the weight of the others.
        exclusivity: of the pod.
        all_preferred: prefer every hint, regardless of its size.

    Raises:
        InputError: there are more than `MAX_NODES` NUMA nodes.
    """
    requested = [demand for demand in demands if demand.request]
    nodes_without = {
        demand.resource: bit_set(node for node, free in enumerate(demand.free) if not free)
        for demand in requested
    }
    offered: dict[str, list[tuple[int, float]]] = {demand.resource: [] for demand in requested}
    for mask in masks_by_size(nodes):
        if profile.excludes(mask, exclusivity) or split(requested, mask).insufficient:
            continue
        weight = profile.score(mask, utilisations(demands, mask), exclusivity)
        for resource, masks in offered.items():
            if not mask & nodes_without[resource]:
                masks.append((mask, weight))

    return {
        resource: _hints(masks, all_preferred=all_preferred) for resource, masks in offered.items()
    }


def _hints(masks: Sequence[tuple[int, float]], *, all_preferred: bool) -> list[ScoredHint]:
    """Return the hints for masks in ascending size."""
    if not masks:
        return []

    smallest = masks[0][0].bit_count()
    return [
        ScoredHint(mask, all_preferred or mask.bit_count() == smallest, score=weight)
        for mask, weight in masks
    ]
