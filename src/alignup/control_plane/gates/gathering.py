"""Lets one task go on some time after the first of several events."""

from __future__ import annotations

import asyncio


class Gathering:
    """Gathers events: what is seen shortly after one is taken together with it.

    Each event costs next to nothing, and each pause one timer, however many events there are.

    Args:
        seconds: for which events are gathered.
        longest: seconds after which a pause ends without an event.
    """

    def __init__(self, seconds: float, longest: float) -> None:
        self._seconds = seconds
        self._longest = longest
        self._is_over = asyncio.Event()
        self._has_event = False
        self._has_beat = False

    def event(self) -> None:
        """Let the pause end soon."""
        if not self._has_event:
            self._has_event = True
            asyncio.get_running_loop().call_later(self._seconds, self._is_over.set)

    async def pause(self) -> None:
        """Wait for the end of the pause, and begin the next one."""
        if not self._has_beat:
            self._has_beat = True
            self._begin_beat()

        await self._is_over.wait()
        self._is_over.clear()
        self._has_event = False

    def _begin_beat(self) -> None:
        """End the pause after the longest time, and again and again, whatever events there are."""
        asyncio.get_running_loop().call_later(self._longest, self._beat)

    def _beat(self) -> None:
        self._is_over.set()
        self._begin_beat()
