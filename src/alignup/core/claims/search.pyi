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
) -> tuple[Literal["found", "none", "error", "constraint", "limit"], list[tuple[int, int]], int]: ...
