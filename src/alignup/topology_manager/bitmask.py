"""Sets of NUMA nodes. The one importer of the compiled `alignup.core.bitmask`."""

from __future__ import annotations

from alignup.core.bitmask import BitMask

__all__ = ["BitMask"]
