"""Sets of NUMA nodes. The one importer of the compiled `_bitmask`."""

from __future__ import annotations

from alignup._bitmask import BitMask

__all__ = ["BitMask"]
