"""Says which NUMA nodes of a machine are held by pods in a single one, and which by pods across several.

What follows from it for a further pod is decided by `alignup.koordinator.profiles` and
`alignup.koordinator.exclusivity`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NumaNodeState", "Occupancy"]


class NumaNodeState(StrEnum):
    """Koordinator's words for who is in a NUMA node."""

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
        """Return the occupancy behind a list of states, one a NUMA node.

        Raises:
            InputError: A state is none of `idle`, `single`, `shared`.
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

    def mixes(self, mask: int) -> bool:
        """Return whether `mask` goes across nodes, and into one that a single-node pod holds."""
        return mask.bit_count() > 1 and bool(mask & self.single)
