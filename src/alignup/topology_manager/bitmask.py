"""Sets of NUMA nodes: the only module that imports the compiled `alignup.core.bitmask`."""

from __future__ import annotations

from alignup.core.bitmask import BitMask

__all__ = ["BitMask"]
