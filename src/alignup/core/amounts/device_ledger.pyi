from collections.abc import Callable
from typing import Final, Literal, Self, final

from alignup.core.hints import HintList

@final
class DeviceInventory:
    def __init__(
        self,
        numa_nodes: int,
        places: list[int | None],
        healthy: int,
        reported: int,
        *,
        over_all_nodes: bool = False,
        is_aligned: bool = False,
    ) -> None: ...
    @staticmethod
    def from_counts(totals: list[int], *, over_all_nodes: bool = False) -> DeviceInventory: ...
    @property
    def is_aligned(self) -> bool: ...
    def places(self) -> list[tuple[int, int]]: ...
    @property
    def present(self) -> int: ...
    @property
    def healthy(self) -> int: ...

@final
class DeviceShortage:
    cause: Final[Literal["none healthy", "too few"]]
    def __init__(self, cause: str) -> None: ...

@final
class DeviceLedger:
    inventory: Final[DeviceInventory]
    def __new__(cls, inventory: DeviceInventory, given: int = 0) -> Self: ...
    @staticmethod
    def from_counts(inventory: DeviceInventory, available: list[int]) -> DeviceLedger: ...
    def copy(self) -> DeviceLedger: ...
    @property
    def given(self) -> int: ...
    @property
    def free(self) -> int: ...
    def give(self, devices: int) -> None: ...
    def take_back(self, devices: int) -> None: ...
    def hints(
        self, request: int, reusable: int = 0, held: int | None = None
    ) -> HintList | None: ...
    def choose(
        self,
        request: int,
        reusable: int,
        mask: int | None,
        advise: Callable[[int, int, int], int] | None = None,
    ) -> int | DeviceShortage: ...
