from collections.abc import Mapping
from typing import Final, final

from alignup.core.amounts.cpu_ledger import CpuLedger
from alignup.core.amounts.device_ledger import DeviceLedger
from alignup.core.amounts.memory_ledger import MemoryLedger

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
        asks_itself: bool = False,
        upper_bound: bool = False,
    ) -> None: ...
    @property
    def devices(self) -> Mapping[str, DeviceLedger]: ...
    @property
    def numa_nodes(self) -> int: ...
    @property
    def policy(self) -> int: ...
    @property
    def pod_scope(self) -> bool: ...
