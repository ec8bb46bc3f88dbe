from collections.abc import Mapping, Sequence
from typing import Final, final

LARGEST_REQUEST: Final[int]

@final
class MemoryCapacity:
    types: Final[tuple[str, ...]]
    def __init__(self, allocatable: Mapping[str, Sequence[int]], *, checks_groups: bool = True) -> None: ...
    def amounts(self) -> dict[str, tuple[int, ...]]: ...
