"""Bounds on the memory that a piece of work takes.

Unlike bounds on its time, no load on the machine shifts them.
"""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MEBI = 2**20


@contextmanager
def at_most(mebibytes: float) -> Iterator[None]:
    """Fail if Python objects made inside take more than this at any moment."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= mebibytes * MEBI, f"{peak / MEBI:.1f} MiB"
