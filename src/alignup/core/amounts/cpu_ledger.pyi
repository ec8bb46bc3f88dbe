from collections.abc import Callable
from typing import Final, Literal, Self, final

from alignup.core.cpu.topology import CpuTopology
from alignup.core.hints import HintList

@final
class CpuCapacity:
    topology: Final[CpuTopology]
    def __init__(
        self,
        topology: CpuTopology,
        reserved: int,
        *,
        strict_reservation: bool = False,
        full_pcpus_only: bool = False,
        distributes: bool = False,
        spreads: bool = False,
        in_turns: bool = False,
        by_l3: bool = False,
        l3_rounds_down: bool = False,
        whole_l3_first: bool = False,
        sockets: tuple[int, ...] = (),
        irregular_size: int | None = None,
    ) -> None: ...
    @staticmethod
    def from_counts(capacity: list[int], allocatable: list[int]) -> CpuCapacity: ...
    @property
    def allocatable(self) -> int: ...
    @property
    def shareable(self) -> int: ...
    @property
    def reserved_cores(self) -> int: ...
    @property
    def socket_nodes(self) -> tuple[int, ...]: ...

@final
class CpuShortage:
    cause: Final[Literal["too few", "not whole cores", "too few whole"]]
    def __init__(self, cause: str) -> None: ...

@final
class CpuLedger:
    capacity: Final[CpuCapacity]
    def __new__(cls, capacity: CpuCapacity) -> Self: ...
    @staticmethod
    def from_counts(capacity: CpuCapacity, available: list[int]) -> CpuLedger: ...
    def copy(self) -> CpuLedger: ...
    @property
    def given(self) -> int: ...
    def free_by_node(self) -> tuple[int, ...]: ...
    def give(self, cpus: int) -> None: ...
    def take_back(self, cpus: int) -> None: ...
    def hints(self, request: int, reusable: int = 0, held: int | None = None) -> HintList: ...
    def choose(
        self,
        request: int,
        reusable: int,
        mask: int | None,
        distribute: Callable[[int, int, int, int], int] | None = None,
    ) -> int | CpuShortage: ...
    def check_whole_cores(self, request: int) -> CpuShortage | None: ...
