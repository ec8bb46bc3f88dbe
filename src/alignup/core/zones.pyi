from collections.abc import Container
from typing import Any, TypeAlias

_Amounts: TypeAlias = tuple[int, ...]

def plain_zones(
    zones: list[Any], not_aligned: Container[str], largest_cost: int, unknown_cost: int
) -> (
    tuple[int, dict[str, tuple[_Amounts, _Amounts, _Amounts]], tuple[tuple[int, ...], ...] | None] | None
): ...
