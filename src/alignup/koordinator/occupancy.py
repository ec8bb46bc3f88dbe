"""Counts which NUMA nodes pods under SingleNUMANode hold, and which pods across several; exclusivity keeps them apart.

The policies of one node apply this in `alignup.koordinator.node_policies`, a scheduler in
`alignup.koordinator.scheduling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from alignup.koordinator.effective import REQUIRED
from alignup.machine.bits import ids_of
from alignup.records import Record
from alignup.text.counting import named, some_of


class Occupancy(Record):
    """Two masks of NUMA nodes: held by pods in a single node, held by pods across several. They may overlap.

    Bit i is NUMA node i, in whichever numbering the caller keeps.
    """

    single: int = 0
    multi: int = 0

    def __or__(self, other: Occupancy) -> Occupancy:
        return Occupancy(self.single | other.single, self.multi | other.multi)


NOTHING_HELD: Final = Occupancy()

# The number of pods that a sentence names before it counts the rest.
MOST_NAMED: Final = 4


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


def exclusivity_sentence(holders: Mapping[str, str]) -> str:
    """Return why exclusivity refuses a pod, naming the pods that it keeps away from.

    Args:
        holders: what each pod in the way is called, and the NUMA nodes that it holds, in words.
    """
    told = some_of([f"pod {name!r} {where}" for name, where in holders.items()], MOST_NAMED)
    return f"exclusivity (singleNUMANodeExclusive {REQUIRED}) keeps it away from {told or 'the pods there'}"


def holding_words(held: Occupancy, numa_ids: Sequence[int], *, single: bool) -> str:
    """Return the NUMA nodes that a pod holds as one that runs under SingleNUMANode, or as one across NUMA nodes."""
    nodes = named("NUMA node", ids_of(held.single if single else held.multi, numa_ids))
    return f"on {nodes} under SingleNUMANode" if single else f"across {nodes}"


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
