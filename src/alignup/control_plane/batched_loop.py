"""An event loop that reads what has come in batches.

A program that follows a cluster gets several events for each pod, some milliseconds apart, and each
of them would wake it. In between other programs have the processor and its caches, so that a fifth
of its time would go into beginning anew.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Ready = list[tuple[selectors.SelectorKey, int]]


class BatchSelector(selectors.DefaultSelector):
    """Tells of files that are ready, in batches that do not begin too soon after each other.

    A batch begins with the first file that is ready, and at once where nothing was ready for long.
    It goes on until nothing is ready any more: however much has come, all of it is read. Timers
    keep their time.

    Args:
        seconds: from the beginning of a batch to that of the next one, at least.
        clock: seconds that never go back.
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._is_reading = False
        self._next_batch = float("-inf")

    def select(self, timeout: float | None = None) -> Ready:
        """Return files that are ready; none where the time is over before the next batch begins.

        Args:
            timeout: seconds to wait for one; None: without end; 0 and less: not at all.
        """
        if self._is_reading:
            ready = super().select(0)
            has_other_work = timeout is not None and timeout <= 0
            if ready or has_other_work:
                return ready
            self._is_reading = False

        pause = max(0.0, self._next_batch - self._clock())
        if timeout is not None and timeout < pause:
            if timeout > 0:
                self._sleep(timeout)
            return []

        if pause:
            self._sleep(pause)

        ready = super().select(None if timeout is None else timeout - pause)
        if ready:
            self._is_reading = True
            self._next_batch = self._clock() + self._seconds
        return ready


def new_batched_loop(seconds: float) -> asyncio.AbstractEventLoop:
    """Return an event loop that reads in batches; the argument is that of `BatchSelector`.

    Signals, and calls from other threads, wait for the next batch as well.
    """
    return asyncio.SelectorEventLoop(BatchSelector(seconds))
