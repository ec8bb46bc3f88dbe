from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from alignup.core.amounts.changes import Changes
from alignup.core.amounts.cpu_ledger import CpuLedger
from alignup.core.amounts.device_ledger import DeviceLedger
from alignup.core.amounts.memory_ledger import MemoryLedger

LIMITS: Final[tuple[int, int]]

@final
class Distances:
    nodes: Final[int]
    def __init__(self, rows: tuple[tuple[int, ...], ...]) -> None: ...

@final
class Row:
    cpu: Final[CpuLedger | None]
    memory: Final[MemoryLedger | None]
    distances: Final[Distances | None]
    def __init__(
        self,
        *,
        numa_nodes: int,
        policy: int,
        pod_scope: bool,
        cpu: CpuLedger | None,
        memory: MemoryLedger | None,
        devices: dict[str, DeviceLedger],
        distances: Distances | None,
        prefer_closest: bool = False,
        needs_node: bool = False,
        upper_bound: bool = False,
        changes: Changes | None = None,
    ) -> None: ...
    @property
    def devices(self) -> Mapping[str, DeviceLedger]: ...
    @property
    def numa_nodes(self) -> int: ...
    @property
    def policy(self) -> int: ...
    @property
    def pod_scope(self) -> bool: ...

@final
class Board:
    def __init__(self, rows: Iterable[Row]) -> None: ...
    def __len__(self) -> int: ...
    @property
    def parts(self) -> tuple[Row, ...]: ...
    @property
    def types(self) -> tuple[str, ...]: ...
    @property
    def resources(self) -> tuple[str, ...]: ...
    def replace(self, index: int, row: Row) -> None: ...
    def free(
        self, resource: str, out: npt.NDArray[np.int64], allocatable: bool = False
    ) -> None: ...
    def nodes_with(
        self,
        resource: str,
        amounts: npt.NDArray[np.int64],
        nodes: npt.NDArray[np.int64],
        out: npt.NDArray[np.int64],
    ) -> None: ...
    def judge(
        self,
        job: Job,
        strategy: int,
        start: int,
        stop: int,
        nodes: npt.NDArray[np.int64] | None,
        admitted: npt.NDArray[Any],
        reason: npt.NDArray[np.uint8],
        affinity: npt.NDArray[np.uint64],
        preferred: npt.NDArray[Any],
        score: npt.NDArray[np.float64],
        exact: npt.NDArray[Any],
        *,
        locks_held: bool = False,
    ) -> list[int]: ...
    def score(self, job: Job, index: int, strategy: int, hints: list[int | None]) -> float: ...

@final
class Job:
    board: Final[Board]
    policy: Final[int]
    def __init__(
        self,
        board: Board,
        requests: list[tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], bool]],
        policy: int = -1,
    ) -> None: ...
