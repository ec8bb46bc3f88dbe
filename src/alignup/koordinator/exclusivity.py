"""Keeps single-node and multi-node pods of one machine apart, as the design document asks.

The tracker remembers who holds which NUMA nodes; its methods say which hints a further pod may still have, or
what they are worth. Whose policy is what is decided by `alignup.koordinator.effective`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsInt

from alignup.koordinator.annotation import PREFERRED, REQUIRED
from alignup.koordinator.occupancy import Occupancy
from alignup.topology_manager.hints import HintList, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    Hints: TypeAlias = HintList | Sequence[TopologyHint]

__all__ = ["ExclusivityTracker", "document_score"]


class ExclusivityTracker:
    """Who holds the NUMA nodes of one machine: SingleNUMANode pods, pods across several nodes.

    A pod under the policy `single-numa-node` holds the nodes it was given as a single-node pod, whichever
    container they went to. A pod under another policy holds the nodes of every affinity that spans more than
    one, as a multi-node pod. All other pods hold nothing: the document protects and restrains only these two.

    >>> from alignup.topology_manager.bitmask import BitMask
    >>> tracker = ExclusivityTracker()
    >>> tracker.add("a", [0b01], "single-numa-node")
    >>> tracker.filtered(HintList([TopologyHint(BitMask([0, 1]), True)]), "Required")
    HintList([])
    """

    __slots__ = ("_by_pod", "_occupancy")

    def __init__(self) -> None:
        self._by_pod: dict[str, Occupancy] = {}
        self._occupancy = Occupancy()

    @property
    def occupancy(self) -> Occupancy:
        """The two masks, of all pods together."""
        return self._occupancy

    def add(self, pod_uid: str, affinities: Iterable[SupportsInt | None], policy: str) -> None:
        """Remember a pod; one that is already known is replaced.

        Args:
            pod_uid: Who it is.
            affinities: The affinity of each container (or of the pod), `BitMask` or int; None: any node.
            policy: The policy it runs under, by the kubelet's name.
        """
        self.remove(pod_uid)
        single = multi = 0
        for affinity in affinities:
            mask = 0 if affinity is None else int(affinity)
            if policy == "single-numa-node":
                single |= mask
            elif mask.bit_count() > 1:
                multi |= mask
        if single or multi:
            held = self._by_pod[pod_uid] = Occupancy(single, multi)
            self._occupancy |= held

    def remove(self, pod_uid: str) -> None:
        """Forget a pod; unknown ones are no error."""
        if self._by_pod.pop(pod_uid, None) is not None:
            self._occupancy = Occupancy()
            for held in self._by_pod.values():
                self._occupancy |= held

    def filtered(self, hints: Hints, exclusive: str) -> Hints:
        """Return the hints that a pod may have: under `Required` none that mixes, else the same object.

        A hint mixes if it spans several NUMA nodes and one of them holds a SingleNUMANode pod. What is left
        may be empty, which a merge reads as "cannot be satisfied". Hints without a mask stay.
        """
        single = self._occupancy.single
        if exclusive != REQUIRED or not single:
            return hints
        packed = hints if isinstance(hints, HintList) else HintList(hints)
        return packed.avoiding(single)

    def attempts(self, exclusive: str) -> tuple[str, ...]:
        """Return under which exclusivities to merge, one after the other.

        A kubelet's merge has no scores, so `Preferred` (which scores mixed hints 0, the worst) becomes: merge
        without mixed hints, and with them only if the first result is not preferred.
        """
        if exclusive == PREFERRED and self._occupancy.single:
            return REQUIRED, ""
        return (exclusive if exclusive == REQUIRED else "",)

    def score(self, mask: int, requested: float, allocatable: float, exclusive: str = "") -> float:
        """Return `document_score` of a placement on `mask`, or 0 if it mixes and the pod is `Preferred`."""
        if exclusive == PREFERRED and self._occupancy.mixes(mask):
            return 0.0
        return document_score(mask.bit_count(), requested, allocatable)


def document_score(numa_nodes: int, requested: float, allocatable: float) -> float:
    """Return the design document's score: (100 - 10 x NUMA nodes) + 10 x requested / allocated.

    The document explains the second term as utilisation, so `requested` includes what is already given away.

    Args:
        numa_nodes: How many NUMA nodes the placement spans.
        requested: What pods on these nodes ask for of a resource, the new one included.
        allocatable: How much of it these nodes have; without any, the term is 0.
    """
    utilisation = requested / allocatable if allocatable else 0.0
    return 100 - 10 * numa_nodes + 10 * utilisation
