"""Counts which NUMA nodes pods under SingleNUMANode hold, and which pods across several; exclusivity keeps them apart.

The design document's rules are functions over masks here; the policies of one node apply them in
`alignup.koordinator.node_policies`, a scheduler in `alignup.koordinator.scheduling`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from alignup.koordinator.effective import PREFERRED, REQUIRED
from alignup.machine.bits import union
from alignup.records import Record
from alignup.topology_manager.hints import HintList, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Hints: TypeAlias = HintList | Sequence[TopologyHint]


class Occupancy(Record):
    """Two masks of NUMA nodes: held by pods in a single node, held by pods across several. They may overlap.

    Bit i is NUMA node i, in whichever numbering the caller keeps.
    """

    single: int = 0
    multi: int = 0

    def __or__(self, other: Occupancy) -> Occupancy:
        return Occupancy(self.single | other.single, self.multi | other.multi)


NOTHING_HELD: Final = Occupancy()


def pod_occupancy(policy: str, containers: Iterable[tuple[int, TopologyHint | None]], all_nodes: int) -> Occupancy:
    """Return which NUMA nodes a pod holds, and as which kind of pod.

    A pod under single-numa-node holds the nodes of all its containers as a single-node pod. Of another pod every
    container that spans several NUMA nodes counts, and where nothing was aligned, the pod as a whole. A pod in one NUMA
    node by chance holds nothing: the document protects and restrains only these two.

    Args:
        policy: the policy that the pod runs under, by the kubelet's name.
        containers: of each container the NUMA nodes that its CPUs, memory and devices lie in, and its affinity; None:
            nothing was aligned.
        all_nodes: the mask of all NUMA nodes.
    """
    parts = list(containers)
    masks = [held | _affinity_mask(hint, held, all_nodes) for held, hint in parts]
    together = union(masks)
    if policy == "single-numa-node":
        return Occupancy(single=together)
    if all(hint is None for _, hint in parts):
        masks = [together]
    return Occupancy(multi=union(mask for mask in masks if mask.bit_count() > 1))


def _affinity_mask(hint: TopologyHint | None, held: int, all_nodes: int) -> int:
    """Return the NUMA nodes that an affinity adds to what is held.

    An affinity that is not preferred says little of what a container got, and neither does that of all nodes for a
    container without anything: that is how a merge without any hint ends.
    """
    if hint is None or hint.affinity is None or not hint.preferred:
        return 0
    mask = int(hint.affinity)
    return mask if held or mask != all_nodes else 0


MOST_NAMED: Final = 4
"""The number of pods that a sentence names before it counts the rest."""

_MOST_LISTED: Final = 4096
"""Longer lists are descriptions of what fits on over 12 NUMA nodes; they are asked node by node."""


class Avoidance(Record):
    """The NUMA nodes, as masks, that hints may not name."""

    alone: int = 0
    """For hints of exactly one node."""
    across: int = 0
    """For hints of several nodes."""

    def allows(self, mask: int) -> bool:
        """Return whether a hint with this mask may stay."""
        return not mask & (self.alone if mask.bit_count() == 1 else self.across)


NOTHING_AVOIDED: Final = Avoidance()


def mixes(mask: int, occupancy: Occupancy, *, single: bool) -> bool:
    """Return whether a pod on these NUMA nodes would share one with a pod of the other kind.

    Args:
        mask: the NUMA nodes of a hint of the pod, or those that it holds.
        occupancy: what the other pods hold.
        single: the pod runs under SingleNUMANode, and keeps away from pods across NUMA nodes; else it keeps away from
            pods under SingleNUMANode where it spans several NUMA nodes itself.
    """
    if single:
        return bool(mask & occupancy.multi)
    return mask.bit_count() > 1 and bool(mask & occupancy.single)


def rounds(exclusive: str, occupancy: Occupancy, all_nodes: int, *, single: bool) -> tuple[Avoidance, ...]:
    """Return what to leave out of the hints, one merge after the other: the first preferred result is taken.

    A kubelet's merge has no scores, so what the document says in scores becomes an order of merges:

    - `Required` skips hints that mix (see `mixes`), in every round.
    - `Preferred` scores them 0, the worst: they are left out at first, and taken when nothing else is preferred.
    - Pods under SingleNUMANode attract each other, so that room remains for pods across NUMA nodes: the first round
      leaves them only nodes that such pods hold already.

    Args:
        exclusive: `Required`, `Preferred`, or "" for a pod without an annotation: nothing is left out.
        occupancy: what the other pods hold.
        all_nodes: the mask of all NUMA nodes.
        single: the pod runs under SingleNUMANode.
    """
    if exclusive not in (REQUIRED, PREFERRED):
        return (NOTHING_AVOIDED,)
    found = []
    if single:
        together = occupancy.single & ~occupancy.multi
        apart = Avoidance(alone=occupancy.multi)
        if together:
            found.append(Avoidance(alone=all_nodes & ~together))
    else:
        apart = Avoidance(across=occupancy.single)
    found.append(apart)
    if exclusive == PREFERRED and apart != NOTHING_AVOIDED:
        found.append(NOTHING_AVOIDED)
    return tuple(found)


def permitted(hints: Hints, avoidance: Avoidance) -> Hints:
    """Return the hints that may stay; the same object if nothing is to be avoided.

    Where nodes are closed to hints of one node, as for pods under single-numa-node only, hints of several nodes go
    too: that policy ignores them anyway. The result may be empty, which a merge reads as "cannot be satisfied".
    Hints without a mask stay.
    """
    if avoidance == NOTHING_AVOIDED:
        return hints
    packed = hints if isinstance(hints, HintList) else HintList(hints)
    if not avoidance.alone:
        return packed.avoiding(avoidance.across)
    total = packed.total()
    # a description is sampled narrowest first, and has a hint of one node for each NUMA node at most
    narrow = packed.hints() if total is not None and total <= _MOST_LISTED else packed.sample(_MOST_LISTED)
    return HintList(
        [
            hint
            for hint in narrow
            if hint.affinity is None or (hint.affinity.count() == 1 and avoidance.allows(int(hint.affinity)))
        ]
    )


def exclusivity_sentence(holders: Mapping[str, str]) -> str:
    """Return why exclusivity refuses a pod, naming the pods that it keeps away from.

    Args:
        holders: what each pod in the way is called, and the NUMA nodes that it holds, in words.
    """
    named = [f"pod {name!r} {where}" for name, where in holders.items()]
    more = len(named) - MOST_NAMED
    told = ", ".join(named[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"exclusivity (singleNUMANodeExclusive {REQUIRED}) keeps it away from {told or 'the pods there'}"


def holding_words(held: Occupancy, numa_ids: Sequence[int], *, single: bool) -> str:
    """Return the NUMA nodes that a pod holds as one that runs under SingleNUMANode, or as one across NUMA nodes."""
    mask = held.single if single else held.multi
    ids = [str(numa_id) for position, numa_id in enumerate(numa_ids) if mask >> position & 1]
    nodes = ("node " if len(ids) == 1 else "nodes ") + "+".join(ids)
    return f"on NUMA {nodes} under SingleNUMANode" if single else f"across NUMA {nodes}"


def document_score(numa_nodes: int, requested: float, allocatable: float) -> float:
    """Return the design document's score: (100 - 10 x NUMA nodes) + 10 x requested / allocated.

    The document explains the second term as utilisation, so `requested` includes what is already given away.

    Args:
        numa_nodes: how many NUMA nodes the placement spans.
        requested: what pods on these nodes ask for of a resource, the new one included.
        allocatable: how much of it these nodes have; without any, the term is 0.
    """
    utilisation = requested / allocatable if allocatable else 0.0
    return 100 - 10 * numa_nodes + 10 * utilisation
