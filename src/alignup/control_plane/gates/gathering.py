"""Lets one task go on some time after the first of several events."""

from __future__ import annotations

import asyncio


class Gathering:
    """Gathers events: what is seen shortly after one is taken together with it.

    Each event costs next to nothing, and each pause two timers, however many events there are.

    Args:
        seconds: for which events are gathered.
        longest: seconds after which a pause ends without an event.
    """

    def __init__(self, seconds: float, longest: float) -> None:
        self._seconds = seconds
        self._longest = longest
        self._is_over = asyncio.Event()
        self._end: asyncio.TimerHandle | None = None
        self._has_event = False

    def event(self) -> None:
        """Let the pause end soon."""
        if not self._has_event:
            self._has_event = True
            self._end_in(self._seconds)

    async def pause(self) -> None:
        """Wait for the end of the pause, and begin the next one."""
        if self._end is None:
            self._end_in(self._longest)

        await self._is_over.wait()
        self._is_over.clear()
        self._has_event = False
        self._end_in(self._longest)

    def _end_in(self, seconds: float) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(seconds, self._is_over.set)
