from typing import Any, Literal

def search(
    problem: Any, *, prune: bool = True, most_steps: int = 20_000_000, most_memory: int = 268_435_456
) -> tuple[Literal["found", "none", "error", "constraint", "limit"], list[tuple[int, int]], int]: ...
