from collections.abc import Sequence

# What Cython adds to a module.
__test__: dict[str, object]

from alignup.core.hints import HintList

MAX_NUMA_NODES: int

def smallest_size(
    numa_nodes: int,
    demands: Sequence[tuple[Sequence[int] | None, Sequence[int], int]],
    universe: int,
) -> int: ...
def feasible_hints(
    numa_nodes: int,
    demands: Sequence[tuple[Sequence[int] | None, Sequence[int], int]],
    *,
    universe: int,
    preferred_size: int,
    touching: Sequence[int] = (),
    sockets: Sequence[int] = (),
    preferred_sockets: int = -1,
    alone: int = 0,
    groups: Sequence[int] = (),
    extra: Sequence[int] = (),
) -> HintList: ...
