from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

# What Cython adds to a module.
__test__: dict[str, object]

from alignup.core.hints import HintList, TopologyHint

MOST_DISTANCE: int

def flatten(
    providers_hints: Iterable[Mapping[str, HintList | Iterable[TopologyHint] | None] | None],
) -> list[HintList]: ...

class Merged(NamedTuple):
    masks: NDArray[np.uint8] | NDArray[np.uint64]
    preferred: NDArray[np.bool_]
    exact: NDArray[np.bool_]

@final
class Merger:
    def __init__(
        self,
        numa_nodes: int,
        distances: Sequence[Sequence[int]] | None = None,
        *,
        as_written: bool = False,
    ) -> None: ...
    @property
    def numa_nodes(self) -> int: ...
    @property
    def as_written(self) -> bool: ...
    def merge(self, lists: list[HintList], single_nodes: bool = False) -> TopologyHint: ...
    def merge_many(
        self, groups: Iterable[Iterable[HintList]], single_nodes: bool = False
    ) -> Merged: ...
