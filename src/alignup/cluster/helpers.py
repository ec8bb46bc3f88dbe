"""Shares a run over many nodes among threads, so that it never takes longer than without them.

What is run, and with which arguments, is the caller's: it must do its work without the GIL.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Helpers"]


class Helpers:
    """Threads that help the caller's own; they are started when there is work for them, and stay.

    The caller takes shares like everybody else and never waits for a helper that has not begun: on a machine whose
    other cores are busy it does all the work itself.
    """

    __slots__ = ("_pid", "_pool", "_size")

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0
        self._pid = 0

    def share(self, run: Callable[[int, int], None], length: int, part: int, threads: int) -> None:
        """Call `run(start, stop)` for ranges that together are 0 to `length`; return when all are done.

        Args:
            run: does a range; its error is raised here.
            length: how many elements there are.
            part: how many of them a thread takes at a time.
            threads: how many threads take part at most, the caller's own included.
        """
        starts = count(0, part)  # the next number goes to one thread only
        wanted = min(threads, -(-length // part)) - 1
        helpers: list[Future[None]] = []
        if wanted > 0:
            pool = self._helpers(wanted)
            helpers += [pool.submit(_take_shares, run, starts, length, part) for _ in range(wanted)]
        try:
            _take_shares(run, starts, length, part)
        finally:
            _finish(helpers)

    def _helpers(self, wanted: int) -> ThreadPoolExecutor:
        """Return a pool of so many threads; a forked process has none of its parent's."""
        if self._pool is None or self._size < wanted or self._pid != os.getpid():
            if self._pool is not None and self._pid == os.getpid():
                self._pool.shutdown(wait=False)
            self._pool = ThreadPoolExecutor(wanted, "alignup-cluster")
            self._size, self._pid = wanted, os.getpid()
        return self._pool


def _take_shares(run: Callable[[int, int], None], starts: Iterator[int], length: int, part: int) -> None:
    """Take one range after the other until none is left."""
    for start in starts:
        if start >= length:
            return
        run(start, min(start + part, length))


def _finish(helpers: list[Future[None]]) -> None:
    """Wait for the helpers that have begun; the first error of one is raised."""
    begun = [helper for helper in helpers if not helper.cancel()]
    errors = [error for helper in begun if (error := helper.exception()) is not None]
    if errors:
        raise errors[0]
