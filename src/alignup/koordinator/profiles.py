"""The two readings of pod-level policies: Koordinator's released scheduler, and its design document.

`SchedulerProfile` decides as the scheduler does, `DocumentProfile` as the design document asks. They differ in nine
answers, and these two classes are nothing but the answers; what both share is in `alignup.koordinator.scheduling`.

| question                     | scheduler                        | document                               |
|------------------------------|----------------------------------|----------------------------------------|
| which annotation is read?    | numa-topology-spec               | that, or else resource-spec            |
| unknown values?              | kept while they do no harm       | an error                               |
| who holds a NUMA node?       | pods with a CPU set              | SingleNUMANode pods; pods across nodes |
| which hints are not offered? | none                             | Required: mixed ones                   |
| which results are demoted?   | Required: mixed ones, and single | none                                   |
|                              | nodes held by a pod across nodes |                                        |
| which results are refused?   | none for exclusivity             | Required: mixed ones, under BestEffort |
|                              |                                  | too                                    |
| what is a hint worth?        | mean percentage left free        | 100 - 10 x nodes + 10 x mean use;      |
|                              |                                  | Preferred: 0 if mixed                  |
| which of equals comes last,  | the last in lexicographic order  | the one that is worth most             |
| where the last may win?      |                                  |                                        |
| what does a mismatch say?    | one fixed sentence               | both policies                          |

Mixed, for the document: a pod under SingleNUMANode on a node that a pod across NUMA nodes holds, or a pod across NUMA
nodes of which a pod under SingleNUMANode holds one. For the scheduler policies do not matter: one NUMA node alone is
what a "single" pod has, and a node with pods of both kinds counts as shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from alignup.errors import InputError
from alignup.koordinator.effective import (
    NODE_LABEL,
    NUMA_TOPOLOGY_SPEC,
    PREFERRED,
    REQUIRED,
    SINGLE_NUMA_NODE,
    NumaTopologySpec,
    check_policy,
    checked_spec,
    decode_spec,
    mismatch_sentence,
)
from alignup.koordinator.occupancy import Occupancy, document_score, mixes
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.koordinator.merging import ScoredHint

Utilisations: TypeAlias = "Sequence[tuple[int, int]]"
"""(requested including the new pod, capacity) of each resource on one set of nodes."""


class PlacedPod(Record):
    """A pod on a node: the NUMA nodes of its CPU set and of all its resources, as masks, and its policy."""

    cpu_nodes: int
    nodes: int
    policy: str


class Exclusivity(Record):
    """The exclusivity of the new pod (`Required`, `Preferred`, anything else: none), and what the other pods hold."""

    wanted: str
    occupancy: Occupancy
    single: bool = False
    """The new pod runs under SingleNUMANode."""

    def mixes(self, mask: int) -> bool:
        """Return whether the pod on these NUMA nodes would share one with a pod of the other kind."""
        return mixes(mask, self.occupancy, single=self.single)


class SchedulerProfile:
    """The answers to the nine questions of the released scheduler: its `topologymanager` and `nodenumaresource`."""

    knows_container_scope = False
    """True if a kubelet's single-numa-node in container scope is a policy of the node."""

    def spec(self, annotations: Mapping[str, str]) -> NumaTopologySpec:
        """Return what a pod asks for; values may be anything.

        Raises:
            InputError: the annotation that runs cannot be read.
        """
        return decode_spec(annotations, (NUMA_TOPOLOGY_SPEC,))

    def node_policy(self, declared: str) -> str:
        """Return a node's policy; any word is one."""
        return declared

    def mismatch(self, pod: str, node: str) -> str:  # noqa: ARG002  # the original names neither
        """Return why a pod's policy keeps it from a node."""
        return "node(s) NUMA Topology policy not match"

    def holds(self, pod: PlacedPod) -> Occupancy:
        """Return the NUMA nodes that a pod holds, and as what: CPU sets count, policies do not."""
        alone = pod.cpu_nodes.bit_count() == 1
        return Occupancy(single=pod.cpu_nodes) if alone else Occupancy(multi=pod.cpu_nodes)

    def excludes(self, mask: int, exclusivity: Exclusivity) -> bool:  # noqa: ARG002  # a demotion is all there is
        """Return whether a set of NUMA nodes is never offered, and refused as a result even under BestEffort."""
        return False

    def violates(self, mask: int, exclusivity: Exclusivity) -> bool:
        """Return whether a merged set loses its preference: under Required single and multi stay apart, both ways."""
        if exclusivity.wanted != REQUIRED:
            return False
        held = exclusivity.occupancy
        if mask.bit_count() == 1:
            return bool(mask & held.multi)
        return bool(mask & held.single & ~held.multi)

    def score(self, mask: int, used: Utilisations, exclusivity: Exclusivity) -> float:  # noqa: ARG002
        """Return the weight of a set of NUMA nodes: the mean percentage that stays free, rounded down."""
        left = [max(0, capacity - amount) * 100 // capacity for amount, capacity in used]
        return sum(left) // len(left) if left else 0

    def rank(self, hint: ScoredHint) -> tuple[float, ...]:  # noqa: ARG002  # all equal
        """Return the key by which to offer a resource's hints; equal ones stay by size, then lexicographic.

        A merge takes the narrowest hints, and of these a later one if its score is higher *or* its mask
        smaller (`alignup.koordinator.merging`). So their order counts.
        """
        return ()


class DocumentProfile(SchedulerProfile):
    """The answers that the design document asks for."""

    knows_container_scope = True

    def spec(self, annotations: Mapping[str, str]) -> NumaTopologySpec:
        """Read either annotation; refuse unknown values."""
        return checked_spec(annotations)

    def node_policy(self, declared: str) -> str:
        """Refuse unknown policies."""
        return check_policy(declared, f'metadata.labels["{NODE_LABEL}"]')

    def mismatch(self, pod: str, node: str) -> str:
        """Name both policies."""
        return mismatch_sentence(pod, node)

    def holds(self, pod: PlacedPod) -> Occupancy:
        """Count SingleNUMANode pods, and pods that span NUMA nodes."""
        if pod.policy == SINGLE_NUMA_NODE:
            return Occupancy(single=pod.nodes)
        return Occupancy(multi=pod.nodes if pod.nodes.bit_count() > 1 else 0)

    def excludes(self, mask: int, exclusivity: Exclusivity) -> bool:
        """Under Required, exclude what mixes: BestEffort may end with all nodes when nothing else is left."""
        return exclusivity.wanted == REQUIRED and exclusivity.mixes(mask)

    def violates(self, mask: int, exclusivity: Exclusivity) -> bool:  # noqa: ARG002  # it was not offered
        """Let everything that was offered stand."""
        return False

    def score(self, mask: int, used: Utilisations, exclusivity: Exclusivity) -> float:
        """Weigh by few NUMA nodes, then high use; under Preferred, mixed sets count 0."""
        if exclusivity.wanted == PREFERRED and exclusivity.mixes(mask):
            return 0.0
        # of several resources the mean: the sum of their shares over how many they are
        shares = sum(amount / capacity for amount, capacity in used)
        return document_score(mask.bit_count(), shares, len(used))

    def rank(self, hint: ScoredHint) -> tuple[float, ...]:
        """Offer the best last, so that a score decides: without it, a mixed set could still win as later."""
        mask = hint.mask or 0
        return mask.bit_count(), hint.score, -mask


Profile: TypeAlias = SchedulerProfile

PROFILES: Final[Mapping[str, type[Profile]]] = {"document": DocumentProfile, "scheduler": SchedulerProfile}
"""The profiles, by name."""


def make_profile(name: str) -> Profile:
    """Return the profile of that name.

    Raises:
        InputError: there is no such profile.
    """
    if name not in PROFILES:
        raise InputError.at("the profile", f"one of {', '.join(PROFILES)}", name)
    return PROFILES[name]()
