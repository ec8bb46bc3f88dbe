from collections.abc import Sequence
from typing import Any, Literal

# What Cython adds to a module.
__test__: dict[str, object]

def search(
    problem: Any,
    *,
    prune: bool = ...,
    easy_steps: int = ...,
    most_steps: int = ...,
    most_memory: int = ...,
    watch: Sequence[bool] = ...,
) -> tuple[
    Literal["found", "none", "error", "constraint", "limit", "touched"], list[tuple[int, int]], int
]: ...
