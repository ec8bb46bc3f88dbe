from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self, final

from alignup.core.hints import HintList
from alignup.core.shared_dict import SharedDict

LARGEST_REQUEST: Final[int]
SIZES_KEPT: Final[int]
MOST_DONORS: Final[int]

@final
class MemoryCapacity:
    types: Final[tuple[str, ...]]
    def __init__(
        self, allocatable: Mapping[str, Sequence[int]], *, checks_groups: bool = True
    ) -> None: ...
    def amounts(self) -> dict[str, tuple[int, ...]]: ...

@final
class MemoryHolding:
    capacity: Final[MemoryCapacity]
    def __new__(cls, capacity: MemoryCapacity, mask: int) -> Self: ...
    @property
    def mask(self) -> int: ...
    def positions(self) -> tuple[int, ...]: ...
    def shares(self) -> dict[str, tuple[int, ...]]: ...
    def sizes(self) -> list[tuple[str, int]]: ...

@final
class MemoryShortage:
    cause: Final[Literal["too little", "not preferred", "bound otherwise"]]
    mask: Final[int]
    def __init__(self, cause: str, mask: int) -> None: ...

@final
class MemoryLedger:
    capacity: Final[MemoryCapacity]
    def __new__(cls, capacity: MemoryCapacity) -> Self: ...
    @staticmethod
    def from_counts(
        capacity: MemoryCapacity, available: Mapping[str, Sequence[int]]
    ) -> MemoryLedger: ...
    def assign(self, other: MemoryLedger) -> None: ...
    def copy(self) -> MemoryLedger: ...
    @property
    def free(self) -> dict[str, tuple[int, ...]]: ...
    def free_of(self, kind: str) -> tuple[int, ...] | None: ...
    @property
    def groups(self) -> tuple[int, ...]: ...
    @property
    def alone(self) -> int: ...
    @property
    def unused(self) -> int: ...
    def hints(
        self, requests: tuple[tuple[str, int], ...], donors: Sequence[MemoryHolding] = ()
    ) -> HintList: ...
    def allocate(
        self,
        requests: tuple[tuple[str, int], ...],
        donors: Sequence[MemoryHolding],
        mask: int | None,
        preferred: bool,
        into: SharedDict[Any, MemoryHolding] | None = None,
        key: object = None,
    ) -> MemoryHolding | MemoryShortage: ...
    def adopt(self, shares: dict[str, Mapping[int, int]]) -> MemoryHolding | None: ...
    def restore(
        self,
        free: dict[str, Sequence[int]],
        bound: list[int],
        more_users: list[int],
        holdings: list[dict[str, Mapping[int, int]]],
    ) -> list[MemoryHolding | None]: ...
    def release(
        self,
        holding: MemoryHolding,
        kept_in: SharedDict[Any, MemoryHolding] | None = None,
        key: object = None,
    ) -> None: ...
