"""Lets one task go on when something has happened, but not too often."""

from __future__ import annotations

import asyncio


class Gathering:
    """Gathers events: after a pause, the next one lasts until some time has gone by.

    The first event after a quiet time ends the pause at once. Each event costs next to nothing, and
    each pause one timer at most, however many events there are.

    Args:
        seconds: from the end of a pause to the end of the next one that events may bring about.
        longest: seconds after which a pause ends without an event.
    """

    def __init__(self, seconds: float, longest: float) -> None:
        self._seconds = seconds
        self._longest = longest
        self._is_over = asyncio.Event()
        self._has_event = False
        self._has_beat = False
        # By the clock of the loop, when an event may end the pause.
        self._next_end = float("-inf")

    def event(self) -> None:
        """Let the pause end soon."""
        if self._has_event:
            return

        self._has_event = True
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_end:
            loop.call_at(self._next_end, self._is_over.set)
        else:
            self._is_over.set()

    async def pause(self) -> None:
        """Wait for the end of the pause, and begin the next one."""
        if not self._has_beat:
            self._has_beat = True
            self._begin_beat()

        await self._is_over.wait()
        self._is_over.clear()
        self._has_event = False
        self._next_end = asyncio.get_running_loop().time() + self._seconds

    def _begin_beat(self) -> None:
        """End the pause after the longest time, and again and again, whatever events there are."""
        asyncio.get_running_loop().call_later(self._longest, self._beat)

    def _beat(self) -> None:
        self._is_over.set()
        self._begin_beat()
