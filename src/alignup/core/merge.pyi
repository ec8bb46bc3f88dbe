from collections.abc import Sequence
from typing import final

# What Cython adds to a module.
__test__: dict[str, object]
__pyx_capi__: dict[str, object]

from alignup.core.hints import HintList, TopologyHint

@final
class Merger:
    def __init__(self, numa_nodes: int, distances: Sequence[Sequence[int]] | None = None) -> None: ...
    @property
    def numa_nodes(self) -> int: ...
    def merge(self, lists: list[HintList], single_nodes: bool = False) -> TopologyHint: ...
