"""The two ways to keep a pod-level policy, and all that they do not share.

`KoordinatorProfile` does what Koordinator's released scheduler does; `DocumentProfile` what its design document
asks for. They differ in seven answers, and these two classes are nothing but the answers.

| question                          | koordinator                       | document                              |
|-----------------------------------|-----------------------------------|---------------------------------------|
| which annotation is read          | numa-topology-spec                | that, or else resource-spec           |
| unknown policies and exclusives   | kept, as long as they do no harm  | an error                              |
| who holds a NUMA node             | pods with a CPU set, of any policy| SingleNUMANode pods; pods across nodes|
| which hints are never offered     | none                              | Required: mixed ones                  |
| what costs a result its preference| Required: mixed, or in one node   | nothing (it was not offered)          |
|                                   | with a pod across nodes           |                                       |
| the score of a hint               | mean percentage left free         | 100 - 10 x nodes + 10 x mean used     |
|                                   |                                   | share; Preferred: 0 if mixed          |
| the reason of a mismatch          | one fixed sentence                | names both policies                   |

"Mixed": across several NUMA nodes, one of which a single-node pod holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from alignup.podpolicy.effective import ANNOTATIONS, mismatch_sentence
from alignup.podpolicy.exclusivity import document_score
from alignup.podpolicy.occupancy import Occupancy
from alignup.podpolicy.placement import Utilisations
from alignup.podpolicy.spec import (
    NODE_LABEL,
    NUMA_TOPOLOGY_SPEC,
    PREFERRED,
    REQUIRED,
    SINGLE_NUMA_NODE,
    NumaTopologySpec,
    check_policy,
    check_spec,
    decode_spec,
    present_place,
)

__all__ = ["DocumentProfile", "Exclusivity", "KoordinatorProfile", "PlacedPod", "Profile"]


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node: the NUMA nodes of its CPU set and of all its resources, as masks, and its policy."""

    cpu_nodes: int
    nodes: int
    policy: str


@dataclass(frozen=True, slots=True)
class Exclusivity:
    """What the new pod wants (`Required`, `Preferred`, anything else: nothing), and who is there already."""

    wanted: str
    occupancy: Occupancy


class Profile(Protocol):
    """The answers to the seven questions."""

    def spec(self, annotations: Mapping[str, str]) -> NumaTopologySpec:
        """Return what a pod asks for; raise InputError if that cannot be."""

    def node_policy(self, declared: str) -> str:
        """Return a node's policy; raise InputError if there is no such policy."""

    def mismatch(self, pod: str, node: str) -> str:
        """Return why a pod's policy keeps it from a node."""

    def holds(self, pod: PlacedPod) -> Occupancy:
        """Return the NUMA nodes that a pod holds, and as what."""

    def skips(self, mask: int, exclusivity: Exclusivity) -> bool:
        """Return whether a set of NUMA nodes is never offered."""

    def violates(self, mask: int, exclusivity: Exclusivity) -> bool:
        """Return whether a merged set of NUMA nodes loses its preference."""

    def score(self, mask: int, used: Utilisations, exclusivity: Exclusivity) -> float:
        """Return the weight of a set of NUMA nodes."""


class KoordinatorProfile:
    """As the released scheduler does it: its packages `topologymanager` and `nodenumaresource`."""

    def spec(self, annotations: Mapping[str, str]) -> NumaTopologySpec:
        return decode_spec(annotations, (NUMA_TOPOLOGY_SPEC,))

    def node_policy(self, declared: str) -> str:
        return declared

    def mismatch(self, pod: str, node: str) -> str:  # noqa: ARG002  # the original names neither
        return "node(s) NUMA Topology policy not match"

    def holds(self, pod: PlacedPod) -> Occupancy:
        alone = pod.cpu_nodes.bit_count() == 1
        return Occupancy(single=pod.cpu_nodes) if alone else Occupancy(multi=pod.cpu_nodes)

    def skips(self, mask: int, exclusivity: Exclusivity) -> bool:  # noqa: ARG002  # every set is offered
        return False

    def violates(self, mask: int, exclusivity: Exclusivity) -> bool:
        if exclusivity.wanted != REQUIRED:
            return False
        held = exclusivity.occupancy
        if mask.bit_count() == 1:
            return bool(mask & held.multi)
        return bool(mask & held.single & ~held.multi)

    def score(self, mask: int, used: Utilisations, exclusivity: Exclusivity) -> int:  # noqa: ARG002
        left = [max(0, capacity - amount) * 100 // capacity for amount, capacity in used]
        return sum(left) // len(left) if left else 0


class DocumentProfile:
    """As the design document asks for it."""

    def spec(self, annotations: Mapping[str, str]) -> NumaTopologySpec:
        return check_spec(decode_spec(annotations, ANNOTATIONS), present_place(annotations, ANNOTATIONS))

    def node_policy(self, declared: str) -> str:
        return check_policy(declared, f'metadata.labels["{NODE_LABEL}"]')

    def mismatch(self, pod: str, node: str) -> str:
        return mismatch_sentence(pod, node)

    def holds(self, pod: PlacedPod) -> Occupancy:
        if pod.policy == SINGLE_NUMA_NODE:
            return Occupancy(single=pod.nodes)
        return Occupancy(multi=pod.nodes if pod.nodes.bit_count() > 1 else 0)

    def skips(self, mask: int, exclusivity: Exclusivity) -> bool:
        return exclusivity.wanted == REQUIRED and exclusivity.occupancy.mixes(mask)

    def violates(self, mask: int, exclusivity: Exclusivity) -> bool:  # noqa: ARG002  # it was not offered
        return False

    def score(self, mask: int, used: Utilisations, exclusivity: Exclusivity) -> float:
        if exclusivity.wanted == PREFERRED and exclusivity.occupancy.mixes(mask):
            return 0.0
        requested = sum(amount / capacity for amount, capacity in used)
        return document_score(mask.bit_count(), requested, len(used))
