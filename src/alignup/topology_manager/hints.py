"""Hints, packed lists of hints, sets of NUMA nodes, and the functions that make hints from amounts.

The only module that imports the compiled `alignup.core.bitmask`, `alignup.core.hints` and
`alignup.core.feasible`.
"""

from __future__ import annotations

from collections.abc import Sequence

from alignup.core.bitmask import BitMask
from alignup.core.feasible import MAX_NUMA_NODES, feasible_hints, smallest_size
from alignup.core.hints import IMPOSSIBLE, NO_PREFERENCE, HintList, TopologyHint

__all__ = [
    "IMPOSSIBLE",
    "MAX_NUMA_NODES",
    "NO_PREFERENCE",
    "BitMask",
    "HintList",
    "TopologyHint",
    "feasible_hints",
    "smallest_size",
]

Sequence.register(HintList)
