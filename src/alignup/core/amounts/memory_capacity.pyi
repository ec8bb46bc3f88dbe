from collections.abc import Mapping, Sequence
from typing import Final, final

LARGEST_REQUEST: Final[int]

@final
class MemoryCapacity:
    types: Final[tuple[str, ...]]
    def __init__(self, allocatable: Mapping[str, Sequence[int]]) -> None: ...
    def amounts(self) -> dict[str, tuple[int, ...]]: ...
