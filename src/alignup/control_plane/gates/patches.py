"""Sends patches to the API server: many at once, and each until it is known what became of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.control_plane.api_server import api_client
from alignup.control_plane.api_server.watch import Backoff
from alignup.errors import InputError
from alignup.kubernetes.wire import Metadata  # noqa: TC001  # msgspec reads annotations
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

# Requests under way at once.
_MOST_REQUESTS: Final = 32

# Seconds after which a patch is not sent again where a webhook fails each time.
_WEBHOOK_SECONDS: Final = 60.0

# Seconds within which a request that was not answered may still be carried out: an API server gives
# it up after a minute (`--request-timeout`), and its storage soon after.
_LATE_SECONDS: Final = 120.0


# After these the object, or its version, is gone for what was not answered, too.
_OVER: Final = frozenset({api_client.CONFLICT, api_client.MISSING})


class _Written(msgspec.Struct):
    """What a server answers that has changed an object."""

    metadata: Metadata


class Patches:
    """Patches of one process.

    Args:
        api: the API server.
        seconds: for each answer; None: as long as any request has.
        clock: seconds that never go back.

    Attributes:
        turns: whoever sends holds one of them.
        has_unanswered: whether a request was given up that the server may still carry out.
    """

    def __init__(
        self, api: api_client.Api, seconds: float | None, clock: Callable[[], float]
    ) -> None:
        self.turns = asyncio.Semaphore(_MOST_REQUESTS)
        self.has_unanswered = False
        self._api = api
        self._seconds = seconds
        self._clock = clock

    async def send_once(self, path: str, body: dict[str, Any]) -> None:
        """Patch an object.

        Raises:
            ApiError: the server refuses, or there is no answer, or not that of such a server.
        """
        text = await self._api.request(
            "PATCH", path, msgspec.json.encode(body), seconds=self._seconds
        )
        try:
            decode_json(text, "the object that was patched", kind=_Written)
        except InputError as error:
            raise api_client.ApiError(f"PATCH {path}: {error}") from error

    async def send(self, path: str, body: dict[str, Any], counts: Callable[[], bool]) -> None:
        """Patch an object, again and again where the server does not answer.

        Where a webhook fails each time, that has an end: nothing of what was sent can come about
        later. Of any other answer of a server that fails, or of none, that is not certain, and a
        refusal that follows, or a webhook that fails, says nothing of what was sent before, until
        that is long ago. The caller holds a turn, which others have while this one waits.

        Args:
            path: that of the object.
            body: is merged into it.
            counts: whether it is to be patched still.

        Raises:
            ApiError: the server refuses, or a webhook fails for long, or it does not count any
                more.
        """
        backoff = Backoff(self._api.pauses)
        is_unanswered = False
        until = self._clock() + _WEBHOOK_SECONDS
        late_until = float("-inf")
        while True:
            try:
                return await self.send_once(path, body)
            except api_client.ApiError as error:
                if error.status in _OVER:
                    raise

                now = self._clock()
                if not error.is_refusal:
                    is_unanswered = True
                    late_until = now + _LATE_SECONDS

                may_end = not error.is_passing or (error.is_webhooks and now >= until)
                is_over = may_end and now >= late_until
                if not is_over and counts():
                    self._api.complain(str(error))
                    await self._pause(backoff)
                if is_over or not counts():
                    self.has_unanswered |= is_unanswered
                    raise

    async def _pause(self, backoff: Backoff) -> None:
        """Wait before a request is sent once more, and let others have the turn."""
        self.turns.release()
        try:
            await backoff.pause()
        finally:
            await self.turns.acquire()
