"""Counts which NUMA nodes of a machine pods under SingleNUMANode hold, and which pods across several hold.

The consequences for a further pod are decided in `alignup.koordinator.exclusivity` and
`alignup.koordinator.profiles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.topology_manager.hints import TopologyHint

__all__ = ["NOTHING_HELD", "NumaNodeState", "Occupancy", "OccupancyTracker", "pod_occupancy"]


class NumaNodeState(StrEnum):
    """Koordinator's words for the pods in a NUMA node."""

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Two masks of NUMA nodes: held by pods in a single node, held by pods across several. They may overlap.

    Bit i is NUMA node i, in whichever numbering the caller keeps.
    """

    single: int = 0
    multi: int = 0

    @classmethod
    def from_states(cls, states: Iterable[str]) -> Occupancy:
        """Return the occupancy that a list of states, one a NUMA node, describes.

        Raises:
            InputError: a state is none of `idle`, `single`, `shared`.
        """
        single = multi = 0
        for position, name in enumerate(states):
            try:
                state = NumaNodeState(name)
            except ValueError:
                expected = "one of 'idle', 'single', 'shared'"
                raise InputError.at(f"node_states[{position}]", expected, name) from None
            single |= (state is NumaNodeState.SINGLE) << position
            multi |= (state is NumaNodeState.SHARED) << position
        return cls(single, multi)

    def __or__(self, other: Occupancy) -> Occupancy:
        return Occupancy(self.single | other.single, self.multi | other.multi)

    def state(self, position: int) -> NumaNodeState:
        """Return the state of the NUMA node at `position`; where both kinds of pods are, `shared` wins."""
        if self.multi >> position & 1:
            return NumaNodeState.SHARED
        return NumaNodeState.SINGLE if self.single >> position & 1 else NumaNodeState.IDLE


NOTHING_HELD: Final = Occupancy()


def pod_occupancy(
    policy: str, containers: Iterable[tuple[int, TopologyHint | None]], all_nodes: int
) -> Occupancy:
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
    together = 0
    for mask in masks:
        together |= mask
    if policy == "single-numa-node":
        return Occupancy(single=together)
    if all(hint is None for _, hint in parts):
        masks = [together]
    multi = 0
    for mask in masks:
        multi |= mask if mask.bit_count() > 1 else 0
    return Occupancy(multi=multi)


def _affinity_mask(hint: TopologyHint | None, held: int, all_nodes: int) -> int:
    """Return the NUMA nodes that an affinity adds to what is held.

    An affinity that is not preferred says little of what a container got, and neither does that of all nodes for a
    container without anything: that is how a merge without any hint ends.
    """
    if hint is None or hint.affinity is None or not hint.preferred:
        return 0
    mask = int(hint.affinity)
    return mask if held or mask != all_nodes else 0


class OccupancyTracker:
    """Remembers what each pod of one machine holds."""

    __slots__ = ("_by_pod", "_occupancy")

    def __init__(self) -> None:
        self._by_pod: dict[str, Occupancy] = {}
        self._occupancy = NOTHING_HELD

    def copy(self) -> OccupancyTracker:
        """Return an independent tracker of the same pods."""
        other = OccupancyTracker()
        other._by_pod, other._occupancy = self._by_pod.copy(), self._occupancy
        return other

    @property
    def occupancy(self) -> Occupancy:
        """The two masks, of all pods together."""
        return self._occupancy

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._by_pod

    def add(self, pod_uid: str, held: Occupancy) -> None:
        """Remember a pod; one that is already known is replaced."""
        self.remove(pod_uid)
        self._by_pod[pod_uid] = held
        self._occupancy |= held

    def remove(self, pod_uid: str) -> None:
        """Forget a pod; unknown ones are no error."""
        held = self._by_pod.pop(pod_uid, NOTHING_HELD)
        if held != NOTHING_HELD:
            self._occupancy = NOTHING_HELD
            for one in self._by_pod.values():
                self._occupancy |= one

    def holders(self, wanted: Occupancy) -> dict[str, Occupancy]:
        """Return, by uid in the order in which they came, the pods that hold any of these nodes, and what they hold."""
        return {
            uid: held
            for uid, held in self._by_pod.items()
            if held.single & wanted.single or held.multi & wanted.multi
        }
