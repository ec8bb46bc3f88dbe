from typing import Any, final

import numpy as np
import numpy.typing as npt

SHAPE_FIELDS: tuple[str, ...]
LIMITS: tuple[int, int]

@final
class Board:
    shape_count: int
    node_count: int
    def __init__(
        self,
        *,
        starts: npt.NDArray[np.int64],
        scalars: npt.NDArray[np.int64],
        cpu_capacity: npt.NDArray[np.int64],
        cpu_allocatable: npt.NDArray[np.int64],
        socket_nodes: npt.NDArray[np.uint64],
        memory_allocatable: npt.NDArray[np.int64],
        places: npt.NDArray[np.uint64],
        totals: npt.NDArray[np.int64],
        sums: npt.NDArray[np.int64],
        nearest: npt.NDArray[np.int64],
        shape_of: npt.NDArray[np.int32],
        cpu: npt.NDArray[np.int64],
        whole: npt.NDArray[np.int64],
        memory: npt.NDArray[np.int64],
        bound: npt.NDArray[np.uint64],
        used: npt.NDArray[np.uint64],
        devices: npt.NDArray[np.int64],
        exclusive: npt.NDArray[np.uint64],
    ) -> None: ...

@final
class Job:
    def __init__(
        self,
        board: Board,
        demands: list[tuple[int, list[tuple[int, int]], list[tuple[int, int]], bool]],
        policy: int = -1,
        exclusively: bool = False,
    ) -> None: ...
    def run(
        self,
        strategy: int,
        start: int,
        stop: int,
        nodes: npt.NDArray[np.int64] | None,
        admitted: npt.NDArray[Any],
        reason: npt.NDArray[Any],
        affinity: npt.NDArray[Any],
        preferred: npt.NDArray[Any],
        score: npt.NDArray[Any],
        exact: npt.NDArray[Any],
    ) -> None: ...
